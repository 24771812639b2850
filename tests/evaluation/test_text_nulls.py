"""Blind score, ceiling and grounded accuracy beside the metrics of an evaluation."""

import json

import numpy as np
import pytest
from PIL import Image

import vlc_jax
from tests.support import helpers
from vlc_jax import evaluators
from vlc_jax.evaluation import text_nulls
from vlc_jax.input_pipeline.benchmarks import READERS, nulls, protocol_of
from vlc_jax.input_pipeline.case import Benchmark
from vlc_jax.report import cases, read_workdir
from vlc_jax.setup import data
from vlc_jax.tools import scores

N = 200
NOUNS = ("cup", "dog", "tree", "lamp")


def giveaway(n):
    """Three negatives of four end in a sign that no caption has; the others exchange two nouns."""
    a, b = NOUNS[n % 4], NOUNS[(n + 1 + n // 4 % 3) % 4]
    caption = f"a {a} beside a {b} {n // 4}"
    return caption, f"{caption} !" if n % 4 else f"a {b} beside a {a} {n // 4}"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """SugarCrepe's form: swap_att gives three of four cases away, swap_obj none."""
    folder = tmp_path_factory.mktemp("sets")
    (folder / "sugar_crepe").mkdir()
    (folder / "coco/val2017").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(folder / "coco/val2017/0.jpg")
    swaps = [giveaway(4 * n) for n in range(N // 2)]
    # each caption of a pair is right once
    both = [pair[:: 1 - 2 * (n % 2)] for n, pair in enumerate(np.repeat(swaps, 2, 0).tolist())]
    for subset, pairs in {"swap_att": [giveaway(n) for n in range(N)], "swap_obj": both}.items():
        rows = {
            str(n): {"filename": f"{n}.jpg", "caption": c, "negative_caption": wrong}
            for n, (c, wrong) in enumerate(pairs)
        }
        (folder / f"sugar_crepe/{subset}.json").write_text(json.dumps(rows))
    return folder


OPTIONS = {"subsets": ("swap_att", "swap_obj")}


def setup(root, **options):
    given = {"root": str(root), **OPTIONS, **options}
    return data.benchmark("benchmark", "sugarcrepe", given)


def evaluate(root, workdir, right, **options):
    """The result of a model that is right by `right(caption, negative)`."""
    cases = READERS["sugarcrepe"](root=root, **OPTIONS).cases
    count = options.get("count", N)
    kept = [case for case in cases if int(case.id.split("_")[2]) < count]
    table = {case.id: [float(right(*case.captions)), 0.5] for case in kept}
    results = vlc_jax.evaluate(
        table, "sugarcrepe", root=root, workdir=workdir, examples=0, **OPTIONS, **options
    )
    return results["sugarcrepe"]


def rows_of(workdir):
    return helpers.rows(workdir / "evals/sugarcrepe/0.scores.jsonl")


def is_without_sign(caption, negative):
    return negative.endswith("!")


@pytest.fixture(scope="module")
def reader_of_signs(root, tmp_path_factory):
    folder = tmp_path_factory.mktemp("signs")
    return folder, evaluate(root, folder, is_without_sign)


def test_a_model_that_knows_what_the_texts_give_away_has_no_grounded_accuracy(reader_of_signs):
    folder, result = reader_of_signs
    metrics = result["metrics"]
    of_subset = metrics["accuracy/subset=swap_att"]
    assert of_subset["value"] == 0.75
    assert of_subset["blind"] >= 0.75
    assert metrics["grounded_accuracy"]["value"] == 0
    assert result["summary"] == ["accuracy", "grounded_accuracy"]
    # the cases that the classifier does not get right, ties included
    missed = [row for row in rows_of(folder) if row["blind"] < 1]
    assert metrics["grounded_accuracy"]["count"] == len(missed) > 0
    assert all(not row["captions"][1].endswith("!") for row in missed)


def test_a_model_that_sees_has_the_same_accuracy_on_grounded_cases(root, tmp_path):
    metrics = evaluate(root, tmp_path, lambda *_: True)["metrics"]
    grounded = metrics["grounded_accuracy"]
    assert metrics["accuracy"]["value"] == grounded["value"] == 1
    assert grounded["count"] < metrics["accuracy"]["count"]


def test_tables_leave_grounded_accuracy_out_where_blind_is_at_chance(root, tmp_path):
    result = vlc_jax.evaluate(
        {f"swap_obj_{n:06d}_{n}.jpg": [1.0, 0.0] for n in range(N)},
        {"sugarcrepe": {"subsets": ("swap_obj",)}},
        root=root, workdir=tmp_path, examples=0,
    )["sugarcrepe"]  # fmt: skip
    assert result["summary"] == ["accuracy"]
    assert result["metrics"]["grounded_accuracy"]["value"] == 1


def test_nulls_beside_metrics_are_those_of_the_set(reader_of_signs, root):
    metrics = reader_of_signs[1]["metrics"]
    for row in nulls.benchmark_nulls(READERS["sugarcrepe"](root=root, **OPTIONS), "choice"):
        name = row.metric + (f"/subset={row.subset}" if row.subset else "")
        assert metrics[name]["blind"] == pytest.approx(row.blind)
        assert metrics[name]["ceiling"] == pytest.approx(row.ceiling)


@pytest.mark.parametrize("options", [{"tie": "half"}, {"count": 60}, {"tie": "half", "count": 7}])
def test_neither_ties_nor_count_change_which_cases_are_grounded(
    reader_of_signs, root, tmp_path, options
):
    whole = {row["id"]: (row["blind"], row["ceiling"]) for row in rows_of(reader_of_signs[0])}
    evaluate(root, tmp_path, lambda *_: 0.5, **options)
    part = rows_of(tmp_path)
    assert len(part) == 2 * options.get("count", N)
    assert all((row["blind"], row["ceiling"]) == whole[row["id"]] for row in part)


def test_nulls_are_kept_beside_features_and_a_damaged_file_is_computed_again(
    root, tmp_path, monkeypatch
):
    chosen = setup(root)
    benchmark = chosen.read()
    first = text_nulls.case_credits(benchmark, chosen, tmp_path / "nulls")
    (file,) = (tmp_path / "nulls").iterdir()
    monkeypatch.setattr(nulls, "case_credits", None)
    again = text_nulls.case_credits(benchmark, chosen, tmp_path / "nulls")
    monkeypatch.undo()
    for name in ("blind", "ceiling"):
        assert np.array_equal(again["accuracy"][name], first["accuracy"][name])
    file.write_bytes(file.read_bytes()[:-20])
    again = text_nulls.case_credits(benchmark, chosen, tmp_path / "nulls")
    assert np.array_equal(again["accuracy"]["blind"], first["accuracy"]["blind"])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("scenes_retrieval", {"count": 60}),  # no wrong texts
        ("scenes_attribute_swap", {"count": 60, "protocol": "keywords"}),
        ("scenes_attribute_swap", {"count": text_nulls.FEWEST - 1}),
    ],
)
def test_no_nulls_where_no_texts_are_compared(name, options):
    chosen = data.benchmark("benchmark", name, options)
    benchmark = READERS[name](**chosen.reader_options)
    assert text_nulls.case_credits(benchmark, chosen) == {}


def test_texts_of_pairs_cancel(monkeypatch):
    """No classifier is fitted to pairs; a bag of words cannot tell swapped words."""
    monkeypatch.setattr("vlc_jax.input_pipeline.hard_texts.blind.option_scores", None)
    name = next(n for n in READERS if n.startswith("scenes") and protocol_of(n) == "pairs")
    chosen = data.benchmark("benchmark", name, {"count": 60})
    credits = text_nulls.case_credits(chosen.read(), chosen)
    assert list(credits["pair_accuracy"]) == ["ceiling"]


def test_tables_of_scores_have_nulls_of_every_case(reader_of_signs, tmp_path):
    folder, result = reader_of_signs
    scores.write([folder], tmp_path / "s.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    metrics = result["metrics"]["accuracy"]
    assert {row["chance"] for row in rows} == {0.5}
    assert {row["human"] for row in rows} == {None}
    for name in ("blind", "ceiling"):
        assert np.mean([row[name] for row in rows]) == pytest.approx(metrics[name])


def test_the_page_of_cases_filters_by_the_classifier(reader_of_signs):
    folder, result = reader_of_signs
    data = cases.collect([read_workdir.read(folder)])
    wrong = data["groups"].index("blind wrong or tied")
    count = sum(wrong in case[3] for case in data["cases"])
    assert count == result["metrics"]["grounded_accuracy"]["count"]


def test_pairs_have_a_ceiling_in_each_of_their_metrics_and_triplets_grounded_ones(tmp_path):
    sets = {"scenes_whatsup": {"count": 60}, "scenes_swap": {"count": 100}}
    results = {}
    for name, options in sets.items():
        size = 4 if name == "scenes_whatsup" else 3
        table = {case.id: [1.0] * size for case in READERS[name](**options).cases}
        made = vlc_jax.evaluate(table, {name: options}, workdir=tmp_path / name, examples=0)
        results[name] = made[name]["metrics"]
    pairs, triplets = results.values()
    for metric in ("pair_accuracy", "text_score", "individual_accuracy", "group_score"):
        assert "blind" not in pairs[metric]
        assert pairs[metric]["ceiling"] == 1
    assert not any(metric.startswith("grounded") for metric in pairs)
    for metric in ("augmented_accuracy", "original_accuracy"):
        assert triplets[metric]["ceiling"] <= 0.5  # exchanged words are the same bag
        count = triplets[f"grounded_{metric}"]["count"]
        assert round(100 * (1 - triplets[metric]["blind"])) <= count <= 100


def test_of_several_means_of_one_metric_the_first_has_its_grounded_form_in_tables():
    names = ("accuracy_macro", "accuracy", "accuracy_phenomena")
    estimate = evaluators.Estimate(0.9, 400, 0.5, 0.87, 0.93)
    metrics = dict.fromkeys([*names, *(f"grounded_{name}" for name in names)], estimate)
    nulls_of = {name: {"blind": 0.8} for name in names}
    result = evaluators.EvalResult(metrics, [], {}, {"accuracy": None}, nulls_of)
    benchmark = Benchmark("b", [], "1", summary=names)
    written = evaluators.to_json("choice", benchmark, result, reader="b")
    assert written["summary"] == ["accuracy_macro", "grounded_accuracy_macro", *names[1:]]
