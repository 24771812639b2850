"""Metrics with confidence intervals, and the result type of every evaluator.

All intervals are two-sided 95 %. Proportions get Wilson's score interval, which stays inside [0, 1]
and has a width even if every example is right; means of group accuracies an interval computed from
the groups' Wilson intervals; mean scores a normal one; ranks a bootstrap with a fixed seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Num, Shaped

from vlc_jax import errors
from vlc_jax.input_pipeline.case import Case

# scipy.stats.norm.ppf(0.975), written out: importing scipy.stats takes half a second, and most
# starts of the program need no bootstrap.
Z = 1.959963984540054
# bootstrap: enough for two digits of a 95 % interval
RESAMPLES = 1000
# limits memory
RESAMPLES_AT_ONCE = 100
# fixed: equal scores get equal intervals
SEED = 0


class Estimate(NamedTuple):
    """One metric: value, chance level, and 95 % interval [low, high].

    `unit`: "fraction", in [0, 1]; "rank"; or "score", a mean of the model's scores, mostly without
    chance. `count` is the number of decisions behind the value, `ties` the share of decisions in
    which the correct option shared the highest score with a wrong one (None if not applicable).
    """

    value: float
    count: int
    chance: float | None
    low: float
    high: float
    ties: float | None = None
    unit: str = "fraction"


@dataclass(frozen=True)
class EvalResult:
    """Result of an evaluator.

    `per_example` holds one row per case, ready for JSON: id, group, captions (a correct one first),
    their scores, `correct`, and further fields of the protocol. `details` are facts that are not
    metrics (number of candidates, share of duplicate captions, ...). `decisions`: metric -> the
    `groups.Decisions` that it is a mean of, for metrics that compare texts. `nulls`: metric -> name
    -> scores without the image (evaluation/text_nulls.py).
    """

    metrics: dict[str, Estimate]
    per_example: list[dict[str, Any]]
    details: dict[str, Any] = field(default_factory=dict)
    decisions: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    nulls: dict[str, dict[str, float]] = field(default_factory=dict)


def wilson(value: float | int, count: float | int) -> tuple[float, float]:
    """Wilson's score interval of the proportion `value` of `count` draws.

    `count` may be fractional: correlated draws have a smaller effective count (`proportion`).
    """
    if not count > 0:
        raise ValueError(f"a proportion needs at least one example; got count {count}")
    centre = value + Z**2 / (2 * count)
    half = Z * np.sqrt(value * (1 - value) / count + Z**2 / (4 * count**2))
    scale = 1 + Z**2 / count
    low, high = (centre - half) / scale, (centre + half) / scale
    # rounding may put a limit outside [0, 1] or on the wrong side of the value
    return float(np.clip(low, 0.0, value)), float(np.clip(high, value, 1.0))


def proportion(
    credit: Num[np.ndarray, " examples"] | Bool[np.ndarray, " examples"],
    chance: float | None,
    ties: Bool[np.ndarray, " examples"] | None = None,
    clusters: Shaped[np.ndarray, " examples"] | None = None,
) -> Estimate:
    """Mean of per-example credits in [0, 1], with Wilson's interval.

    Args:
      credit: 1 if the model was right, 0 if wrong, a fraction for a shared tie.
      chance: expected value for random scores.
      ties: where the correct option shared the highest score with a wrong one.
      clusters: examples of one cluster (two captions of the same image) are not independent; the
        interval then uses the effective number of examples, count / design effect.
    """
    credit = np.asarray(credit, np.float64)
    value = float(credit.mean()) if credit.size else float("nan")
    low, high = wilson(value, _effective_count(credit, clusters))
    share = None if ties is None else float(np.mean(ties))
    return Estimate(value, credit.size, chance, low, high, share)


def images_of(cases: Sequence[Case]) -> Shaped[np.ndarray, " cases"]:
    """Cluster of each case: the record of its image, since cases of one image are not independent.
    A case without `meta["record"]` is a cluster by itself."""
    return np.array([case.meta.get("record", f"case {case.id}") for case in cases])


def _effective_count(credit: np.ndarray, clusters: np.ndarray | None) -> float | int:
    """count / design effect (Kish): the variance of cluster totals over that of free draws."""
    if clusters is None or credit.size == 0:
        return credit.size
    _, index = np.unique(clusters, return_inverse=True)
    number = int(index.max()) + 1
    if number in (1, credit.size):
        return number
    value = credit.mean()
    variance = value * (1 - value) / credit.size
    # all equal: the correlation is unknown, assume 1
    if variance == 0:
        return number
    residuals = np.bincount(index, weights=credit - value)
    clustered = number / (number - 1) * np.sum(residuals**2) / credit.size**2
    # at least 1: clusters that differ less than by chance must not narrow the interval
    return credit.size / max(1.0, clustered / variance)


def macro(groups: Sequence[Estimate]) -> Estimate:
    """Unweighted mean of group accuracies, as reported by benchmarks with rare groups.

    MOVER interval (Zou and Donner, Statistics in Medicine 2008): each group contributes the squared
    distance between its value and its limit. Chance is the mean of the groups' chances.
    """
    if not groups:
        raise ValueError("a mean over groups needs at least one group")
    value, low, high = (
        np.array([getattr(group, name) for group in groups]) for name in ("value", "low", "high")
    )
    mean = float(value.mean())
    below = float(np.sqrt(np.sum((value - low) ** 2)) / len(groups))
    above = float(np.sqrt(np.sum((high - value) ** 2)) / len(groups))
    count = sum(group.count for group in groups)
    chance = None
    if all(group.chance is not None for group in groups):
        chance = float(np.mean([group.chance for group in groups]))
    ties = None
    if all(group.ties is not None for group in groups):
        ties = sum(group.ties * group.count for group in groups) / count
    # a mean of proportions stays in [0, 1]
    return Estimate(mean, count, chance, max(0.0, mean - below), min(1.0, mean + above), ties)


def bootstrapped(
    values: Num[np.ndarray, " examples"],
    statistic: str,
    chance: float | None = None,
    unit: str = "fraction",
) -> Estimate:
    """ "mean" or "median" of values that are not proportions, with a percentile bootstrap.

    Equal to scipy.stats.bootstrap to the bit, without importing scipy.stats, which takes a second
    of an evaluation that takes ten with cached features.
    """
    function = {"mean": np.mean, "median": np.median}[statistic]
    values = np.asarray(values, np.float64)
    if not values.size:
        raise ValueError(f"a {statistic} needs at least one example")
    value = float(function(values))
    if values.size == 1:
        return Estimate(value, 1, chance, value, value, unit=unit)
    rng, resampled = np.random.default_rng(SEED), list[np.ndarray]()
    for _ in range(RESAMPLES // RESAMPLES_AT_ONCE):
        drawn = rng.integers(0, values.size, (RESAMPLES_AT_ONCE, values.size))
        resampled.append(function(values[drawn], axis=-1))
    low, high = np.percentile(np.concatenate(resampled), (2.5, 97.5))
    return Estimate(value, values.size, chance, float(low), float(high), unit=unit)


def mean(values: Float[np.ndarray, " examples"], unit: str) -> Estimate:
    """Mean of values of any range, with the normal interval of its standard error."""
    values = np.asarray(values, np.float64)
    if not values.size:
        raise ValueError("a mean needs at least one example")
    value = float(values.mean())
    half = Z * float(values.std(ddof=1)) / np.sqrt(values.size) if values.size > 1 else 0.0
    return Estimate(value, values.size, None, float(value - half), float(value + half), unit=unit)


def spearman(
    one: Num[np.ndarray, " examples"], other: Num[np.ndarray, " examples"]
) -> Estimate | None:
    """Spearman's rank correlation with a percentile bootstrap over examples; chance 0.

    None if either is constant and has no ranks.
    """
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return None
    # here, because its import is slow
    import scipy.stats

    def correlation(rows: np.ndarray) -> float:
        ranks = scipy.stats.rankdata(np.stack([one[rows], other[rows]]), axis=1)
        ranks -= ranks.mean(axis=1, keepdims=True)
        scale = np.sqrt((ranks**2).sum(axis=1).prod())
        return float(np.prod(ranks, axis=0).sum() / scale) if scale else 0.0

    rng, rows = np.random.default_rng(SEED), np.arange(len(one))
    drawn = [correlation(rng.choice(rows, len(rows))) for _ in range(RESAMPLES)]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Estimate(correlation(rows), len(rows), 0.0, float(low), float(high), unit="score")


def mean_of_means(parts: Sequence[Estimate]) -> Estimate:
    """Unweighted mean of the mean scores of independent groups, with its normal interval."""
    value = float(np.mean([part.value for part in parts]))
    half = float(np.sqrt(sum((part.high - part.value) ** 2 for part in parts))) / len(parts)
    count = sum(part.count for part in parts)
    return Estimate(value, count, None, value - half, value + half, unit=parts[0].unit)


def require_finite(scores: np.ndarray, benchmark: str = "") -> np.ndarray:
    """Returns `scores`; raises DivergedError if any is NaN or infinite and cannot be ranked."""
    bad = int(np.size(scores) - np.isfinite(scores).sum())
    if bad:
        on = f" on benchmark {benchmark!r}" if benchmark else ""
        raise errors.DivergedError(
            f"scores must be finite; {bad} of {np.size(scores)}{on} are not: the parameters "
            "have diverged, evaluate an earlier checkpoint"
        )
    return scores
