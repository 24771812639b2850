"""Histograms of the scores of a benchmark: correct captions against hard negatives and positives.

Accuracy is the share of cases with c, the score of the correct caption, above c_n, the score of the
hard negative; the histograms show how far the two distributions are apart. The template draws them
as SVG, since Matplotlib takes a tenth of a second for each.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.report import display
from vlc_jax.report.read_workdir import Evaluation, Run, has_scores, score_matrix, score_rows

BINS = 28
HEIGHT = 100  # of the drawing, with bins of width 10; the page scales it
BLOCKS = " ▁▂▃▄▅▆▇█"  # heights of a histogram in Markdown
ROLES = ("c", "c_n", "c_p")  # correct caption, hard negative, hard positive


class Series(NamedTuple):
    """Scores of one role. counts: per bin.   shares: counts / highest count of the figure."""

    role: str
    label: str
    counts: list[int]
    shares: list[float]
    mean: float

    @property
    def path(self) -> str:
        """Outline of the bars as an SVG path in a box of 10 BINS x HEIGHT."""
        heights = [HEIGHT * (1 - share) for share in self.shares]
        steps = "".join(f"V{height:.1f}h10" for height in heights)
        return f"M0,{HEIGHT}{steps}V{HEIGHT}"

    @property
    def blocks(self) -> str:
        """The bars as block characters; a positive count has at least the lowest one."""
        return "".join(BLOCKS[math.ceil(share * (len(BLOCKS) - 1))] for share in self.shares)


class Histogram(NamedTuple):
    """Scores of a benchmark's newest evaluation, all series in the same bins from low to high."""

    benchmark: str
    low: float
    high: float
    series: list[Series]

    @property
    def description(self) -> str:
        """Its content in words, for screen readers."""
        means = ", ".join(f"{one.label} {one.mean:.3f}" for one in self.series)
        return f"Scores in {self.benchmark} from {self.low:.3f} to {self.high:.3f}; means: {means}"


def of_run(run: Run) -> list[Histogram]:
    """Histogram of each benchmark with scores."""
    return [made for evaluation in run.evaluations if (made := of_benchmark(run, evaluation))]


def of_benchmark(run: Run, evaluation: Evaluation) -> Histogram | None:
    """Histogram of the newest scores; None without scores."""
    labels = display.of(evaluation.newest).roles
    scores: dict[str, list[float]] = {role: [] for role in ROLES}
    for row in score_rows(run, evaluation.name, evaluation.newest):
        for role, score in _by_role(row) if has_scores(row) else ():
            scores[role].append(score)
    by_role = {role: np.array(values, np.float64) for role, values in scores.items() if values}
    if not by_role:
        return None
    low, high = (float(f([f(part) for part in by_role.values()])) for f in (np.min, np.max))
    # numbers of a damaged file
    if not math.isfinite(high - low):
        return None
    # equal scores, low == high, fill the middle bin: numpy widens the range around them
    counts = {role: np.histogram(part, BINS, (low, high))[0] for role, part in by_role.items()}
    top = max(each.max() for each in counts.values())
    named = dict(zip(ROLES, labels, strict=False))
    series = [
        Series(
            role,
            named.get(role, "hard positive"),
            each.tolist(),
            (each / top).tolist(),
            float(by_role[role].mean()),
        )
        for role, each in counts.items()
    ]
    return Histogram(evaluation.title, low, high, series)


def _by_role(row: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """(role, score) of a case; for a pair of both images."""
    rows = score_matrix(row)
    # several images of one caption, the first of which is correct
    if len(row["captions"]) == 1:
        rows = [[score for (score,) in rows]]
    positives = row.get("positives") or ()
    for k, each in enumerate(rows):
        yield "c", each[k]
        wrong = [score for i, score in enumerate(each) if i != k and i not in positives]
        # a case whose options are all correct has no wrong score
        if wrong:
            yield "c_n", max(wrong)
        yield from (("c_p", each[i]) for i in positives if i != k)
