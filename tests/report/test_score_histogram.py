import json

import pytest

from vlc_jax.report import score_histogram
from vlc_jax.report.read_workdir import Evaluation, Run
from vlc_jax.report.score_histogram import BINS


def histogram(folder, protocol, rows):
    file = folder / "evals" / "b" / "5.scores.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = {"benchmark": "b", "protocol": protocol, "step": 5}
    return score_histogram.of_benchmark(Run(folder), Evaluation("b", [result], []))


ROWS = {  # protocol -> a row, and (label, its scores) of each series
    "choice": (
        {"captions": ["a", "b", "c"], "scores": [0.0, 0.5, 1.0]},
        [("correct", [0.0]), ("best wrong option", [1.0])],
    ),
    "triplet": (
        {"captions": ["a", "b", "c"], "positives": [2], "scores": [1.0, 0.0, 0.5]},
        [("correct caption", [1.0]), ("hard negative", [0.0]), ("hard positive", [0.5])],
    ),
    "pairs": (
        {"captions": ["a", "b"], "scores": [[1.0, 0.2], [0.0, 0.6]]},
        [("own caption", [1.0, 0.6]), ("caption of the other image", [0.2, 0.0])],
    ),
    "choice of images": (
        {"captions": ["a"], "scores": [[0.0], [0.5], [1.0]]},
        [("correct", [0.0]), ("best wrong option", [1.0])],
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_series_are_the_scores_of_correct_captions_hard_negatives_and_positives(tmp_path, name):
    row, expected = ROWS[name]
    made = histogram(tmp_path, name.split()[0], [row])
    assert (made.low, made.high) == (0, 1)
    assert [one.label for one in made.series] == [label for label, _ in expected]
    for one, (_, scores) in zip(made.series, expected, strict=True):
        bins = [min(int(score * BINS), BINS - 1) for score in scores]
        assert one.counts == [bins.count(k) for k in range(BINS)]
        assert one.mean == pytest.approx(sum(scores) / len(scores))
        assert one.path.count("h10") == len(one.blocks) == BINS


def test_a_constant_scorer_has_one_bar_and_damaged_rows_none(tmp_path):
    row = {"captions": ["a", "b"], "scores": [0.5, 0.5]}
    bad = [row | {"scores": [0.5]}, row | {"scores": [10**30, 0.1]}, {"id": 3}]
    (correct, wrong) = histogram(tmp_path, "choice", [row, row, *bad]).series
    assert correct.counts == wrong.counts
    assert sorted(correct.counts)[-2:] == [0, 2]
    assert histogram(tmp_path, "choice", bad) is None
    assert histogram(tmp_path, "choice", [row | {"scores": [1e308, -1e308]}]) is None
