"""Published values of models on benchmarks, with source, protocol and number of cases.

`add` puts those of the same metric, protocol and number of cases beside our results.

Beside this file:

  values.csv             a value per row, as printed; `count`: decisions behind it, if known
  unknown.csv            cells of these papers whose numbers are not known here, with the value nan
  checkpoints.csv        202 CLIP checkpoints, a row each, in percent (`vl_compo` in sources.csv)
  checkpoint_scores.csv  description of the 136 columns of checkpoints.csv, in their order
  sources.csv            sources of the values: papers, their authors, reruns by others
  conflicts.csv          values that contradict each other, other protocols, or their count
  missing.csv            tables of these papers that are not included

Benchmarks, metrics and protocols have our names, and so do models with values from several sources.
The protocol of a metric that none of our protocols computes is the reason:
generation (answers graded by people or by GPT-4), linear_probe (searches the weight decay of AdamW,
ours the C of L-BFGS), mean (over sets that are not listed), example, count.
"""

import csv
import difflib
import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vlc_jax.report import display, table

SCALES = {"percent": 0.01, "points": 0.01, "fraction": 1.0, "cosine": 1.0, "count": 1.0}
FOLDER = Path(__file__).parent
HUMAN = "human"  # the model of values of people
VQASCORE = "VQAScore"  # note of values from the probability of a generated "Yes"
NAMED = 4  # published metrics listed in a sentence


class Value(NamedTuple):
    """One published value.

    Attributes:
      subset: group of cases, "" for all.
      value: as printed, in `unit`: percent, fraction, points (percentage points), cosine, count.
      decimals: number of printed decimal places.
      protocol: a key of vlc_jax.evaluators.PROTOCOLS, or why we do not compute the metric.
      count: decisions behind the value; None if unknown.
      source: a key of `sources`. table: where in it.
    """

    benchmark: str
    subset: str
    metric: str
    model: str
    value: float
    unit: str
    protocol: str
    count: int | None
    source: str
    table: str
    note: str
    decimals: int

    @property
    def full_metric(self) -> str:
        """Name of the metric in evals/*.json: metric, or metric/subset."""
        return f"{self.metric}/{self.subset}" if self.subset else self.metric

    @property
    def number(self) -> float:
        """The value in the unit of our results: fractions instead of percent."""
        # rounded: 61.6 percent are 0.616, not 0.6160000000000001
        return round(self.value * SCALES[self.unit], 8)

    @property
    def origin(self) -> str:
        """Source and table in a few words."""
        name = sources()[self.source]["name"]
        return f"{name}, {self.table}" if self.table else name


class UnknownModelError(ValueError):
    """A model without published values; the message names the nearest ones."""


@functools.cache
def values() -> tuple[Value, ...]:
    """All values: those of values.csv, then those of the checkpoints."""
    return *(_value(**row) for row in rows("values.csv")), *checkpoint_values()


@functools.cache
def unknown() -> tuple[Value, ...]:
    """Cells of the papers' tables whose numbers are not known here."""
    return tuple(_value(**row) for row in rows("unknown.csv"))


def model_values(model: str) -> list[Value]:
    """Values of one model: papers first, then their authors elsewhere, then reruns by others.

    Raises UnknownModelError for a model without values.
    """
    found = [value for value in values() if value.model == model]
    if not found:
        known = models()
        nearest = ", ".join(map(repr, _nearest(model, known)))
        raise UnknownModelError(
            f"no published values of {model!r}; the nearest of {len(known)} models: {nearest}"
        )
    order = ("paper", "authors", "rerun")
    return sorted(found, key=lambda value: order.index(sources()[value.source]["kind"]))


def _nearest(model: str, known: Sequence[str]) -> list[str]:
    """Three names: those that begin with `model`, those that contain it, the most similar ones."""
    # case-insensitive, so that "clip vit-b/32" has a near match
    folded, word = {name.lower(): name for name in known}, model.lower()
    similar = difflib.get_close_matches(word, folded, n=len(folded), cutoff=0.0)
    # of several that begin with it, the one with most values: "CLIP" is most often "CLIP ViT-B/32"
    counts = Counter(value.model for value in values())
    parts = sorted(
        (name for name in folded if word in name), key=lambda name: -counts[folded[name]]
    )
    parts = sorted(parts, key=lambda name: not name.startswith(f"{word} "))
    return [folded[name] for name in dict.fromkeys([*parts, *similar])][:3]


def models() -> list[str]:
    """Names of all models, in the order of the files."""
    return list(dict.fromkeys(value.model for value in values() if value.model))


@functools.cache
def sources() -> dict[str, dict[str, str]]:
    """Source -> its row of sources.csv: kind (paper, authors or rerun), name, where."""
    return {row["source"]: row for row in rows("sources.csv")}


@functools.cache
def rows(name: str) -> list[dict[str, str]]:
    """Rows of one of the files, as text."""
    with (FOLDER / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _value(value: str, count: str, **fields: str) -> Value:
    decimals = len(value.partition(".")[2])
    return Value(
        value=float(value), count=int(count) if count else None, decimals=decimals, **fields
    )


def checkpoint_values() -> Iterator[Value]:
    """The values of checkpoints.csv."""
    scores = rows("checkpoint_scores.csv")
    names = [f"{s['benchmark']} {s['metric']}{s['subset'] and '/' + s['subset']}" for s in scores]
    origin = {"unit": "percent", "source": "vl_compo", "table": ""}
    for row in rows("checkpoints.csv"):
        for name, score in zip(names, scores, strict=True):
            yield _value(row[name], model=row["model"], **score, **origin)


def printed(result: Mapping[str, Any]) -> list[str]:
    """Metrics in published tables of a result's benchmark and protocol (`full_metric`), in their
    order."""
    metrics = [
        f"{row['metric']}/{row['subset']}".rstrip("/")
        for row in (*rows("values.csv"), *rows("checkpoint_scores.csv"))
        if row["benchmark"] in _names(result) and row["protocol"] == result["protocol"]
    ]
    return [*dict.fromkeys(metrics)]


def add(model: str, results: Iterable[dict[str, Any]]) -> list[str]:
    """Adds the published values of `model` to matching metrics of results, as their field "paper".

    results: contents of evals/*.json, modified in place; `table.rows` reads the field. The first of
    several sources counts; papers come before reruns by others.

    Returns sentences: the sources of the values, and why each other row has none.

    Raises:
      UnknownModelError: a model without published values; it names the nearest ones.
    """
    values = model_values(model)
    origins: dict[str, dict[str, None]] = {}
    left_out: dict[str, None] = {}
    without: dict[str, None] = {}
    for result in results:
        name = str(result.get("benchmark"))
        candidates = [value for value in values if value.benchmark in _names(result)]
        alike = [value for value in candidates if _has_same_scores(result, value)]
        if not candidates:
            without[name] = None
        # all metrics: a paper may print groups that our summary leaves out
        for row in table.rows([result], everything=True):
            if value := next((value for value in alike if is_same(row, value)), None):
                result["metrics"][row.metric]["paper"] = value.number
                named = name if value.count else f"{name} (number of cases not published)"
                origins.setdefault(value.origin, {})[named] = None
        if candidates:
            left_out |= dict.fromkeys(_left_out(result, candidates, alike))
    return _sentences(model, origins, left_out, without)


def find(value: Value, results: Iterable[dict[str, Any]]) -> table.Row | None:
    """The row of a published value in results (contents of evals/*.json); None if there is none."""
    for result in results:
        if value.benchmark in _names(result) and _has_same_scores(result, value):
            rows = table.rows([result], everything=True)
            if row := next((row for row in rows if is_same(row, value)), None):
                return row
    return None


def add_human(results: Iterable[dict[str, Any]]) -> None:
    """Adds the published values of people to matching metrics of results, as their field "human".

    Their number of cases is mostly smaller than ours. results: as in `add`.
    """
    for result in results:
        for row in table.rows([result], everything=True):
            value = human(*_names(result), row)
            if value is not None:
                result["metrics"][row.metric]["human"] = value


def human(benchmark: str, reader: str, row: table.Row) -> float | None:
    """Published value of people on a metric of a benchmark; None if there is none."""
    # a second set of options is filed as NAME@HASH
    names = (benchmark.partition("@")[0], reader)
    for value in _human_values():
        if value.benchmark in names and is_same(row, value._replace(count=None)):
            return value.number
    return None


@functools.cache
def _human_values() -> tuple[Value, ...]:
    return tuple(_value(**row) for row in rows("values.csv") if row["model"] == HUMAN)


def _has_same_scores(result: dict[str, Any], value: Value) -> bool:
    """True if both or neither score captions by VQAScore with its end token."""
    prompt = result.get("details", {}).get("prompt", {})
    is_vqascore = bool(prompt.get("question")) and prompt.get("eos", True)
    if display.of(result).asks:
        # questions of the protocol's own
        return True
    return is_vqascore == (value.note == VQASCORE)


def _names(result: Mapping[str, Any]) -> tuple[str, str]:
    """Names of a result's benchmark in published values: without a hash (a second set of options is
    filed as NAME@HASH), and its reader."""
    return str(result.get("benchmark")).partition("@")[0], str(result.get("reader"))


def is_same(row: table.Row, value: Value) -> bool:
    """True if a published value of the same benchmark has our metric, protocol and number of
    decisions; an unpublished number matches any."""
    is_score = value.unit == "cosine"
    named_alike = (value.full_metric, value.protocol) == (full_metric(row), row.protocol)
    return named_alike and value.count in (None, row.count) and is_score == (row.unit == "score")


def full_metric(row: table.Row) -> str:
    """Metric as named by published values: a group "subset=swap_obj" without its kind."""
    name, slash, group = row.metric.partition("/")
    return name + slash + group.rpartition("=")[2]


def _left_out(
    result: dict[str, Any], candidates: Sequence[Value], alike: Sequence[Value]
) -> Iterable[str]:
    """Reasons why rows of the table have no published value, unless another form of the metric (a
    group, or the mean over groups) has one. alike: candidates with `_has_same_scores`."""
    rows = table.rows([result])
    compared = {_stem(row.metric) for row in rows if row.paper is not None}
    for row in rows:
        if _stem(row.metric) not in compared and not row.is_grounded:
            yield f"{row.benchmark}, {row.label}: {_difference(row, candidates, alike)}"


def _stem(metric: str) -> str:
    return metric.partition("/")[0].removesuffix("_macro")


def _difference(row: table.Row, candidates: Sequence[Value], alike: Sequence[Value]) -> str:
    same = [value for value in candidates if value.full_metric == full_metric(row)]
    same_protocol = [value for value in same if value.protocol == row.protocol]
    if same_protocol and not {*same_protocol} & {*alike}:
        note = same_protocol[0].note
        how = "by VQAScore with its end token, here otherwise" if note == VQASCORE else "otherwise"
        return f"published {how}"
    if same_protocol:
        counts = " or ".join(dict.fromkeys(f"{value.count:,}" for value in same_protocol))
        return f"published of {counts} decisions, here of {row.count or 0:,}"
    if same:
        protocols = " and ".join(dict.fromkeys(value.protocol for value in same))
        return f"published under the protocol {protocols}, here under {row.protocol}"
    names = [*dict.fromkeys(f"{value.full_metric} ({value.protocol})" for value in candidates)]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"published is {', '.join(names[:NAMED])}{more}"


def _sentences(
    model: str, origins: dict[str, dict[str, None]], left_out: Iterable[str], without: Iterable[str]
) -> list[str]:
    sentences = [
        f"Paper: {model}. {origin}: {', '.join(names)}." for origin, names in origins.items()
    ]
    sentences += [f"Not compared with {model}: {reason}." for reason in left_out]
    if without:
        sentences.append(f"No published value of {model}: {', '.join(without)}.")
    return sentences
