"""The page of all published values: intervals, nulls, differences, and what the page holds."""

import json
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.report.pages import assert_alone
from vlc_jax.evaluators import stats
from vlc_jax.input_pipeline import benchmarks
from vlc_jax.input_pipeline.benchmarks import nulls
from vlc_jax.report import __main__ as command
from vlc_jax.report import judged, page, published, published_page

VALUES = published.values()
DIFFERENCES = judged.differences()


def value_of(benchmark, metric, subset="", model="m", number=0.7, count=100, protocol="choice"):
    return published.Value(
        benchmark, subset, metric, model, number, "fraction", protocol, count, "labclip", "", "", 3
    )


@pytest.fixture
def exact(monkeypatch):
    """Values that were printed with all their digits."""
    monkeypatch.setattr(judged, "_decimals", lambda: {("labclip", "", "fraction"): 15})


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return published_page.write(tmp_path_factory.mktemp("page") / "published.html")


@pytest.mark.parametrize("count", [1, 15, 666, 27443.5])
@pytest.mark.parametrize("value", [0.0, 0.07, 0.5, 1.0])
def test_intervals_are_those_of_our_results(value, count):
    assert judged.wilson(value, count) == pytest.approx(stats.wilson(value, count), abs=1e-12)


def test_an_interval_holds_those_of_all_numbers_that_are_printed_alike():
    value = next(v for v in VALUES if (v.model, v.benchmark) == ("NegCLIP", "coco_order"))
    assert (value.number, value.decimals) == (0.86, 2)
    low, high = judged.interval(value)
    for number in (0.855, 0.86, 0.865):
        of_number = stats.wilson(number, 5000)
        assert low <= of_number[0] < of_number[1] <= high
    assert stats.wilson(0.85, 5000)[0] < low


def test_cases_that_share_images_count_less():
    alone = value_of("mine", "accuracy", count=2062)
    shared = value_of("sugarcrepe", "accuracy", "add_obj", count=2062)
    widths = [high - low for low, high in map(judged.interval, (alone, shared))]
    assert widths[1] / widths[0] == pytest.approx((2062 / 758) ** 0.5, rel=0.02)
    captions, images = (
        value_of("coco_retrieval", f"{name}_r1", count=count, protocol="retrieval")
        for name, count in (("text_to_image", 25010), ("image_to_text", 5000))
    )
    assert [judged.effective_count(each) for each in (captions, images)] == [5000, 5000]


def test_no_interval_without_cases_or_for_what_is_no_share():
    assert judged.interval(value_of("mine", "accuracy", count=None)) is None
    assert judged.interval(value_of("mine", "mean_accuracy", protocol="mean")) is None
    assert judged.interval(value_of("mine", "roc_auc")) is None


def test_a_difference_has_the_interval_that_newcombe_prints(exact):
    # Statistics in Medicine 17 (1998), table II, method 10: 56 of 70 and 48 of 80
    first = value_of("mine", "accuracy", number=56 / 70, count=70)
    second = value_of("mine", "accuracy", number=48 / 80, count=80)
    found = judged._difference(first, second)
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)
    back = judged._difference(second, first)
    assert (back.low, back.high) == pytest.approx((-found.high, -found.low))
    assert (found.outcome, back.outcome) == ("better", "worse")


def test_less_brittleness_is_better(exact):
    more, less = (
        value_of("swap", "brittleness", number=number, count=1000) for number in (0.3, 0.1)
    )
    assert judged._difference(less, more).outcome == "better"
    assert judged._difference(more, less).outcome == "worse"
    assert judged._difference(more, more).outcome == "not resolved"


def test_a_null_of_a_mean_over_subsets_is_the_mean_of_their_nulls():
    table = {row[:3]: row for rows in nulls.table().values() for row in rows}
    both = [table["replace", name, "original_accuracy"] for name in ("attributes", "relations")]
    value = value_of("replace", "original_accuracy_macro", protocol="triplet")
    blind = sum(row.blind for row in both) / 2
    assert judged.null(value, "blind") == pytest.approx(blind)
    # the share of all cases is another mean, and has no row
    assert judged.null(value._replace(metric="original_accuracy"), "blind") is None
    assert judged.null(value._replace(protocol="generation"), "blind") is None


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0.99, "above"), (0.86, "blind"), (0.6, "below blind"), (0.5, "at"), (0.2, "below")],
)
def test_a_value_is_judged_against_chance_and_blind(number, expected):
    # blind: 84.99 %
    value = value_of("sugarcrepe", "accuracy", "replace_rel", number=number, count=1406)
    assert judged.outcome(judged.row(value)) == expected


def test_pairs_and_options_that_are_images_have_no_blind_score_to_reach():
    pair = value_of("mmvp", "text_score", protocol="pairs")
    images = value_of("imagecode", "accuracy", "videos")
    assert [judged.null(each, "blind") for each in (pair, images)] == [0, 0.1]
    assert not any(judged.has_blind(judged.row(each)) for each in (pair, images))


def test_every_frozen_subset_with_published_values_finds_its_null():
    """A subset that were renamed would lose its null without a word."""
    found = {
        (value.benchmark, value.subset) for value in VALUES
        if judged.null(value, "blind") is not None
    }  # fmt: skip
    # subsets of VL-CheckList are published over several sources
    frozen = {row.benchmark for rows in nulls.table().values() for row in rows}
    published_subsets = {
        (value.benchmark, value.subset) for value in VALUES
        if value.benchmark in frozen - {"vl_checklist"} and value.protocol in nulls.METRICS
        and value.metric in ("accuracy", "text_score", "original_accuracy_macro")
    }  # fmt: skip
    assert published_subsets - found == set()
    assert ("vl_checklist", "relation_spatial") in found


def test_chance_is_known_where_options_are_captions():
    without = {
        value.benchmark for value in VALUES
        if value.protocol in nulls.METRICS and judged.chance(value) is None
        and value.unit in ("percent", "fraction")
    }  # fmt: skip
    assert without == set()


def test_each_listed_claim_compares_two_rows_of_its_table():
    listed = Counter((d.method.source, d.method.table, d.method.model, d.baseline.model)
                     for d in DIFFERENCES)  # fmt: skip
    claims = {tuple(row.values()) for row in published.rows("claims.csv")}
    assert claims == set(listed)
    for each in DIFFERENCES:
        fields = ("benchmark", "subset", "metric", "source", "table", "unit")
        assert [getattr(each.method, f) for f in fields] == [
            getattr(each.baseline, f) for f in fields
        ]


def test_the_page_holds_every_value_and_needs_no_other_file(written):
    text = written.read_text("utf-8")
    assert_alone(text)
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    values = json.loads(data)["values"]
    found = Counter(
        (values["models"][model], values["scores"][score][0], value)
        for model, score, _, value, *_ in values["rows"]
    )
    expected = Counter(
        (value.model, f"{value.benchmark} {value.subset}".strip(), round(100 * value.number, 2))
        for value in VALUES
        if value.unit not in ("cosine", "count") and value.model != "chance"
    )
    assert found == expected


def test_the_page_is_the_same_when_it_is_written_again(written, tmp_path):
    again = tmp_path / "new" / "published.html"
    assert command.main(["--published-page", str(again)]) == 0
    assert again.read_bytes() == written.read_bytes()


def test_the_command_refuses_workdirs_beside_the_page(tmp_path, capsys):
    file = str(tmp_path / "page.html")
    for arguments, words in (
        ([], "give workdirs"),
        ([str(tmp_path), "--published-page", file], "without any workdir"),
        (["--published-page", file, "--published", "CLIP ViT-B/32"], "no other options"),
    ):
        assert command.main(arguments) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert words in error
    assert not Path(file).exists()


def test_the_docs_quote_the_page(written):
    docs = Path(__file__).parents[2] / "docs" / "benchmarks.md"
    text = " ".join(docs.read_text().split())
    found = published_page.summary()
    outcomes, claims = found["outcomes"], found["claims"]
    above, reach, below = (outcomes[name] for name in ("above", "blind", "below blind"))
    rest = outcomes["at"] + outcomes["below"]
    assert f"{outcomes.total():,} values have an interval" in text
    assert (
        f"{above:,} are above blind, {reach:,} reach it, {below:,} are below it, {rest:,} are not"
    ) in text
    better, same, worse, no = (
        claims[name] for name in ("better", "not resolved", "worse", "no interval")
    )
    assert (
        f"{claims.total()} times: {better} values are better, {same} not resolved, {worse} worse, "
        f"{no} lack the number of cases"
    ) in text
    sets = {tuple(row[:2]): row for row in published_page.collect()["sets"]["rows"]}
    models, above_att = sets["sugarcrepe swap_att", "accuracy"][5:7]
    above_obj = sets["sugarcrepe swap_obj", "accuracy"][6]
    swap_obj = [(v, r) for v, r in published_page.of_models() if v.subset == "swap_obj"]
    of_other_seed = len({v.model for v, r in swap_obj if r.blind and r.low > 0.663})
    assert (
        f"Of the {models} models on SugarCrepe, {above_att} are above blind in swap_att and "
        f"{above_obj} in swap_obj ({of_other_seed} above the 66.3 that another seed of the folds "
        "gives), and none in replace_rel, add_obj and add_att"
    ) in text
    assert not any(
        sets[f"sugarcrepe {name}", "accuracy"][6] for name in ("replace_rel", "add_obj", "add_att")
    )
    replace = sets["replace", "original accuracy, mean of groups"]
    assert replace[5] == replace[8]
    assert (
        f"all {replace[5]} models on REPLACE are below it (the best has {replace[9]} in original "
        f"accuracy, the classifier {replace[3]:.1f})"
    ) in text


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_rows_are_sorted_with_those_without_value_last():
    script = f"""
const none = {{textContent: "{{}}"}};
globalThis.document = {{getElementById: () => none, querySelectorAll: () => []}};
{(page.FOLDER / "published_page.js").read_text().replace('"use strict";', "")}
const rows = [[null, "b10"], [9.5, "b9"], [10, ""], [-1, "a"]];
const of = (column, ...how) => order(rows, column, ...how).map((row) => row[column]);
const sorted = [of(0, "percent", true), of(0, "percent", false), of(1, "text", false)];
console.log(JSON.stringify(sorted));
"""
    run = subprocess.run(
        ["node", "-"], input=script, capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(run.stdout) == [
        [10, 9.5, -1, None],
        [-1, 9.5, 10, None],
        ["a", "b9", "b10", ""],
    ]


@pytest.mark.skipif(
    not os.environ.get("VLC_BENCHMARK_DATA"),
    reason="VLC_BENCHMARK_DATA names no folder of annotation files",
)
@pytest.mark.parametrize("name", ["sugarcrepe", "valse", "replace"])
def test_effective_numbers_are_those_of_the_files(name):
    benchmark = benchmarks.READERS[name](root=os.environ["VLC_BENCHMARK_DATA"])
    groups: dict[str, Counter] = {}
    for case in benchmark.cases:
        subset = "" if name == "replace" else nulls.subset_of(case)
        groups.setdefault(subset, Counter())[case.meta["record"]] += 1
    expected = {
        subset: (images.total(), round(images.total() ** 2 / sum(n * n for n in images.values())))
        for subset, images in groups.items()
    }
    rows = {
        row["subset"]: (int(row["cases"]), int(row["effective"]))
        for row in published.rows("effective.csv")
        if row["benchmark"] == name
    }
    # a subset whose cases share no image has no row
    assert rows == {subset: pair for subset, pair in expected.items() if pair[0] > pair[1]}
