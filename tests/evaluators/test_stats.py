import subprocess
import sys

import numpy as np
import pytest
import scipy.stats

from vlc_jax import errors
from vlc_jax.evaluators import stats


@pytest.mark.parametrize(("statistic", "size"), [("mean", 2), ("median", 57), ("mean", 3000)])
def test_a_bootstrap_is_that_of_scipy_to_the_bit(statistic, size):
    values = np.random.default_rng(3).integers(1, 40, size).astype(np.float64)
    ours = stats.bootstrapped(values, statistic)
    theirs = scipy.stats.bootstrap(
        (values,),
        getattr(np, statistic),
        n_resamples=stats.RESAMPLES,
        batch=stats.RESAMPLES_AT_ONCE,
        method="percentile",
        rng=np.random.default_rng(stats.SEED),
    ).confidence_interval
    assert (ours.low, ours.high) == (theirs.low, theirs.high)


@pytest.mark.parametrize(("right", "count"), [(0, 7), (1, 2), (13, 20), (999, 1000), (5, 5)])
def test_wilson_equals_scipy(right, count):
    expected = scipy.stats.binomtest(right, count).proportion_ci(method="wilson")
    np.testing.assert_allclose(
        stats.wilson(right / count, count), (expected.low, expected.high), atol=1e-12
    )


def test_evaluators_are_imported_without_scipy():
    """Its statistics take half a second, of every start of the program."""
    script = "import sys, vlc_jax.evaluators; print('scipy.stats' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_proportion_reports_count_chance_and_tie_share():
    ties = np.array([True, False, False, False])
    estimate = stats.proportion(np.array([0.0, 1, 1, 0]), 0.25, ties)
    assert estimate[:3] == (0.5, 4, 0.25)
    assert estimate.ties == 0.25


def test_copies_of_an_example_do_not_narrow_the_interval():
    hits = np.random.default_rng(1).random(60) < 0.6
    once = stats.proportion(hits, None)
    five_times = stats.proportion(np.repeat(hits, 5), None, clusters=np.repeat(np.arange(60), 5))
    np.testing.assert_allclose(five_times.high - five_times.low, once.high - once.low, rtol=0.02)
    assert five_times.count == 300


def test_clusters_of_one_and_opposite_members_change_nothing():
    hits = np.array([1.0, 0, 1, 0, 1, 0])
    plain = stats.proportion(hits, None)
    assert stats.proportion(hits, None, clusters=np.arange(6)) == plain
    assert stats.proportion(hits, None, clusters=np.repeat([0, 1, 2], 2)) == plain


def test_macro_mean_weighs_groups_equally_and_its_interval_shrinks_with_more_groups():
    big = stats.proportion(np.ones(900), 0.5)
    small = stats.proportion(np.zeros(10), 0.5)
    mean = stats.macro([big, small])
    assert mean.value == 0.5
    assert mean.count == 910
    assert mean.chance == 0.5
    one = stats.proportion(np.arange(20) < 12, 0.5)
    four = stats.macro([one] * 4)
    np.testing.assert_allclose(four.value - four.low, (one.value - one.low) / 2)
    np.testing.assert_allclose(four.high - four.value, (one.high - one.value) / 2)


def test_macro_interval_covers_the_truth_in_95_of_100_draws():
    rng, truth, sizes = np.random.default_rng(0), (0.2, 0.6, 0.95), (15, 40, 30)
    covered = []
    for _ in range(1000):
        groups = [
            stats.proportion(rng.random(n) < p, None) for n, p in zip(sizes, truth, strict=True)
        ]
        mean = stats.macro(groups)
        covered.append(mean.low <= np.mean(truth) <= mean.high)
    assert 0.93 < np.mean(covered) < 0.98


def test_scores_that_are_not_finite_are_refused():
    with pytest.raises(errors.DivergedError, match="2 of 3 on benchmark 'x'"):
        stats.require_finite(np.array([1.0, np.nan, np.inf]), "x")


def test_equal_values_have_no_width_and_none_no_meaning():
    for values in (np.array([4.0]), np.full(9, 2.0)):
        estimate = stats.bootstrapped(values, "median")
        assert estimate.low == estimate.value == estimate.high
    assert stats.mean(np.array([0.3]), unit="score")[:5] == (0.3, 1, None, 0.3, 0.3)
    with pytest.raises(ValueError, match="at least one example"):
        stats.mean(np.array([]), unit="score")
    with pytest.raises(ValueError, match="at least one"):
        stats.proportion(np.array([], np.float64), 0.5)
