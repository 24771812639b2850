"""The text of a study's page."""

from collections.abc import Sequence

from studies.study_columns import column
from studies.study_results import Results, Value, shown, signed


class Prose:
    """Numbers in the text of a page, and claims that the values must support.

    Templates name a run and a column: `n("hn", "Aug size A")` is 0 if HN's mean is .4 percent. A
    claim is a condition beside its sentence: `holds(x("hn", "Aug size A").mean < 5, "HN loses
    synonyms")` writes nothing, and `broken` lists the claims that the values no longer support.
    A column may name a protocol: "attribute swap/vqascore". A run or benchmark without values
    raises MissingValueError."""

    def __init__(self, results: Results) -> None:
        self.results, self.broken = results, list[str]()

    def functions(self) -> dict[str, object]:
        """By the names that templates use."""
        names = ("n", "d", "x", "each", "gain", "every", "score", "holds")
        return {name: getattr(self, name) for name in names}

    def x(self, run: str, name: str) -> Value:
        """Mean and half interval of a run, in percent."""
        return _in_percent(self.results.value(run, *column(name)[1:3]))

    def gain(self, run: str, other: str, name: str) -> Value:
        """Difference of two runs, seed by seed, in points."""
        return _in_percent(self.results.difference(run, other, *column(name)[1:3]))

    def n(self, run: str, name: str) -> str:
        """The mean: "82"."""
        value = self.x(run, name)
        return shown(f"{value.mean:.0f}", value.half / 100)

    def d(self, run: str, other: str, name: str) -> str:
        """The difference with its interval: "+1.3 ±.7"."""
        return signed(self.results.difference(run, other, *column(name)[1:3]))

    def every(self, run: str, name: str) -> Sequence[float]:
        """The value of each seed, in percent."""
        return [100 * value for value in self.results.by_seed(run, *column(name)[1:3])]

    def each(self, run: str, name: str, beside: str = "") -> str:
        """The value of each seed: "95, 99 and 73".

        beside: a run that started from this one; its device's values are taken."""
        with self.results.beside(beside):
            *most, last = [f"{value:.0f}" for value in self.every(run, name)]
        return f"{', '.join(most)} and {last}" if most else last

    def score(self, run: str, benchmark: str, metric: str) -> str:
        """The mean of a metric that is no share."""
        value = self.results.value(run, benchmark, metric)
        return shown(f"{value.mean:.2f}", value.half)

    def holds(self, condition: object, sentence: str) -> None:
        """Notes the sentence as broken if the condition is false."""
        if not condition:
            self.broken.append(sentence)


def _in_percent(value: Value) -> Value:
    return Value(100 * float(value.mean), 100 * float(value.half))
