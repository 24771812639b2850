"""Nulls of evaluation sets: what their texts give away without the images."""

import csv
import json
import math
import re
import shutil

import numpy as np
import pytest

from tests.support import helpers, sets
from vlc_jax.input_pipeline.benchmarks import PUBLISHED, READERS, nulls, protocol_of
from vlc_jax.input_pipeline.benchmarks.imagecode import imagecode
from vlc_jax.input_pipeline.benchmarks.sugarcrepe import sugarcrepe
from vlc_jax.input_pipeline.benchmarks.valse import valse
from vlc_jax.input_pipeline.case import Average, Benchmark, Case
from vlc_jax.input_pipeline.commands.benchmarks import main
from vlc_jax.input_pipeline.hard_texts import blind

# An audit of the same files with another linear classifier of the same n-grams: cases, and in
# percent shorter (of texts without white space at their ends), ceiling, blind (of 6,000 cases where
# there are more).
AUDIT = """
sugarcrepe add_att 692 99.7 100 99.7
sugarcrepe add_obj 2062 99.0 100 99.2
sugarcrepe replace_rel 1406 65.4 100 83.5
sugarcrepe replace_obj 1652 52.0 100 79.4
sugarcrepe replace_att 788 55.8 100 72.2
sugarcrepe swap_att 666 55.0 69.4 58.7
sugarcrepe swap_obj 245 59.4 66.5 53.1
replace attributes 10575 63.7 100 93.0
replace relations 16868 71.5 100 98.1
vl_checklist Relation/spatial/vg 30650 92.1 100 98.1
vl_checklist Relation/action/vg 12733 38.0 99.9 98.4
vl_checklist Attribute/material/vg 2470 54.9 100 96.6
vl_checklist Attribute/size/vg 2695 54.4 99.9 95.1
vl_checklist Attribute/state/vg 941 46.9 99.8 95.3
vl_checklist Attribute/color/vg 11569 61.4 99.7 87.4
vl_checklist Attribute/action/vg 1892 59.0 99.9 93.0
valse existence 505 49.3 100 86.5
valse actant-swap 949 54.1 85.7 90.3
valse plurals 851 54.3 100 70.5
valse foil-it 943 50.2 100 75.9
valse counting-adversarial 691 33.5 100 100
valse action-replacement 648 46.6 100 64.7
valse relations 535 53.3 100 63.4
valse counting-hard 868 50.6 100 58.1
valse counting-small-quant 900 53.4 100 59.0
valse coreference-standard 708 45.1 100 62.6
"""


def benchmark(*captions, group=None, name="mine", averages=None, **meta):
    cases = tuple(Case(str(n), ("image",), texts, group, meta) for n, texts in enumerate(captions))
    return Benchmark(name, cases, "1", averages=averages or {})


def only(rows, metric="accuracy", subset=""):
    (row,) = [row for row in rows if (row.metric, row.subset) == (metric, subset)]
    return row


def shares(row):
    return tuple(round(getattr(row, name), 6) for name in nulls.SHARES)


@pytest.fixture(scope="module")
def frozen_rows():
    return {(row.benchmark, row.subset, row.metric): row
            for rows in nulls.table().values() for row in rows}  # fmt: skip


@pytest.mark.parametrize("line", AUDIT.strip().splitlines())
def test_the_table_agrees_with_an_audit_by_another_classifier(line, frozen_rows):
    name, subset, *numbers = line.split()
    cases, shorter, ceiling, found = map(float, numbers)
    metric = "original_accuracy" if name == "replace" else "accuracy"
    row = frozen_rows[name, subset, metric]
    assert row.cases == cases
    assert 100 * row.shorter == pytest.approx(shorter, abs=0.051)
    assert 100 * row.ceiling == pytest.approx(ceiling, abs=0.051)
    error = 100 * math.sqrt(found * (100 - found)) / 100 / math.sqrt(cases)
    difference = 100 * row.blind - found
    assert abs(difference) < max(1, 2 * error)


def test_white_space_at_the_ends_of_texts_changes_no_null():
    texts = [(f"a dog {n}", f"a cat {n}!") for n in range(60)]
    plain, spaced = (
        only(nulls.benchmark_nulls(benchmark(*rows), "choice"))
        for rows in (texts, [(right, f" {wrong}\n") for right, wrong in texts])
    )
    assert shares(plain) == shares(spaced)


def test_the_docs_have_a_row_for_each_of_them(frozen_rows):
    page = (helpers.ROOT / "docs" / "benchmarks.md").read_text()
    named = set()
    for name, subset, *numbers in re.findall(
        r"^\| `(\w+)` (\S+)" + r" \| ([\d.]+)" * 4, page, re.M
    ):
        metric = "original_accuracy" if name == "replace" else "accuracy"
        row = frozen_rows[name, subset, metric]
        shown = (row.chance, row.shorter, row.ceiling, row.blind)
        assert numbers == [f"{100 * share:.1f}" for share in shown], subset
        named.add((name, subset))
    with_texts = {key[:2] for key, row in frozen_rows.items() if row.blind != row.chance and key[1]}
    assert named == with_texts
    for name in ("cola", "mmvp", "coco_counterfactuals"):
        assert f"{100 * frozen_rows[name, '', nulls.FIRST_CAPTION].blind:.1f} % of" in page


@pytest.mark.parametrize(("subset", "share"), [("swap_att", 61.3), ("swap_obj", 66.9)])
def test_swaps_of_the_same_words_are_those_that_mteb_counts(subset, share, frozen_rows):
    """embeddings-benchmark/mteb#5314; a case of equal bags is half right at best."""
    assert 200 * (1 - frozen_rows["sugarcrepe", subset, "accuracy"].ceiling) == pytest.approx(
        share, abs=0.051
    )


def test_neither_count_nor_options_change_the_null_of_a_set(real_data):
    def rows(reader, **options):
        return nulls.benchmark_nulls(reader(real_data, **options), "choice")

    whole = rows(sugarcrepe)
    assert only(whole).cases == 7_511
    assert rows(sugarcrepe, count=3) == whole
    part = rows(sugarcrepe, count=2, subsets=("swap_att",))
    assert only(part, subset="swap_att") == only(whole, subset="swap_att")
    piece = {"subsets": ("relations",)}
    assert rows(valse, **piece) == rows(valse, validated=False, **piece)
    assert only(rows(imagecode, count=1)).cases > 1


def test_a_changed_file_has_no_frozen_null(real_data, tmp_path):
    folder = tmp_path / "sugar_crepe"
    folder.mkdir()
    rows = json.loads((real_data / "sugar_crepe" / "swap_obj.json").read_text())
    (folder / "swap_obj.json").write_text(json.dumps(rows))
    sha256 = sugarcrepe(tmp_path, subsets=("swap_obj",)).files["swap_obj"]
    assert sha256 not in {key[2] for key in nulls.table()}


def test_length_and_bag_of_words_are_counted_with_ties_half():
    rows = nulls.benchmark_nulls(
        benchmark(
            ("a dog", "a dog barks"),  # shorter
            ("a cat bites a dog", "a dog bites a cat"),  # the same words and length
            ("the dog's cat", "Dog's the, cat!"),  # the same words, shorter
            ("a big dog", "a dog"),  # longer
        ),
        "choice",
    )
    assert shares(only(rows))[:4] == (0.5, (1 + 0.5 + 1) / 4, (0.5 + 1) / 4, (1 + 1 + 2 * 0.5) / 4)


def test_a_tie_of_several_options_shares_the_credit():
    options = ("a b c", "c b a", "b c a", "a b d")
    row = only(nulls.benchmark_nulls(benchmark(options, options), "choice"))
    assert shares(row)[:4] == pytest.approx((1 / 4, 1 / 4, 1 / 4, 1 / 3), abs=1e-6)


def test_options_that_are_all_equal_have_the_nulls_of_chance():
    """So does a constant scorer: no null depends on how a run breaks its ties."""
    equal = [("a cup",) * 2] * 12
    assert shares(only(nulls.benchmark_nulls(benchmark(*equal), "choice"))) == (0.5,) * 5
    rows = nulls.benchmark_nulls(benchmark(*equal, positive="a cup"), "triplet")
    assert shares(only(rows, "augmented_accuracy")) == (pytest.approx(1 / 3, abs=1e-6),) * 5
    pairs = nulls.benchmark_nulls(benchmark(*equal), "pairs")
    for metric, chance in (("individual_accuracy", 1 / 2), ("pair_accuracy", 1 / 4),
                           ("group_score", 1 / 6)):  # fmt: skip
        assert shares(only(pairs, metric)) == (pytest.approx(chance, abs=1e-6),) * 5


@pytest.mark.parametrize(
    ("positive", "shorter", "longer", "ceiling"),
    [
        ("a cup red", 1, 0, 1),  # both shorter than "a green cup"
        ("a crimson cup", 0, 0, 1),  # the negative is between them
        ("cup a green", 1 / 2, 0, 1 / 2),  # as long as the negative, and its words
    ],
)
def test_of_a_triplet_the_negative_must_be_the_worst(positive, shorter, longer, ceiling):
    rows = nulls.benchmark_nulls(
        benchmark(("a red cup", "a green cup"), positive=positive), "triplet"
    )
    row = only(rows, "augmented_accuracy")
    assert (row.shorter, row.longer, row.ceiling) == (shorter, longer, ceiling)
    assert only(rows, "original_accuracy").shorter == 1


def test_text_alone_cancels_in_pairs():
    pairs = [(f"{n} cats", f"{n} cats not") for n in range(10, 40)]
    rows = nulls.benchmark_nulls(benchmark(*pairs), "pairs")
    assert only(rows, "individual_accuracy").blind == 0.5
    assert only(rows, "pair_accuracy").blind == only(rows, "group_score").blind == 0
    assert only(rows, "pair_accuracy").ceiling == 1
    assert only(rows, nulls.FIRST_CAPTION).blind == 1


def test_images_as_options_are_at_chance_beside_texts_as_options():
    cases = (Case("0", ("image",), ("a", "a b")), Case("1", ("right", "wrong", "wrong"), ("a",)))
    row = only(nulls.benchmark_nulls(Benchmark("mine", cases, "1"), "choice"))
    assert row.shorter == pytest.approx((1 + 1 / 3) / 2)
    assert row.ceiling == 1


def test_a_set_asking_texts_both_ways_is_near_chance_not_below():
    """Folds by image would be fitted on the opposite of their cases."""
    pairs = [(f"{a} under {b}", f"{b} under {a}") for a in "abcdefgh" for b in "ijklmnop"]
    both = benchmark(*pairs, *[pair[::-1] for pair in pairs])
    assert only(nulls.benchmark_nulls(both, "choice")).blind == 0.5


WAYS = ("left of", "right of", "on", "under")


@pytest.mark.parametrize("group", [lambda n: {"subset": n // 2}, lambda n: WAYS[n]])
def test_a_subset_picked_by_the_right_caption_tells_nothing(group):
    """What'sUp's four ways; within "left or right" half of the answers could be guessed."""
    cases = tuple(
        Case(f"{a}{n}", ("image",), tuple(f"a {a} {way} a cup" for way in ways), group(n))
        for a in "bcdefghijkl" for n in range(4)
        for ways in [(WAYS[n], *(way for way in WAYS if way != WAYS[n]))]
    )  # fmt: skip
    whole = Benchmark("mine", cases, "1")
    (row,) = nulls.benchmark_nulls(whole, "choice")
    assert (row.subset, row.cases) == ("", 44)
    assert shares(row) == (0.25, 0.25, 0.25, 1, 0.25)
    assert {*nulls.case_credits(whole, "choice")["accuracy"]["blind"]} == {0.25}


def test_totals_are_over_cases_and_the_mean_over_subsets():
    cases = (
        *(Case(f"a{n}", ("i",), ("x", "x y"), {"subset": "a"}) for n in range(3)),
        Case("b", ("i",), ("x y", "x"), {"subset": "b"}),
    )
    averages = {"macro": Average(("subset",))}
    rows = nulls.benchmark_nulls(Benchmark("mine", cases, "1", averages=averages), "choice")
    assert only(rows).shorter == 0.75
    assert only(rows, "accuracy_macro").shorter == 0.5
    assert [row.subset for row in rows] == ["", "", "a", "b"]


def test_other_protocols_have_none():
    assert nulls.benchmark_nulls(benchmark(("a",)), "retrieval") == []


def test_blind_credit_of_cases_agrees_with_the_null():
    captions = [(f"cup {n}", f"cup {n} .") for n in range(30)]
    cases = benchmark(*captions)
    credit = {name: of["blind"] for name, of in nulls.case_credits(cases, "choice").items()}
    assert credit["accuracy"].mean() == only(nulls.benchmark_nulls(cases, "choice")).blind == 1
    assert nulls.case_credits(cases, "zeroshot") == {}


def test_every_set_has_nulls_from_its_texts(all_sets, monkeypatch):
    draw = np.random.default_rng(0)
    scores = lambda options, _: [draw.normal(size=len(texts)) for texts in options]  # noqa: E731
    monkeypatch.setattr(blind, "option_scores", scores)
    refused = set()
    for name, (read, origin) in PUBLISHED.items():
        cases = (whole := read(**sets.options(name, all_sets))).cases
        rows = nulls.benchmark_nulls(whole, protocol_of(name))
        assert bool(rows) == (origin.protocol in nulls.METRICS)
        for row in rows:
            assert all(0 <= share <= 1 for share in shares(row))
            assert row.ceiling >= max(row.chance - 1e-9, 0) or row.metric != "accuracy"
            assert len(row.sha256) == 64
        if rows and nulls.gives_away(cases):
            refused.add(name)
            assert {row.subset for row in rows} == {""}
        if rows and any(len(case.captions) > 1 for case in cases):
            assert nulls.gives_away([*both_ways(cases, lambda options, place: place)])
            assert not nulls.gives_away([*both_ways(cases, lambda options, place: options[0])])
    assert refused == {"whatsup_a", "whatsup_b"}


def both_ways(cases, group):
    """Each text of a case as the right one, twice, with a group of all texts and its place."""
    for options in {*[tuple(sorted({*case.captions})) for case in cases]}:
        for place, text in enumerate(options):
            texts = (text, *(other for other in options if other != text))
            yield from [Case("", (), texts, str(group(options, place)))] * 2


def test_each_subset_has_the_hash_of_its_own_file(all_sets):
    hashes = sugarcrepe(all_sets).files
    assert len({*hashes.values()}) == len(hashes) == 7 + 1
    assert sugarcrepe(all_sets, count=1).files == hashes
    replace = PUBLISHED["replace"][0](all_sets).files
    assert {*replace.values()} == {replace[""]}  # its files are read together


def test_computed_nulls_are_kept_for_the_same_texts(all_sets, tmp_path, capsys, monkeypatch):
    (tmp_path / "sugar_crepe").symlink_to(all_sets / "sugar_crepe")
    arguments = ["--root", str(tmp_path), "--nulls", "--sets", "sugarcrepe", "cola"]
    assert main(arguments) == 0
    first = capsys.readouterr().out
    assert "cola: not there: there is no folder" in first
    monkeypatch.setattr(blind, "option_scores", lambda *_: pytest.fail("computed twice"))
    assert main(arguments) == 0
    assert capsys.readouterr().out == first
    (tmp_path / nulls.CACHE).write_text("[1")
    monkeypatch.undo()
    assert main(arguments) == 0
    assert capsys.readouterr().out == first


def test_the_command_prints_and_writes_a_row_per_subset(all_sets, tmp_path, capsys):
    (tmp_path / "valse").symlink_to(all_sets / "valse")
    (tmp_path / "winoground").symlink_to(all_sets / "winoground")
    out = tmp_path / "nulls.csv"
    arguments = ["--root", str(tmp_path), "--nulls", "--sets", "valse,winoground"]
    assert main([*arguments, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "actant-swap" in printed
    assert "winoground: text bias cancels by design: blind 50.0 % individual accuracy" in printed
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [*rows[0]] == [*nulls.Null._fields]
    assert len(rows) == 11 + len(nulls.METRICS["pairs"])


def test_a_set_that_is_cut_short_or_damaged_is_said_to_be_so(all_sets, tmp_path, capsys):
    shutil.copytree(all_sets / "sugar_crepe", tmp_path / "sugar_crepe")
    out, path = tmp_path / "nulls.csv", tmp_path / "sugar_crepe" / "swap_obj.json"
    out.write_text("earlier\n")
    arguments = ["--root", str(tmp_path), "--nulls", "--sets", "sugarcrepe"]
    assert main(arguments) == 0
    assert "sugarcrepe: swap_obj: 2 cases; published are 245" in capsys.readouterr().out
    path.write_text('{"0": ')
    assert main([*arguments, "--out", str(out)]) == 1
    printed = capsys.readouterr().out
    assert f"sugarcrepe: cannot be read: {path} is not JSON" in printed
    assert f"{out} is not written" in printed
    assert out.read_text() == "earlier\n"


@pytest.mark.parametrize(
    ("captions", "images"), [(("a red dog", "a fat dog"), ("x",)), (("a red dog",), ("x", "y"))]
)
def test_only_options_that_are_images_are_said_to_be_images(
    captions, images, tmp_path, capsys, monkeypatch
):
    """Of a single case with captions of one length all nulls are at chance, too."""
    cases = (Case("0", images, captions),)
    monkeypatch.setitem(READERS, "sugarcrepe", lambda **_: Benchmark("sugarcrepe", cases, "1"))
    assert main(["--root", str(tmp_path), "--nulls", "--sets", "sugarcrepe"]) == 0
    said = "the options are images" in capsys.readouterr().out
    assert said == (len(images) > 1)


def test_a_set_without_nulls_and_a_reader_that_fails_are_lines(tmp_path, capsys, monkeypatch):
    read = READERS["scenes_retrieval"]
    monkeypatch.setitem(READERS, "scenes_retrieval", lambda: read(count=4))
    monkeypatch.setitem(READERS, "cola", lambda **_: 1 / 0)
    assert main(["--root", str(tmp_path), "--nulls", "--sets", "scenes_retrieval", "cola"]) == 1
    printed = capsys.readouterr().out
    assert "scenes_retrieval: retrieval has no wrong texts, so no nulls" in printed
    assert "cola: cannot be read: its reader failed, which is an error of vlc_jax: Zero" in printed


def test_sets_of_the_scenes_are_known_to_it(tmp_path, capsys, monkeypatch):
    read = READERS["scenes_attribute_swap"]
    monkeypatch.setitem(READERS, "scenes_attribute_swap", lambda: read(count=40))
    assert main(["--root", str(tmp_path), "--nulls", "--sets", "scenes_attribute_swap"]) == 0
    line = next(x for x in capsys.readouterr().out.splitlines() if "scenes_attribute" in x)
    assert line.split()[:6] == ["scenes_attribute_swap", "accuracy", "40", "50.0", "50.0", "50.0"]


def test_no_text_of_seen_pairs_gives_the_held_out_ones_away():
    """Neither a reader of seen pairs nor one of other held-out cases finds the caption."""
    seen, held = (READERS[f"scenes_{name}"](count=400).cases
                  for name in ("attribute_swap", "held_attribute_swap"))  # fmt: skip
    texts = [text for case in (*seen, *held) for text in case.captions]
    features = blind.Features(texts)(texts)
    weights = blind.fit(features, np.arange(0, 800, 2), np.full(400, 2))
    scores = features[800:] @ weights
    assert 0.43 < (scores[::2] > scores[1::2]).mean() < 0.57
    scores = blind.option_scores([case.captions for case in held], range(400))
    assert 0.4 < blind.credit(scores).mean() < 0.6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "x.csv"], "--out x.csv belongs to --nulls: add --nulls"),
        (["--nulls", "--features", "x.npy"], "--features takes X.npy and X.jsonl as vlc-jax embed"),
        (["--nulls", "--out", "."], "--out . is a folder; name a file"),
        (["--nulls", "--out", "no/x.csv"], "there is no folder no; make it"),
        (["--nulls", "--sets", "scenes_swop"], "unknown published set 'scenes_swop'"),
        (["--sets", "scenes_swap"], "unknown published set 'scenes_swap'"),
    ],
)
def test_wrong_requests_for_nulls_are_one_line(arguments, message, tmp_path, capsys):
    assert main(["--root", str(tmp_path), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_permuted_captions_and_negatives_are_at_chance(real_data):
    """No label reaches the features: with labels drawn anew nothing is left of swap_att's 65 %."""
    cases = sugarcrepe(real_data, subsets=("swap_att",)).cases
    draw = np.random.default_rng(0).random(len(cases)) < 0.5
    options = [case.captions[::-1] if swap else case.captions
               for case, swap in zip(cases, draw, strict=True)]  # fmt: skip
    images = [case.meta["record"] for case in cases]
    assert 0.44 < blind.credit(blind.option_scores(options, images)).mean() < 0.56
