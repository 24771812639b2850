import itertools
import json

import numpy as np
import pytest
from scipy import stats

from vlc_jax import evaluators
from vlc_jax.report import paired
from vlc_jax.report.read_workdir import Evaluation, Run


def test_p_is_mcnemars_exact_test_where_no_image_is_shared():
    first = np.array([1] * 12 + [0] * 4 + [1] * 30 + [0] * 9, bool)
    second = np.array([0] * 12 + [1] * 4 + [1] * 30 + [0] * 9, bool)
    found = paired.differ(first, second, range(55))
    assert (found.only_first, found.only_second, found.count) == (12, 4, 55)
    np.testing.assert_allclose(found.p, stats.binomtest(4, 16).pvalue)
    np.testing.assert_allclose(found.value, -8 / 55)
    error = np.sqrt((16 - 64 / 55) / 54 / 55)  # of the mean of 55 changes
    np.testing.assert_allclose(
        (found.low, found.high), -8 / 55 + 1.959964 * error * np.array([-1, 1]), rtol=1e-4
    )


@pytest.mark.parametrize("seed", range(4))
def test_p_of_sums_is_the_share_of_all_choices_of_signs(seed):
    sums = np.random.default_rng(seed).integers(-4, 6, 9)
    signs = np.array(list(itertools.product((-1, 1), repeat=9)))
    totals = np.abs((signs * np.abs(sums)).sum(axis=1))
    np.testing.assert_allclose(paired.sign_test(sums), np.mean(totals >= abs(sums.sum())))


def test_many_captions_of_one_image_are_not_many_independent_cases():
    first, second = np.zeros(40, bool), np.ones(40, bool)
    apart, shared = (
        paired.differ(first, second, range(40)),
        paired.differ(first, second, [0, 1] * 20),
    )
    assert apart.p < 1e-9
    assert shared.p == 0.5


def test_intervals_hold_the_true_difference_nineteen_times_in_twenty():
    rng, covered = np.random.default_rng(0), []
    for _ in range(600):
        skill = rng.random(80)[:, None]  # of 80 images with 3 captions each, for both models
        first, second = (rng.random((80, 3)) < skill * share for share in (0.8, 0.9))
        found = paired.differ(first.ravel(), second.ravel(), [n // 3 for n in range(240)])
        covered.append(found.low <= 0.05 <= found.high)  # half of .9 - .8
    assert 0.92 < np.mean(covered) < 0.98


def test_runs_that_never_differ_say_how_little_that_shows():
    found = paired.differ(np.ones(50, bool), np.ones(50, bool), range(50))
    assert (found.value, found.p, found.detectable) == (0, 1, None)
    assert 0 < found.high < 0.1
    assert found.low == -found.high


def run(folder, right, version="v1", step=5):
    """A workdir with one benchmark; image and answer of each case."""
    scores = folder / "evals" / "b" / f"{step}.scores.jsonl"
    scores.parent.mkdir(parents=True)
    rows = [{"id": str(n), "image": image, "correct": c} for n, (image, c) in enumerate(right)]
    scores.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = {"benchmark": "b", "protocol": "choice", "step": step, "version": version}
    result["display"] = evaluators.display("choice")
    metrics = {"accuracy": {"value": 0.5, "count": len(rows)}}
    return Run(folder, evaluations=[Evaluation("b", [result | {"metrics": metrics}], [])])


def test_runs_are_compared_where_they_had_the_same_cases(tmp_path):
    right = [("x", True), ("x", False), ("y", True), ("z", False)]
    other = [("x", True), ("x", True), ("y", True), ("z", True)]
    runs = [
        run(tmp_path / "a", right),
        run(tmp_path / "b", other, step=9),
        run(tmp_path / "c", other, version="v2"),
        run(tmp_path / "d", other[:3]),
    ]
    (line,) = paired.lines(runs)
    assert (line.benchmark, line.metric, line.index) == ("b", "accuracy", 1)
    assert line.difference == paired.differ(
        np.array([c for _, c in right]), np.array([c for _, c in other]), ["x", "x", "y", "z"]
    )
    (row,) = paired.cells(["a", "b", "c", "d"], [line])
    assert row[:4] == ["b", "accuracy", "b", "+50.0"]
    markdown = paired.to_markdown(["a", "b", "c", "d"], [line]).splitlines()
    assert [text.count("|") for text in markdown] == [len(paired.HEADER) + 1] * 3


@pytest.mark.parametrize("harm", ['{"id": 3}\n', "[]\n", '{"id": "0", "correct": 1}\n', ""])
def test_damaged_scores_are_not_compared(tmp_path, harm):
    runs = [run(tmp_path / name, [("x", True), ("y", False)]) for name in "ab"]
    (tmp_path / "b" / "evals" / "b" / "5.scores.jsonl").write_text(harm)
    assert paired.lines(runs) == []


@pytest.mark.parametrize(("policy", "lines"), [("strict", 1), ("half", 0)])
def test_ties_that_are_no_errors_are_not_compared_as_errors(tmp_path, policy, lines):
    runs = [run(tmp_path / name, [("x", True), ("y", False)]) for name in "ab"]
    file = tmp_path / "b" / "evals" / "b" / "5.scores.jsonl"
    rows = [json.loads(line) | {"tie": True} for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for each in runs:
        each.evaluations[0].results[0]["details"] = {"tie": policy}
    assert len(paired.lines(runs)) == lines
