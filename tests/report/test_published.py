"""The published values: their files, and their arithmetic.

A share of n cases is k / n, so a value printed in percent must be the rounded share of some k. What
a source prints otherwise is listed in conflicts.csv, and the list is complete.
"""

import math
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest

from vlc_jax.configs.common import classification
from vlc_jax.evaluators import PROTOCOLS
from vlc_jax.input_pipeline import benchmarks
from vlc_jax.report import published

VALUES = published.values()
PRINTED = [value for value in VALUES if value.source != "vl_compo"]
MEANS = [value for value in PRINTED if value.note.startswith("mean of: ")]
CONFLICTS = published.rows("conflicts.csv")
NAME = ("benchmark", "subset", "metric", "model")
CLASSES = ("zeroshot", "multilabel")
OURS = {"choice", "keywords", "multiple_choice", "pairs", "retrieval", "triplet", *CLASSES}
SHARES = [  # values that are a share of known cases; a mean over groups is none
    value
    for value in VALUES
    if value.unit in ("percent", "fraction")
    and value.count
    and not value.metric.endswith("_macro")
    and value.protocol != "mean"
]


def listed(kind, value, *fields):
    """True if conflicts.csv has a row of that kind which agrees in these fields."""
    return any(
        row["kind"] == kind and all(row[field] in ("", getattr(value, field)) for field in fields)
        for row in CONFLICTS
    )


def is_share(value):
    """True if the value is the share of a whole number of cases, rounded as printed."""
    scale = published.SCALES[value.unit]
    half = 0.5 * 10.0**-value.decimals + 1e-9  # half a unit of the last digit that is printed
    low, high = (value.value + sign * half for sign in (-1, 1))
    return math.ceil(low * scale * value.count) <= math.floor(high * scale * value.count)


def by_key(values, *fields):
    found = defaultdict(list)
    for value in values:
        found[tuple(getattr(value, field) for field in fields)].append(value)
    return found


def test_every_value_has_our_protocol_or_one_of_the_others_and_a_known_source():
    assert {*PROTOCOLS} >= OURS
    others = {value.protocol for value in VALUES} - OURS
    assert others == {"generation", "linear_probe", "mean", "example", "count"}
    assert {value.unit for value in VALUES} <= {*published.SCALES}
    assert {value.source for value in VALUES} == {*published.sources()}
    for value in VALUES:
        assert (value.unit == "count") == (value.protocol == "count")
        assert math.isfinite(value.value)
        if value.unit in ("percent", "fraction"):
            assert 0 <= value.number <= 1, value


def test_a_value_is_named_once_per_table():
    """Two rows of one name and table would be two values for one cell."""
    fields = ("source", "table", "benchmark", "subset", "metric", "protocol", "model")
    cells = by_key([v for v in VALUES if v.protocol not in ("example", "count")], *fields)
    assert {len(cell) for cell in cells.values()} == {1}


def test_numbers_are_fractions_whatever_was_printed():
    by_unit = {value.unit: value for value in VALUES if value.value}
    for unit, scale in (("percent", 0.01), ("points", 0.01), ("fraction", 1), ("cosine", 1)):
        value = by_unit[unit]
        assert value.number == pytest.approx(scale * value.value)
    (orig,) = [
        value
        for value in published.model_values("CLIP ViT-B/32")
        if value.full_metric == "original_accuracy" and value.table == "table 1"
    ]
    assert (orig.number, orig.origin) == (0.605, "Kamath et al., ECCV 2024, table 1")


def test_values_of_a_model_come_from_papers_first_and_unknown_models_name_the_nearest():
    kinds = [
        published.sources()[value.source]["kind"]
        for value in published.model_values("CLIP ViT-B/32")
    ]
    assert kinds == sorted(kinds, key=("paper", "authors", "rerun").index)
    assert {*kinds} == {"paper", "authors", "rerun"}
    with pytest.raises(published.UnknownModelError, match="'CLIP ViT-B/32'"):
        published.model_values("clip vit-b32")
    # names that begin with the word, before similar ones such as ALIP
    with pytest.raises(published.UnknownModelError, match=r"models: 'CLIP ViT-B/32', 'CLIP ViT"):
        published.model_values("clip")
    with pytest.raises(published.UnknownModelError, match=r"models: '[^']*ViT-B/32'"):
        published.model_values("vit-b/32")


@pytest.mark.parametrize(
    ("benchmark", "cases"),
    [
        *(("whatsup_a_two_way", {103, 206}), ("whatsup_b_two_way", {102, 204})),
        *(("whatsup_a", {103, 206, 412}), ("whatsup_b", {102, 204, 408})),
        *(("mmvp", {150, 300}), ("mmvp_vlm", {15, 135})),
        *(("winoground", {400}), ("naturalbench_retrieval", {1200})),
        *(("swap", {28_748}), ("coco_order", {25_010}), ("flickr30k_order", {5000})),
        *(("coco_spatial_one", {2247}), ("coco_spatial_two", {440})),
        *(("gqa_spatial_one", {1160}), ("gqa_spatial_two", {291})),
    ],
)
def test_values_are_of_the_published_numbers_of_cases(benchmark, cases):
    values = [v for v in SHARES if v.benchmark == benchmark and v.model != "human"]
    assert {value.count for value in values} == cases


def test_values_of_our_protocols_are_filed_under_the_names_of_our_readers():
    """Else nothing is ever compared with them. Sets of classes and captions, which one reader
    reads, have the name that a config gives them."""
    general = ("retrieval", *CLASSES)
    named = {v.benchmark for v in VALUES if v.protocol in OURS - {*general}}
    assert named - benchmarks.READERS.keys() == set()
    ours = {v.benchmark for v in VALUES if v.protocol in CLASSES} - {"hateful_memes"}
    assert ours - classification.SETS.keys() == set()


def test_every_share_is_of_its_cases_or_a_listed_slip():
    wrong = [value for value in SHARES if not is_share(value)]
    slips = {(v.benchmark, v.subset, v.metric, v.model) for v in wrong}
    rows = [row for row in CONFLICTS if row["kind"] == "count"]
    assert slips == {tuple(row[field] for field in NAME) for row in rows}


def test_original_augmented_and_brittleness_fit_each_other():
    """Brittle are c > n > p, which is original without augmented, and p > n > c.

    The terms are rounded to 0.1 each, the printed difference is of unrounded ones.
    """
    values = [value for value in PRINTED if value.protocol == "triplet" and value.unit != "cosine"]
    for key, row in by_key(values, "benchmark", "table", "model").items():
        by_name = {value.metric.removesuffix("_macro"): value.value for value in row}
        if key[0] == "half_truths" or key[2].startswith("models with"):
            continue  # only one of them is published
        original, augmented = by_name["original_accuracy"], by_name["augmented_accuracy"]
        assert augmented <= original, key
        assert by_name.get("brittleness", 100) >= original - augmented - 0.15, key
        difference = by_name.get("augmented_minus_original", augmented - original)
        assert difference == pytest.approx(augmented - original, abs=0.151), key


@pytest.mark.parametrize("mean", MEANS, ids=lambda value: f"{value.benchmark} {value.model}")
def test_a_mean_of_the_text_is_that_of_its_models_in_table_1(mean):
    models = mean.note.removeprefix("mean of: ").split("; ")
    key = (mean.benchmark, mean.metric, "table 1")
    values = [
        value.value
        for value in PRINTED
        if (value.benchmark, value.metric, value.table) == key and value.model in models
    ]
    assert len(values) == len(models)
    assert sum(values) / len(values) == pytest.approx(mean.value, abs=0.0501)


def test_a_pair_is_right_if_both_of_it_are():
    """Of n pairs with a share i of right decisions at least 2 i - 1 and at most i are right."""
    fields = ("source", "table", "benchmark", "subset", "model", "protocol")
    tables = by_key(VALUES, *fields)
    impossible = set()
    for row in tables.values():
        by_name = {value.metric: value for value in row}
        one = by_name.get("individual_accuracy") or by_name.get("accuracy")
        pair, all_of_set = by_name.get("pair_accuracy"), by_name.get("set_accuracy")
        for part, whole in ((one, pair), (pair, all_of_set)):
            # 0.0016: three times half of a tenth of a percent
            if part and whole:
                least = 2 * part.number - 1 - 0.0016
                if not least <= whole.number <= part.number + 0.001:
                    impossible.add(whole)
    listed_pairs = [value for value in impossible if listed("pairs", value, *fields[2:5])]
    assert listed_pairs == [*impossible]
    assert {value.value for value in impossible} == {5.9}


def test_a_group_score_is_at_most_the_text_and_the_image_score():
    fields = ("source", "benchmark", "subset", "model")
    rows = [v for v in VALUES if v.metric in ("text_score", "image_score", "group_score")]
    for key, row in by_key(rows, *fields, "table").items():
        if len(row) == 3:
            by_name = {value.metric: value.number for value in row}
            text, image = by_name["text_score"], by_name["image_score"]
            assert max(0, text + image - 1) - 1e-5 <= by_name["group_score"], key
            assert by_name["group_score"] <= min(text, image), key


def test_more_candidates_are_never_worse():
    directions = defaultdict(list)
    for value in VALUES:
        if value.source == "vl_compo" and value.benchmark.endswith("_retrieval"):
            direction, _, k = value.metric.rpartition("_r")
            directions[value.model, value.benchmark, direction].append((int(k), value.value))
    assert len(directions) == 202 * 2 * 2
    for found in directions.values():
        recalls = [recall for _, recall in sorted(found)]
        assert recalls == sorted(recalls)


def test_tables_agree_but_where_it_is_listed():
    """Papers on one cell differ by rounding alone; the same with protocols, if not listed."""
    papers = [
        value
        for value in PRINTED
        if value.model and published.sources()[value.source]["kind"] == "paper"
    ]
    disagreeing, protocols = set(), set()
    for values in by_key([v for v in papers if v.protocol != "example"], *NAME).values():
        for first in values:
            for other in values:
                if first.protocol != other.protocol:
                    protocols |= {first}
                    continue
                coarse = max(
                    0.5 * 10.0**-v.decimals * published.SCALES[v.unit] for v in (first, other)
                )
                if abs(first.number - other.number) > coarse + 1e-9:
                    disagreeing |= {first}
    assert all(listed("tables", value, *NAME) for value in disagreeing)
    found = {tuple(getattr(value, field) for field in NAME) for value in disagreeing}
    assert len(found) == len([row for row in CONFLICTS if row["kind"] == "tables"])
    assert protocols
    for value in protocols - {v for v in protocols if v.model == "chance"}:
        assert listed("protocol", value, *NAME), value


def test_where_the_values_are_not_says_a_source():
    for row in published.rows("missing.csv"):
        assert row["source"] in published.sources()
        assert row["missing"]


def test_an_installed_package_has_the_files_that_are_read():
    """setuptools installs no file but *.py that pyproject.toml does not name."""
    root = Path(__file__).resolve().parents[2]
    named = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]
    # of `launch` the images' files stay behind
    for package in named["package-data"].keys() - {"vlc_jax.launch"}:
        folder, patterns = root / package.replace(".", "/"), named["package-data"][package]
        for file in (path for path in folder.iterdir() if path.is_file()):
            is_named = any(file.match(pattern) for pattern in (*patterns, "*.py"))
            assert is_named, file
