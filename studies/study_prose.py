"""Numbers in the text of a study's page, and claims that the values must support.

Templates name a run and a column: `n("hn", "Aug size A")` is 0 if HN's mean is .4 percent. A claim
is a condition beside its sentence: `holds(x("hn", "Aug size A").mean < 5, "HN loses synonyms")`
writes nothing, and `broken` lists the claims that the values no longer support.
"""

import re
from collections.abc import Callable, Sequence

from studies import study_results
from studies.study_columns import column
from studies.study_results import Results, Value

# Marks of a rendered page: a claim, and a number without a value (`without_marks`).
CLAIM, MISSING = "\0", "\1"
NOT_RUN = "Not run yet."


class Prose:
    """Functions of the templates; see the top of this file.

    A column may name a protocol: "attribute swap/vqascore". A run or benchmark without values gives
    MISSING, and claims about it are not checked. `needs(run, ...)` in a paragraph without
    numbers is MISSING, too, if one of the runs has no values."""

    def __init__(self, results: Results) -> None:
        self.results, self.broken = results, list[str]()
        self._is_missing = False

    def functions(self) -> dict[str, object]:
        """By the names that templates use."""
        names = ("n", "d", "x", "each", "gain", "every", "score", "holds", "needs")
        return {name: getattr(self, name) for name in names}

    def x(self, run: str, name: str) -> Value:
        """Mean and half interval of a run, in percent."""
        return self._percent(name, self.results.value, run)

    def gain(self, run: str, other: str, name: str) -> Value:
        """Difference of two runs, seed by seed, in points."""
        return self._percent(name, self.results.difference, run, other)

    def n(self, run: str, name: str) -> str:
        """The mean: "82"."""
        return self._shown("{:.0f}", self.x(run, name))

    def d(self, run: str, other: str, name: str) -> str:
        """The difference with its interval: "+1.3 ±.7"."""
        value = self.gain(run, other, name)
        return self._shown("{:+.1f} ±{:.1f}", value, value.half)

    def every(self, run: str, name: str) -> Sequence[float]:
        """The value of each seed, in percent."""
        of = column(name)
        if not self._has(of.benchmark, of.metric, run):
            return (float("nan"),)
        return [100 * value for value in self.results.by_seed(run, of.benchmark, of.metric)]

    def each(self, run: str, name: str, beside: str = "") -> str:
        """The value of each seed: "95, 99 and 73".

        beside: a run that started from this one; its device's values are taken."""
        with self.results.beside(beside):
            *most, last = [f"{value:.0f}" for value in self.every(run, name)]
        return self._text(f"{', '.join(most)} and {last}" if most else last)

    def score(self, run: str, benchmark: str, metric: str) -> str:
        """The mean of a metric that is no share."""
        if not self.results.has(run, benchmark, metric):
            return MISSING
        value = self.results.value(run, benchmark, metric)
        return study_results.shown(f"{value.mean:.2f}", value.half)

    def needs(self, *runs: str) -> str:
        """MISSING if one of the runs has no values; else nothing."""
        return "" if all(map(self.results.has, runs)) else MISSING

    def holds(self, condition: object, sentence: str) -> str:
        """Notes the sentence as broken if the condition is false; its line is left out."""
        if not condition and not self._is_missing:
            self.broken.append(sentence)
        self._is_missing = False
        return CLAIM

    def _has(self, benchmark: str, metric: str, *runs: str) -> bool:
        has = all(self.results.has(run, benchmark, metric) for run in runs)
        self._is_missing |= not has
        return has

    def _percent(self, name: str, value_of: Callable[..., Value], *runs: str) -> Value:
        _, benchmark, metric, _ = column(name)
        if not self._has(benchmark, metric, *runs):
            return Value(float("nan"), float("nan"))
        value = value_of(*runs, benchmark, metric)
        return Value(100 * float(value.mean), 100 * float(value.half))

    def _shown(self, form: str, value: Value, *more: float) -> str:
        """The text of a mean, which `form` writes, and a mark if it is not resolved."""
        return self._text(study_results.shown(form.format(value.mean, *more), value.half / 100))

    def _text(self, text: str) -> str:
        """The text of a number in a sentence, or MISSING; it leaves no mark on the next claim."""
        is_missing, self._is_missing = self._is_missing, False
        return MISSING if is_missing else text


def unnested(text: str) -> str:
    """A text whose marks within parentheses have none of their own: "(78, not resolved)"."""
    return re.sub(r"(\([^()]*) \(not resolved\)", r"\1, not resolved", text)


def without_marks(page: str) -> str:
    """A rendered page without the lines of claims; a paragraph that lacks a value says that it was
    not run."""
    page = unnested(re.sub(f"{CLAIM}\n?", "", page))
    blocks = (NOT_RUN if MISSING in block else block for block in re.split(r"(\n\n+)", page))
    return re.sub(rf"{NOT_RUN}\n\n(?={NOT_RUN})", "", "".join(blocks))
