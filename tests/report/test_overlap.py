"""Results split by the bindings that training captions hold."""

import json

import numpy as np
import pytest

from tests.report.conftest import write_json
from tests.support import helpers
from vlc_jax.evaluators import stats
from vlc_jax.input_pipeline.hard_texts import bindings
from vlc_jax.report import __main__, overlap, read_workdir

TRAIN = ["a red dog", "a blue cat", "a red cat"]
# caption, wrong captions -> group
CASES = [
    ("a red dog", ["a green dog"], "only caption seen"),
    ("a green dog", ["a red dog"], "only wrong caption seen"),
    ("a red cat", ["a blue cat"], "both seen"),
    ("a pink cat", ["a grey cat"], "neither seen"),
    ("a cat", ["a dog"], "no binding differs"),
]


def workdir(folder, protocol, rows, **result):
    metrics = {"accuracy": stats.proportion(np.ones(4), 0.5)._asdict()}
    head = {"protocol": protocol, "summary": ["accuracy"], "metrics": metrics}
    write_json(folder / "config.json", {"seed": 0})
    write_json(folder / "evals" / "mine" / "5.json", head | result)
    helpers.write_rows(folder / "evals" / "mine" / "5.scores.jsonl", rows)
    return folder


def choice_rows(repeats=7):
    rng = np.random.default_rng(0)
    for number, (caption, wrong, group) in enumerate(CASES * repeats):
        scores = rng.integers(0, 3, 2).astype(float).tolist()
        row = {"id": str(number), "image": str(number // 10), "captions": [caption, *wrong]}
        yield row | {"scores": scores, "correct": scores[0] > scores[1]}, group


@pytest.fixture
def train(tmp_path):
    helpers.write_rows(tmp_path / "train.jsonl", [{"caption": caption} for caption in TRAIN])
    return bindings.Training(tmp_path / "train.jsonl", tagger="words")


def split(path, train):
    results = read_workdir.newest_results(path)
    sentences = overlap.add(read_workdir.Run(path), results, train)
    found = {name: value for name, value in results[0]["metrics"].items() if "overlap" in name}
    assert [*found] == [name for name in results[0]["summary"] if "overlap" in name]
    return {name.partition("overlap=")[2]: value for name, value in found.items()}, sentences


def test_groups_are_those_of_the_cases_with_the_interval_of_evaluations(tmp_path, train):
    rows = [*choice_rows()]
    found, sentences = split(workdir(tmp_path / "run", "choice", [r for r, _ in rows]), train)
    assert len(found) == 5
    for group, value in found.items():
        cases = [row for row, each in rows if each == group]
        expected = stats.proportion(
            np.array([row["correct"] for row in cases]),
            0.5,
            np.array([row["scores"][0] == row["scores"][1] for row in cases]),
            np.array([row["image"] for row in cases]),
        )._asdict()
        assert value.pop("unit") == expected.pop("unit")
        np.testing.assert_allclose([value[key] for key in expected], [*expected.values()])
    assert "3 different bindings" in sentences[0]
    assert "words 1" in sentences[0]


@pytest.mark.parametrize("count", [1, 15, 27443.5])
@pytest.mark.parametrize("value", [0.0, 0.07, 1.0])
def test_intervals_are_those_of_evaluations_at_their_ends_too(value, count):
    assert overlap._wilson(value, count) == pytest.approx(stats.wilson(value, count), abs=1e-12)


def test_each_image_of_a_pair_and_the_negative_of_a_triplet_decide(tmp_path, train):
    captions = ["a red dog", "a green dog"]
    pair = {"id": "a", "captions": captions, "scores": [[2.0, 1.0], [2.0, 1.0]]}
    found, _ = split(workdir(tmp_path / "pairs", "pairs", [pair]), train)
    assert {name: each["value"] for name, each in found.items()} == {
        "only caption seen": 1.0,
        "only wrong caption seen": 0.0,
    }
    # the hard positive, highest of all, does not count
    triplet = {"id": "a", "captions": [*captions, "a crimson dog"], "scores": [2.0, 1.0, 3.0]}
    found, _ = split(workdir(tmp_path / "triplet", "triplet", [triplet]), train)
    assert [*found] == ["only caption seen"]
    assert (found["only caption seen"]["value"], found["only caption seen"]["chance"]) == (1.0, 0.5)


def test_results_that_cannot_be_split_are_named(tmp_path, train):
    images = {"id": "a", "captions": ["a red dog"], "scores": [[2.0], [1.0]]}
    tie = {"id": "a", "captions": ["a red dog", "a green dog"], "scores": [1.0, 1.0]}
    for name, rows, result, sentence in (
        ("choice", [images], {}, "No binding to split by: mine."),
        ("retrieval", [tie], {}, "No binding to split by: mine."),
        ("choice", [], {}, "No binding to split by: mine."),
        ("choice", [tie], {"details": {"tie": "half"}}, "ties do not count as errors: mine."),
    ):
        path = workdir(tmp_path / f"{len([*tmp_path.iterdir()])}", name, rows, **result)
        found, sentences = split(path, train)
        assert found == {}
        assert sentences[-1].endswith(sentence)


def test_the_command_splits_a_report_and_a_comparison(tmp_path, train, capsys):
    rows = [row for row, _ in choice_rows()]
    runs = [str(workdir(tmp_path / name, "choice", rows)) for name in ("one", "two")]
    words = ["--train", str(train.path), "--tagger", "words"]
    assert __main__.main([runs[0], *words]) == 0
    assert __main__.main([*runs, *words]) == 0
    printed = capsys.readouterr().out
    assert printed.count("overlap=only wrong caption seen") == 2
    assert printed.count("Overlap with train.jsonl") == 2
    for page in (tmp_path / "one" / "report", tmp_path / "comparison"):
        for suffix in (".html", ".md"):
            text = page.with_suffix(suffix).read_text("utf-8")
            assert "overlap=neither seen" in text
            assert "Overlap with train" in text
    stored = json.loads((tmp_path / "one" / "evals" / "mine" / "5.json").read_text())
    assert [*stored["metrics"]] == ["accuracy"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--train", "nowhere.jsonl"], "no file nowhere.jsonl"),
        (["--train", "{train}", "--column", "text"], "has no column 'text'"),
        (["--train", "{train}", "--tagger", "spacey:x"], "tagger"),
        (["--train", "{train}", "--tagger", "scenes:scenes-mini"], "outside the grammar"),
        (["--tagger", "words"], "belong to --train TABLE"),
        (["--train", "{train}", "--cases"], "--cases has no"),
    ],
)
def test_a_wrong_request_ends_with_two_and_one_line(tmp_path, train, capsys, words, message):
    path = workdir(tmp_path / "run", "choice", [row for row, _ in choice_rows(1)])
    words = [word.format(train=train.path) for word in words]
    assert __main__.main([str(path), *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
