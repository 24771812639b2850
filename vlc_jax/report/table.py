"""Rows and table of the results in evals/<benchmark>/<step>.json files."""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from vlc_jax.report import display
from vlc_jax.report.blocks import Span, Table
from vlc_jax.report.display import DEFAULT, Display

LABELS = {  # metric -> label; other metrics: underscores as spaces
    "accuracy_macro": "mean of groups",
    "accuracy_top5": "top-5 accuracy",
    "augmented_accuracy": "augmented",
    "original_accuracy": "original",
    "brittleness": "brittleness ↓",  # lower is better
    "mean_per_class_recall": "class recall",
    "image_individual_accuracy": "individual, of captions",
    "pair_accuracy": "pair",
    "relaxed_pair": "relaxed pair",
    "relaxed_pair_literal": "relaxed pair, as printed",
    "unparsed": "unparsed ↓",
    "text_accuracy": "text only",
    "individual_accuracy": "individual",
    "image_mean_accuracy": "mean of patches",
    "map_accuracy": "tokens and patches",
    "text_mean_accuracy": "mean of tokens",
    **{f"image_to_text_r{k}": f"image→text R@{k}" for k in (1, 5, 10)},
    **{f"text_to_image_r{k}": f"text→image R@{k}" for k in (1, 5, 10)},
}
UNITS = ("fraction", "rank", "score")
BESIDE = ("text_to_image_r1", "original_accuracy", "brittleness")  # also listed as headlines


@dataclass(frozen=True)
class Row:
    """One metric of one benchmark; a fraction in [0, 1] unless `unit` is "rank" or "score"."""

    benchmark: str
    protocol: str
    metric: str
    value: float
    low: float | None
    high: float | None
    chance: float | None
    count: int | None
    ties: float | None
    unit: str
    step: int
    paper: float | None = None  # the published value (`published.add`)
    blind: float | None = None  # of a classifier of the texts alone
    ceiling: float | None = None  # of a bag of words
    human: float | None = None  # published
    display: Display = DEFAULT  # of its result
    title: str = ""  # of the benchmark, for people

    @property
    def name(self) -> str:
        """Name of the benchmark for people: "retrieval (split train)", not its folder."""
        return self.title or self.benchmark

    @property
    def label(self) -> str:
        """Name of the metric for people, with its group."""
        name, _, group = self.metric.partition("/")
        stem = name.removesuffix("_macro")
        label = LABELS[stem] if stem in LABELS else stem.replace("_", " ")
        if name in LABELS:
            label = LABELS[name]
        elif name != stem:
            label += ", mean of groups"
        return f"{label}: {group}" if group else label

    @property
    def verdict(self) -> str:
        """95 % interval against chance: "above" or a key of MARKS; "" if either is unknown.

        "above" is better than chance and "below" worse: a brittleness over 1/3 is "below". "blind"
        and "below-blind" are above chance, but not above the blind score.
        """
        if self.chance is None or self.low is None or self.high is None:
            return ""
        if self.low <= self.chance <= self.high:
            return "at"
        is_greater = self.low > self.chance
        if is_greater and self.blind is not None and self.low <= self.blind:
            return "blind" if self.high >= self.blind else "below-blind"
        return "above" if is_greater != self.is_better_small else "below"

    @property
    def sign(self) -> str:
        """Sign of the verdict in every table and figure; "" if it has none."""
        return MARKS[self.verdict].sign if self.verdict in MARKS else ""

    @property
    def is_grounded(self) -> bool:
        """Over the cases that a blind classifier does not get right."""
        return self.metric.startswith("grounded_")

    @property
    def is_better_small(self) -> bool:
        """True for ranks, brittleness and unparsed answers."""
        return self.unit == "rank" or self.metric.startswith(("brittleness", "unparsed"))


def rows(results: Iterable[dict[str, Any]], everything: bool = False) -> list[Row]:
    """Rows of results (contents of evals/<name>/<step>.json), in the order of protocols.

    everything: all metrics, including groups. Otherwise the result's `summary`, headline first
    (without a summary: all metrics except groups), and metrics with a published value. Metrics
    without a number are skipped.
    """
    listed = []
    # stable: benchmarks of one protocol keep the order of the config
    for result in sorted(results, key=lambda result: display.of(result).order):
        metrics = result["metrics"]
        names = list(metrics)
        if not everything:
            summarised = _summary(result) or [name for name in names if "/" not in name]
            others = [name for name in names if name not in summarised]
            papers = [x for x in others if isinstance(metrics[x], dict) and "paper" in metrics[x]]
            names = [*summarised, *papers]
        for name in names:
            row = _row(result, name, metrics.get(name))
            if row is not None:
                listed.append(row)
    return listed


def notes(results: Iterable[dict[str, Any]]) -> list[str]:
    """Notes on results, each once after the names of its benchmarks: missing cases, tie policies
    other than strict, prompts."""
    benchmarks: dict[str, list[str]] = {}
    for result in results:
        details, listed = result.get("details"), result.get("notes")
        texts = [str(note) for note in listed] if isinstance(listed, list) else []
        tie = details.get("tie", "strict") if isinstance(details, dict) else "strict"
        if tie != "strict":
            texts.append(f"ties do not count as errors but by the policy {tie!r}")
        prompt = details.get("prompt") if isinstance(details, dict) else None
        if isinstance(prompt, dict):
            texts.append(f"prompt: {json.dumps(prompt, ensure_ascii=False)}")
        for text in texts:
            benchmarks.setdefault(text, []).append(name_of(result))
    return [f"{', '.join(names)}: {text}" for text, names in benchmarks.items()]


def headlines(results: Iterable[dict[str, Any]]) -> list[Row]:
    """Headline metrics of each benchmark.

    They are the first of its summary, those in BESIDE (R@1 in the other direction, the other
    metrics of triplets), and metrics with a published value.
    """
    headlines: dict[tuple[str, str], Row] = {}
    for row in rows(results):
        # SugarCrepe is published by subset: its groups stand beside its headline
        is_compared = row.paper is not None and (row.benchmark, "") in headlines
        key = row.metric if row.metric in BESIDE or is_compared else ""
        headlines.setdefault((row.benchmark, key), row)
    return list(headlines.values())


def mixed(mixtures: Mapping[float, Iterable[dict[str, Any]]]) -> list[list[Row]]:
    """Headline metrics of interpolated weights, one list of rows per metric, alpha as the group.

    mixtures: alpha -> results (`read_workdir.mixtures`).
    """
    by_metric: dict[tuple[str, str], list[Row]] = {}
    for alpha, results in mixtures.items():
        for row in headlines(results):
            named = dataclasses.replace(row, metric=f"{row.metric}/alpha {alpha:g}")
            by_metric.setdefault((row.benchmark, row.metric), []).append(named)
    return list(by_metric.values())


class Mark(NamedTuple):
    """A verdict of a row in tables and figures: its sign, what it is about (a column), meaning."""

    sign: str
    column: str
    meaning: str


MARKS = {  # verdict -> mark
    "at": Mark("≈", "chance", "chance lies inside the 95 % interval"),
    "below": Mark("≺", "chance", "worse than chance"),
    "blind": Mark("◇", "blind", "the 95 % interval reaches blind: such a value needs no image"),
    "below-blind": Mark("◆", "blind", "the whole 95 % interval lies below blind"),
}
LEGEND = (
    "Values in percent (ranks and scores as they are). Ties count as errors, unless a note says "
    "otherwise."
)
# column -> what it means; shown where it says something (`nulls_of`)
NULLS = {
    "blind": "blind: score of a classifier that reads the texts without the image",
    "ceiling": "ceiling: the best score of a bag of words",
    "human": "human: published",
}
_GROUNDED = "grounded: over the cases that the blind classifier does not get right"


def nulls_of(rows: Iterable[Row]) -> list[str]:
    """The columns of NULLS that say something: a ceiling of 100 % does not."""
    rows = [*rows]
    silent: dict[str, tuple[float | None, ...]] = {"ceiling": (None, 1.0)}
    return [
        name
        for name in NULLS
        if any(getattr(row, name) not in silent.get(name, (None,)) for row in rows)
    ]


def null_legend(rows: Iterable[Row]) -> str:
    """Meaning of the columns `nulls_of`, of the marks and of grounded metrics; "" without."""
    rows = [*rows]
    verdicts = {row.verdict for row in rows}
    sentences = [f"{mark.sign} {mark.meaning}" for key, mark in MARKS.items() if key in verdicts]
    sentences += [NULLS[name] for name in nulls_of(rows)]
    sentences += [_GROUNDED] if any(row.is_grounded for row in rows) else []
    return "".join(f" {sentence[0].upper()}{sentence[1:]}." for sentence in sentences)


def to_table(rows: Sequence[Row]) -> Table:
    """The result table, for every renderer of blocks."""
    paper = ["paper", "− paper"] if has_paper(rows) else []
    nulls = nulls_of(rows)
    # short: a terminal has 80 columns
    header = ["benchmark", "metric", "value", "95 %", *paper, "chance", *nulls, "n", "ties"]
    cells = []
    for row in rows:
        published = [number(row, row.paper), paper_difference(row)] if paper else []
        shown = [
            Span(row.name, "code"),
            row.label,
            Span(number(row, row.value), f"bold {row.verdict}"),
            Span(interval(row), gauge=row),
            *published,
            *(_null(row, name) for name in ("chance", *nulls)),
            "–" if row.count is None else f"{row.count:,}",
            percent(row.ties),
        ]
        cells.append(shown)
    return Table(header, cells, 2, "results", f"{LEGEND}{null_legend(rows)}")


def _null(row: Row, name: str) -> Span | str:
    """Cell of chance or a column of NULLS, with the mark that is about it."""
    text = number(row, getattr(row, name))
    is_marked = row.sign and MARKS[row.verdict].column == name
    return Span(f"{row.sign} {text}", row.verdict) if is_marked else text


def number(row: Row, value: float | None) -> str:
    """Value in the row's unit as text: percent with one decimal, a rank, or a score."""
    if row.unit == "fraction":
        return percent(value)
    return "–" if value is None else f"{value:.{1 if row.unit == 'rank' else 3}f}"


def has_paper(rows: Iterable[Row]) -> bool:
    """True if any row has a published value."""
    return any(row.paper is not None for row in rows)


def paper_difference(row: Row) -> str:
    """Signed value minus published value in the row's unit; "–" without a published value."""
    return "–" if row.paper is None else signed(row, row.value - row.paper)


def signed(row: Row, difference: float) -> str:
    """Difference in the row's unit as text: percentage points, ranks or scores."""
    factor, digits = {"fraction": (100, 1), "rank": (1, 1), "score": (1, 3)}[row.unit]
    return f"{factor * difference:+.{digits}f}".replace("-", "−")


def percent(value: float | None) -> str:
    """A share in percent, "82.4"; a dash for None."""
    return "–" if value is None else f"{100 * value:.1f}"


def interval(row: Row) -> str:
    """The interval of a row in its unit; a dash without one."""
    if row.low is None or row.high is None:
        return "–"
    return f"{number(row, row.low)}–{number(row, row.high)}"


def name_of(result: Mapping[str, Any]) -> str:
    """Name of a result's benchmark for people (`read_workdir`)."""
    return str(result.get("title") or result.get("benchmark"))


def _summary(result: dict[str, Any]) -> list[str]:
    names = result.get("summary")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _row(result: dict[str, Any], name: str, metric: Any) -> Row | None:
    if not isinstance(metric, dict):
        return None
    keys = ("value", "low", "high", "chance", "ties", "paper", *NULLS)
    numbers = {key: _number(metric.get(key)) for key in keys}
    if numbers["value"] is None:
        return None
    count = _number(metric.get("count"))
    return Row(
        benchmark=str(result.get("benchmark")),
        protocol=str(result.get("protocol")),
        metric=name,
        count=None if count is None else int(count),
        unit=unit if (unit := metric.get("unit")) in UNITS else "fraction",
        step=result["step"],
        display=display.of(result),
        title=name_of(result),
        **numbers,
    )


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if is_number else None
