import itertools

import numpy as np
import pytest
from scipy import stats

from tests.report.conftest import made_up
from tests.support import helpers
from vlc_jax.report import paired, to_markdown
from vlc_jax.report.read_workdir import Evaluation, Run


def test_p_is_mcnemars_exact_test_where_no_image_is_shared():
    first = np.array([1] * 12 + [0] * 4 + [1] * 30 + [0] * 9, bool)
    second = np.array([0] * 12 + [1] * 4 + [1] * 30 + [0] * 9, bool)
    found = paired.differ(first, second, range(55))
    assert (found.only_first, found.only_second, found.count) == (12, 4, 55)
    np.testing.assert_allclose(found.p, stats.binomtest(4, 16).pvalue)
    np.testing.assert_allclose(found.value, -8 / 55)


def most_likely_losses(losses, gains, count, d):
    """The share of losses with the highest likelihood if gains have a share larger by d."""
    share = np.linspace(max(0, -d), (1 - d) / 2, 2001)
    cells = (losses, share), (gains, share + d), (count - losses - gains, 1 - 2 * share - d)
    logs = [n * np.log(np.maximum(p, 1e-300)) for n, p in cells if n]
    return share[np.argmax(sum(logs))]


@pytest.mark.parametrize(
    ("losses", "gains", "count"), [(1, 7, 21), (0, 2, 2), (3, 3, 10), (9, 0, 9), (0, 0, 20)]
)
def test_the_interval_of_unclustered_cases_inverts_the_score_test(losses, gains, count):
    sums = np.repeat([-1, 1, 0], [losses, gains, count - losses - gains])
    kept = []
    for d in np.linspace(-1, 1, 401):
        share = most_likely_losses(losses, gains, count, d)
        variance = 2 * share + d - d**2
        if (gains - losses - count * d) ** 2 <= 1.959964**2 * count * variance + 1e-9:
            kept.append(d)
    found = paired.score_interval(losses, gains, sums, np.ones(count, int))
    np.testing.assert_allclose(found, (min(kept), max(kept)), atol=0.006)
    if (losses, gains) == (1, 7):
        np.testing.assert_allclose(found, (0.026, 0.517), atol=5e-4)


@pytest.mark.parametrize("cases", [1, 3])
def test_an_interval_has_a_width_and_holds_0_where_p_is_large(cases):
    rng = np.random.default_rng(0)
    for images in (1, 2, 5, 6, 9, 25):
        for share in (1.0, 0.9, 0.5):
            second = rng.random(images * cases) < share
            clusters = np.arange(images * cases) // cases
            found = paired.differ(np.zeros_like(second), second, clusters)
            assert (found.low <= 0 <= found.high) == (found.p >= 0.05)
            assert found.low <= found.value <= found.high
            assert 0.05 < found.high - found.low <= 2
            assert found.detectable is None or found.detectable <= 1


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
    assert (shared.low < -0.3, shared.detectable) == (True, None)


def test_intervals_hold_the_true_difference_nineteen_times_in_twenty():
    rng, covered = np.random.default_rng(0), []
    for _ in range(400):
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
    rows = [{"id": str(n), "image": image, "correct": c} for n, (image, c) in enumerate(right)]
    helpers.write_rows(folder / "evals" / "b" / f"{step}.scores.jsonl", rows)
    metrics = {"accuracy": {"value": 0.5, "count": len(rows)}}
    result = made_up(step=step, version=version, metrics=metrics)
    return Run(folder, evaluations=[Evaluation("b", [result], [])])


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
    shown = paired.to_table(["a", "b", "c", "d"], [line])
    assert shown.rows[0][:4] == ["b", "accuracy", "b", "+50.0"]
    markdown = to_markdown.table(shown).splitlines()
    assert [text.count("|") for text in markdown[:3]] == [len(paired.HEADER) + 1] * 3


@pytest.mark.parametrize("harm", ['{"id": 3}\n', "[]\n", '{"id": "0", "correct": 1}\n', ""])
def test_damaged_scores_are_not_compared(tmp_path, harm):
    runs = [run(tmp_path / name, [("x", True), ("y", False)]) for name in "ab"]
    (tmp_path / "b" / "evals" / "b" / "5.scores.jsonl").write_text(harm)
    assert paired.lines(runs) == []


@pytest.mark.parametrize(("policy", "lines"), [("strict", 1), ("half", 0)])
def test_ties_that_are_no_errors_are_not_compared_as_errors(tmp_path, policy, lines):
    runs = [run(tmp_path / name, [("x", True), ("y", False)]) for name in "ab"]
    file = tmp_path / "b" / "evals" / "b" / "5.scores.jsonl"
    helpers.write_rows(file, [row | {"tie": True} for row in helpers.rows(file)])
    for each in runs:
        each.evaluations[0].results[0]["details"] = {"tie": policy}
    assert len(paired.lines(runs)) == lines
