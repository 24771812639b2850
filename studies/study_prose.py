"""Numbers in the text of a study's pages, and claims that the values must support.

Templates name a run and a column: `n("hn", "aug size A")` is 0 if HN's mean is .4 percent. A claim
is a condition beside its sentence: `holds(x("hn", "aug size A").mean < 5, "HN loses synonyms")`
writes nothing, and `broken` lists the claims that the values no longer support.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from studies import study_columns, study_results
from studies.study_results import Results, Value

# Marks of a rendered page: a claim, and a number without a value; `without_marks` removes the line
# of the one and the sentence of the other.
CLAIM, MISSING = "\0", "\1"
NOT_RUN = "Not run yet."
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\[*\"`])")
_BY_TITLE = {
    "attributes": "attribute swap",
    "relations": "relation swap",
    "objects": "object",
    "colours": "colour",
    "pair": "What'sUp pair",
    "individual": "What'sUp individual",
    "negation": "negation",
    "r1": "R@1 image→text",
    "held attributes": "held-out attribute swap",
    "held relations": "held-out relation swap",
    "places": "left/right/above/below",
}


def _named() -> dict[str, study_columns.Column]:
    """Column of each name that texts use."""
    all_columns = (
        *study_columns.BAG_OF_WORDS,
        *study_columns.HEADS,
        *study_columns.ANSWERS,
        *study_columns.GEOMETRY,
    )
    by_title = {column.title: column for column in all_columns}
    named = {name: by_title[title] for name, title in _BY_TITLE.items()}
    further = (
        *study_columns.GEOMETRY,
        *study_columns.NEGATION_COLUMNS,
        *study_columns.DETAIL_COLUMNS,
        *study_columns.TEXTS,
    )
    named |= {column.title: column for column in further}
    named |= {f"shuffled {column.title}": column for column in study_columns.SHUFFLED}
    for suffix, benchmark in (("A", "scenes_replace"), ("B", "scenes_replace_unseen")):
        for group in ("", "size", "colour", "relation"):
            for column in study_columns.triplet_columns(benchmark, group, f"{group} {suffix}"):
                named[" ".join([*column.title.lower().split()[:-1], suffix])] = column
    for suffix, benchmark in (("swap", "scenes_swap"), ("relation swap", "scenes_swap_relation")):
        for column in study_columns.triplet_columns(benchmark, "", suffix):
            named[column.title.lower()] = column
    return named


COLUMNS: Mapping[str, study_columns.Column] = _named()


class Percent(NamedTuple):
    """Mean and half of the interval, in percent or points."""

    mean: float
    half: float

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half


class Prose:
    """Functions of the templates; see the top of this file.

    A column may name a protocol: "attributes/vqascore". A run or benchmark without values gives
    MISSING, and claims about it are not checked. `needs(run, ...)` in a sentence without numbers
    is MISSING, too, if one of the runs has no values."""

    def __init__(self, results: Results):
        self.results, self.broken = results, list[str]()
        self._is_missing = False

    def functions(self) -> dict[str, object]:
        """By the names that templates use."""
        names = ("n", "d", "x", "each", "gain", "pm", "every", "score", "met", "points")
        methods = {name: getattr(self, name) for name in (*names, "holds", "needs")}
        return methods | {"c": lambda run, name: self.condition(run, name).mean}

    def x(self, run: str, column: str) -> Percent:
        """Mean and half interval of a run."""
        return self._value(run, self._column(column))

    def gain(self, run: str, other: str, column: str) -> Percent:
        """Difference of two runs, seed by seed."""
        of = self._column(column)
        if not self._has(of, run, other):
            return Percent(float("nan"), float("nan"))
        return _percent(self.results.difference(run, other, of.benchmark, of.metric))

    def n(self, run: str, column: str, digits: int = 0, beside: str = "") -> str:
        """The mean: "82", "82.4".

        beside: a run that started from this one; its device's values are taken."""
        with self.results.beside(beside):
            return self._shown("{:.{}f}", self.x(run, column), digits)

    def pm(self, run: str, column: str) -> str:
        """The mean with its interval: "82.4 ±1.3"."""
        value = self.x(run, column)
        return self._shown("{:.1f} ±{:.1f}", value, value.half)

    def d(self, run: str, other: str, column: str) -> str:
        """The difference with its interval: "+1.3 ±.7"."""
        value = self.gain(run, other, column)
        return self._shown("{:+.1f} ±{:.1f}", value, value.half)

    def every(self, run: str, column: str) -> Sequence[float]:
        """The value of each seed, in percent."""
        of = self._column(column)
        if not self._has(of, run):
            return (float("nan"),)
        return [100 * value for value in self.results.by_seed(run, of.benchmark, of.metric)]

    def each(self, run: str, column: str, digits: int = 0, beside: str = "") -> str:
        """The value of each seed: "95, 99 and 73". beside: as for `n`."""
        with self.results.beside(beside):
            *most, last = [f"{value:.{digits}f}" for value in self.every(run, column)]
        return self._text(f"{', '.join(most)} and {last}" if most else last)

    def score(self, run: str, benchmark: str, metric: str, digits: int = 2) -> str:
        """The mean of a metric that is no share."""
        if not self.results.has(run, benchmark, metric):
            return MISSING
        value = self.results.value(run, benchmark, metric)
        return study_results.shown(f"{value.mean:.{digits}f}", value.half)

    def condition(self, run: str, name: str) -> Percent:
        """Share of scenes that meet a condition of an ideal CLIP."""
        of = study_columns.Column(name, "scenes_conditions", f"satisfied/{name}", 0.5)
        return self._value(run, of)

    def met(self, run: str, name: str) -> str:
        """The share of `condition`: "82 %"."""
        return self._shown("{:.0f} %", self.condition(run, name))

    def points(self, value: Percent, other: Percent) -> str:
        """Difference of two values: "+1.3"; not resolved if one of them is not."""
        difference = Percent(value.mean - other.mean, max(value.half, other.half))
        return self._shown("{:+.1f}", difference)

    def needs(self, *runs: str) -> str:
        """MISSING if one of the runs has no values; else nothing."""
        return "" if all(map(self.results.has, runs)) else MISSING

    def holds(self, condition: object, sentence: str) -> str:
        """Notes the sentence as broken if the condition is false; its line is left out."""
        if not condition and not self._is_missing:
            self.broken.append(sentence)
        self._is_missing = False
        return CLAIM

    def _column(self, name: str) -> study_columns.Column:
        title, _, protocol = name.rpartition("/") if name not in COLUMNS else (name, "", "")
        column = COLUMNS[title]
        benchmark = f"{column.benchmark}_{protocol}" if protocol else column.benchmark
        return column._replace(benchmark=benchmark)

    def _has(self, of: study_columns.Column, *runs: str) -> bool:
        has = all(self.results.has(run, of.benchmark, of.metric) for run in runs)
        self._is_missing |= not has
        return has

    def _value(self, run: str, of: study_columns.Column) -> Percent:
        if not self._has(of, run):
            return Percent(float("nan"), float("nan"))
        return _percent(self.results.value(run, of.benchmark, of.metric))

    def _shown(self, form: str, value: Percent, *more: float) -> str:
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
    """A rendered page without the lines of claims, and without sentences that lack a value.

    A list item without sentences goes, too; a paragraph without sentences says that it was not run.
    """
    page = unnested(re.sub(f"{CLAIM}\n?", "", page))
    blocks = re.split(r"(\n\n+|\n(?=- ))", page)
    text, separator = _without_missing(blocks[0]) or "", ""
    for mark, block in zip(blocks[1::2], blocks[2::2], strict=True):
        # a list whose first items go still begins behind an empty line
        separator = max(separator, mark, key=len)
        filled = _without_missing(block)
        if filled is not None:
            text, separator = text + separator + filled, ""
    return re.sub(rf"{NOT_RUN}\n\n(?={NOT_RUN})", "", text) + separator


def _without_missing(block: str) -> str | None:
    """A paragraph or list item without sentences that lack a value; None if nothing is left."""
    if MISSING not in block:
        return block
    left = [each for each in _SENTENCE.split(block) if MISSING not in each]
    is_item = block.startswith("- ")
    if is_item:
        text = " ".join(left)
        return f"- {text.removeprefix('- ')}" if text else None
    if all(each.startswith("[") for each in left):
        left = [NOT_RUN, *left]
    return " ".join(left)


def _percent(value: Value) -> Percent:
    return Percent(100 * float(value.mean), 100 * float(value.half))
