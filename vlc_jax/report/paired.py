"""Paired comparison of two runs on the same cases: difference, 95 % interval, exact p value.

Two models with accuracies of 70 and 72 % on 1,000 cases have overlapping intervals; the cases where
exactly one of them is right decide which is better.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.report import compare, display, table
from vlc_jax.report.blocks import Table
from vlc_jax.report.read_workdir import Run, mapping, score_rows

Z = NormalDist().inv_cdf(0.975)  # of a two-sided 95 % interval
POWER = NormalDist().inv_cdf(0.8)
# − first: difference to the first run; visible: `Difference.detectable`
HEADER = ("benchmark", "metric", "run", "− first", "95 %", "p")
HEADER += ("only first", "only it", "n", "visible")
# fields of a case in scores.jsonl of pairs whose metric is not `Display.correct`
FIELDS: dict[str, tuple[str, ...]] = {
    "text_score": ("correct",),
    "image_score": ("image_score",),
    "group_score": ("correct", "image_score"),
}
KEYS = ("id", "image", "group", "tie", "correct", "image_score")  # that `decisions` reads
Decisions = dict[str, tuple[bool, str]]  # case -> is_right, image


class Difference(NamedTuple):
    """Difference of the accuracies `first` and `second` of two models, in [-1, 1].

    low, high: 95 % interval (`score_interval`); it holds 0 if and only if p is at least .05.
    p: exact two-sided sign test of the clusters.   only_first, only_second: cases where only that
    model is right.   detectable: smallest difference detected with power .8 at the observed number
    of changes; None if no case differs, or the set is too small for any.
    """

    first: float
    second: float
    low: float
    high: float
    p: float
    only_first: int
    only_second: int
    count: int
    detectable: float | None

    @property
    def value(self) -> float:
        """Second minus first."""
        return self.second - self.first


class Line(NamedTuple):
    """Difference between the first run and run `index` on a benchmark."""

    benchmark: str
    metric: str
    index: int
    difference: Difference


def differ(first: np.ndarray, second: np.ndarray, clusters: Sequence[Any]) -> Difference:
    """Paired difference of two masks of right cases.

    clusters: cases of one cluster (captions of one image) are not independent, so the sums of their
    differences are the units. With one case per cluster p is McNemar's exact test.
    """
    first, second = np.asarray(first, bool), np.asarray(second, bool)
    change = second.astype(int) - first.astype(int)
    _, index = np.unique(np.array([str(each) for each in clusters]), return_inverse=True)
    sums = np.bincount(index, weights=change).astype(int)
    only_first, only_second = int((change < 0).sum()), int((change > 0).sum())
    low, high = score_interval(only_first, only_second, sums, np.bincount(index))
    p = sign_test(sums)
    # the exact test decides at 0, where the score test is an approximation
    if p >= 0.05:
        low, high = min(low, 0.0), max(high, 0.0)
    elif only_second > only_first:
        low = max(low, np.nextafter(0, 1))
    else:
        high = min(high, np.nextafter(0, -1))
    spread = np.sqrt(max(np.sum(sums**2), only_first + only_second)) / len(change)
    is_detectable = 0 < (Z + POWER) * spread <= 1
    return Difference(
        float(first.mean()),
        float(second.mean()),
        float(low),
        float(high),
        p,
        only_first,
        only_second,
        len(change),
        float((Z + POWER) * spread) if is_detectable else None,
    )


def score_interval(
    losses: int, gains: int, sums: np.ndarray, sizes: np.ndarray
) -> tuple[float, float]:
    """95 % interval of a paired difference: Tango's (Statistics in Medicine 1998), for clusters.

    The differences d that the score test does not reject: its variance is that of the most likely
    shares of gains and losses whose difference is d, times the design effect of the clusters, the
    sum of squares of their residuals over that of the cases', at least 1.
    sums, sizes: of each cluster, changes and cases.
    """
    count = int(sizes.sum())
    value = (gains - losses) / count

    def accepts(d: np.ndarray) -> np.ndarray:
        b = (2 * count - gains + losses) * d - gains - losses
        root = np.sqrt(np.maximum(0, b**2 + 8 * count * losses * d * (1 - d)))
        variance = (root - b) / (2 * count) + d * (1 - d)  # twice the share of losses, plus
        squares = np.sum(sums**2) - 2 * d * np.sum(sums * sizes) + d**2 * np.sum(sizes**2)
        case_squares = gains + losses - 2 * d * (gains - losses) + d**2 * count
        effect = np.maximum(1, squares / np.where(case_squares > 0, case_squares, 1))
        return count * (value - d) ** 2 <= Z**2 * effect * variance

    ends = []
    for outer in (-1.0, 1.0):
        inner = value
        for _ in range(3):  # each step is a thousandth of the last
            grid = np.linspace(outer, inner, 1001)
            first = int(np.argmax(accepts(grid) | (grid == value)))
            outer, inner = grid[max(first - 1, 0)], grid[first]
        ends.append(float(inner))
    return ends[0], ends[1]


def sign_test(sums: np.ndarray) -> float:
    """Exact two-sided p value: share of all sign assignments with a total at least as far from 0 as
    the observed total."""
    # here, because its import is slow
    from scipy import stats

    sizes = np.abs(sums[sums != 0])
    total = int(sizes.sum())
    if not total:
        return 1.0
    # distribution of the sum of the sizes with a positive sign
    chances = np.ones(1)
    for size, number in zip(*np.unique(sizes, return_counts=True), strict=True):
        spaced = np.zeros(int(size) * int(number) + 1)
        spaced[:: int(size)] = stats.binom.pmf(np.arange(number + 1), number, 0.5)
        chances = np.convolve(chances, spaced)
    above = np.arange(total + 1)
    is_as_far = np.abs(2 * above - total) >= abs(int(sums.sum()))
    return float(min(1.0, chances[is_as_far].sum()))


def lines(runs: Sequence[Run]) -> list[Line]:
    """Every later run against the first, on benchmarks with the same cases in both."""
    results = compare.newest_results(runs)
    differences = []
    for benchmark, result in results[0].items():
        metric = display.of(result).correct
        first = decisions(result, score_rows(runs[0], benchmark, result)) if metric else {}
        for index in range(1, len(runs)):
            other = results[index].get(benchmark)
            if not first or other is None or not compare.same_cases(result, other):
                continue
            second = decisions(other, score_rows(runs[index], benchmark, other))
            if difference := between(first, second):
                differences.append(Line(table.name_of(result), metric, index, difference))
    return differences


def between(first: Decisions, second: Decisions) -> Difference | None:
    """Difference of decisions; None unless they are of the same cases."""
    # a subset of shared cases would be another benchmark
    if not first or first.keys() != second.keys():
        return None
    right = [[part[case][0] for case in first] for part in (first, second)]
    return differ(*map(np.array, right), [image for _, image in first.values()])


def to_table(names: Sequence[str], lines: Sequence[Line]) -> Table:
    """Table of the differences."""
    caption = (
        f"Cases that are right in a run against those in {names[0]}, in percentage points with 95 "
        "% interval; p: exact sign test of the cases (or images with several) that differ, of each "
        "comparison by itself; visible: the smallest difference that the set would have shown four "
        "times in five (–: none)."
    )
    rows = []
    for line in lines:
        each = line.difference
        value, low, high = (
            f"{100 * share:+.1f}".replace("-", "−") for share in (each.value, each.low, each.high)
        )
        p = "<0.001" if each.p < 0.001 else f"{each.p:.3f}"
        counts = [f"{number:,}" for number in (each.only_first, each.only_second, each.count)]
        names_of_row = line.benchmark, line.metric, names[line.index]
        visible = table.percent(each.detectable)
        rows.append([*names_of_row, value, f"{low} … {high}", p, *counts, visible])
    return Table(HEADER, rows, 3, caption=caption)


def decisions(
    result: Mapping[str, Any], rows: Iterable[dict[str, Any]], metric: table.Row | None = None
) -> Decisions:
    """The decisions behind a metric, by default `Display.correct`; {} if any case lacks them.

    {} also where a tied case does not count as an error: it is neither right nor wrong, and its
    flag `correct`, False, would contradict the accuracy above.

    result: of a benchmark.   rows: of its scores.jsonl.
    """
    is_strict = mapping(result.get("details")).get("tie", "strict") == "strict"
    fields, group = ("correct",), ""
    if metric is not None:
        stem, _, group = metric.metric.partition("/")
        is_correct = dataclasses.replace(metric, metric=stem).label == metric.display.correct
        fields = FIELDS.get(stem, ("correct",) if is_correct else ())
    found = {}
    for row in rows:
        flags, case, label = [row.get(name) for name in fields], row.get("id"), row.get("group")
        if not flags or not all(isinstance(flag, bool) for flag in flags):
            return {}
        if not isinstance(case, str) or (row.get("tie") is True and not is_strict):
            return {}
        labels = [f"{k}={v}" for k, v in label.items()] if isinstance(label, dict) else [label]
        if not group or group in labels:
            found[case] = (all(flags), str(row.get("image") or case))
    return found
