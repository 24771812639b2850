"""Histograms of the scores of a benchmark: correct captions against hard negatives and positives.

An accuracy says how often c, the score of the correct caption, is above c_n, that of the hard
negative; the histograms say whether the two distributions part at all. Drawn as SVG by the
template, since Matplotlib takes a tenth of a second for each.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.report import display
from vlc_jax.report.read_workdir import Evaluation, Run, has_scores, score_rows

BINS = 28
HEIGHT = 100  # of the drawing, whose bins are 10 wide; the page stretches it
BLOCKS = " ▁▂▃▄▅▆▇█"  # heights of a histogram in Markdown
ROLES = ("c", "c_n", "c_p")  # correct caption, hard negative, hard positive


class Series(NamedTuple):
    """Scores of one role. counts: of each bin.   shares: the same, 1 the figure's highest count."""

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
        """The bars as letters; a count that is not 0 has at least the lowest one."""
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
    """A histogram of each benchmark that has scores."""
    return [made for evaluation in run.evaluations if (made := of_benchmark(run, evaluation))]


def of_benchmark(run: Run, evaluation: Evaluation) -> Histogram | None:
    """The histogram of the newest scores; None without any."""
    labels = display.of(evaluation.newest).roles
    file = Path("evals") / evaluation.name / f"{evaluation.newest['step']}.scores.jsonl"
    scores: dict[str, list[float]] = {role: [] for role in ROLES}
    for row in score_rows(run, file):
        for role, score in _by_role(row) if has_scores(row) else ():
            scores[role].append(score)
    found = {role: np.array(values, np.float64) for role, values in scores.items() if values}
    if not found:
        return None
    low, high = (float(f([f(part) for part in found.values()])) for f in (np.min, np.max))
    if not math.isfinite(high - low):  # of numbers that no model has given
        return None
    counts = {role: _count(part, low, high) for role, part in found.items()}
    top = max(each.max() for each in counts.values())
    named = dict(zip(ROLES, labels, strict=False))
    series = [
        Series(
            role,
            named.get(role, "hard positive"),
            each.tolist(),
            (each / top).tolist(),
            float(found[role].mean()),
        )
        for role, each in counts.items()
    ]
    return Histogram(evaluation.name, low, high, series)


def _by_role(row: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """(role, score) of a case; of a pair those of both images."""
    scores = row["scores"]
    rows = scores if isinstance(scores[0], list) else [scores]
    if len(row["captions"]) == 1:  # several images of one caption, the first of which is correct
        rows = [[score for (score,) in rows]]
    positives = row.get("positives") or ()
    for k, each in enumerate(rows):
        yield "c", each[k]
        wrong = [score for i, score in enumerate(each) if i != k and i not in positives]
        if wrong:
            yield "c_n", max(wrong)
        yield from (("c_p", each[i]) for i in positives if i != k)


def _count(scores: np.ndarray, low: float, high: float) -> np.ndarray:
    """Number of scores in each bin; a model that scores everything alike fills the middle one."""
    if low == high:
        return np.bincount([BINS // 2] * len(scores), minlength=BINS)
    index = ((scores - low) / (high - low) * BINS).astype(int)
    return np.bincount(np.minimum(index, BINS - 1), minlength=BINS)
