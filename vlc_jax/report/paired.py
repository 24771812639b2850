"""Paired comparison of two runs on the same cases: difference, 95 % interval, exact p value.

Two models with accuracies of 70 and 72 % on 1,000 cases have overlapping intervals; the cases where
exactly one of them is right decide which is better.
"""

from collections.abc import Iterator, Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import rich.table
import rich.text

from vlc_jax.report import compare, display, table
from vlc_jax.report.read_workdir import Run, score_rows

Z = NormalDist().inv_cdf(0.975)  # of a two-sided 95 % interval
POWER = NormalDist().inv_cdf(0.8)
# − first: difference to the first run; visible: `Difference.detectable`
HEADER = [
    "benchmark",
    "metric",
    "run",
    "− first",
    "95 %",
    "p",
    "only first",
    "only it",
    "n",
    "visible",
]


class Difference(NamedTuple):
    """Difference of the accuracies `first` and `second` of two models, in [-1, 1].

    low, high: normal 95 % interval with independent clusters.   p: exact two-sided sign test of the
    clusters.   only_first, only_second: cases where only that model is right.
    detectable: smallest difference detected with power .8, from the observed variance; None if no
    case differs.
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
    sums, count = np.bincount(index, weights=change), len(change)
    value, number = change.mean(), len(sums)
    sizes = np.bincount(index)
    spread = np.sum((sums - value * sizes) ** 2) / count**2
    error = float(np.sqrt(spread * number / (number - 1))) if number > 1 else float("inf")
    # if no case differs: rule of three for zero events, one-sided 97.5 %
    half = Z * error if change.any() else -np.log(0.025) / number
    return Difference(
        float(first.mean()),
        float(second.mean()),
        max(-1.0, float(value - half)),
        min(1.0, float(value + half)),
        sign_test(sums.astype(int)),
        int((change < 0).sum()),
        int((change > 0).sum()),
        count,
        (Z + POWER) * error if change.any() else None,
    )


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
        first = _decisions(runs[0], benchmark, result) if metric else {}
        for index in range(1, len(runs)):
            other = results[index].get(benchmark)
            if not first or other is None or not compare.same_cases(result, other):
                continue
            second = _decisions(runs[index], benchmark, other)
            ids = [case for case in first if case in second]
            # a subset of shared cases would be another benchmark
            if len(ids) == len(first) == len(second):
                right = [[part[case][0] for case in ids] for part in (first, second)]
                difference = differ(*map(np.array, right), [first[case][1] for case in ids])
                differences.append(Line(table.name_of(result), metric, index, difference))
    return differences


def to_rich(names: Sequence[str], lines: Sequence[Line]) -> rich.table.Table:
    """Table for a terminal."""
    made = table.terminal_table(HEADER, 3, legend(names))
    for row in cells(names, lines):
        made.add_row(*map(rich.text.Text, row))
    return made


def to_markdown(names: Sequence[str], lines: Sequence[Line]) -> str:
    """Table in Markdown; "" without a line."""
    rows = (map(table.markdown_cell, row) for row in cells(names, lines))
    return table.markdown_table(HEADER, rows, 3) if lines else ""


def legend(names: Sequence[str]) -> str:
    """Meaning of the columns."""
    return (
        f"Cases that are right in a run against those in {names[0]}, in percentage points with 95 "
        "% interval; p: exact sign test of the cases (or images with several) that differ, of each "
        "comparison by itself; visible: the smallest difference that the set would have shown four "
        "times in five."
    )


def cells(names: Sequence[str], lines: Sequence[Line]) -> Iterator[list[str]]:
    """Cells of the table as text, a row per line."""
    for line in lines:
        each = line.difference
        yield [
            line.benchmark,
            line.metric,
            names[line.index],
            _points(each.value),
            f"{_points(each.low)} … {_points(each.high)}",
            "<0.001" if each.p < 0.001 else f"{each.p:.3f}",
            f"{each.only_first:,}",
            f"{each.only_second:,}",
            f"{each.count:,}",
            "–" if each.detectable is None else f"{100 * each.detectable:.1f}",
        ]


def _points(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")


def _decisions(run: Run, benchmark: str, result: Mapping[str, Any]) -> dict[str, tuple[bool, str]]:
    """Case -> (is_right, image) of a benchmark's newest result; {} if any case lacks them.

    {} also where a tied case does not count as an error: it is neither right nor wrong, and its
    flag `correct`, False, would contradict the accuracy above.
    """
    details = result.get("details")
    is_strict = not isinstance(details, dict) or details.get("tie", "strict") == "strict"
    decisions = {}
    for row in score_rows(run, benchmark, result):
        correct, case = row.get("correct"), row.get("id")
        if not isinstance(correct, bool) or not isinstance(case, str):
            return {}
        if row.get("tie") is True and not is_strict:
            return {}
        decisions[case] = (correct, str(row.get("image", case)))
    return decisions
