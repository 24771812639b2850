"""Published values of models on benchmarks, with source, protocol and number of cases.

Beside this file:

  values.csv             a value per row, as printed; `count`: decisions behind it, if known
  checkpoints.csv        202 CLIP checkpoints, a row each, in percent (`vl_compo` in sources.csv)
  checkpoint_scores.csv  description of the 136 columns of checkpoints.csv, in their order
  sources.csv            sources of the values: papers, their authors, reruns by others
  conflicts.csv          values that contradict each other, other protocols, or their count
  missing.csv            tables of these papers that are not included

Benchmarks, metrics and protocols have our names, and so do models with values from several sources.
The protocol of a metric that none of our protocols computes is the reason:
generation (answers graded by people or by GPT-4), linear_probe (searches the weight decay of AdamW,
ours the C of L-BFGS), mean (over sets that are not listed), geometry, example, count.
"""

import csv
import difflib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SCALES = {"percent": 0.01, "points": 0.01, "fraction": 1.0, "cosine": 1.0, "count": 1.0}
FOLDER = Path(__file__).parent


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


def of_model(model: str) -> list[Value]:
    """Values of one model: papers first, then their authors elsewhere, then reruns by others.

    Raises UnknownModelError for a model without values.
    """
    of_one = [value for value in values() if value.model == model]
    if not of_one:
        known = models()
        # case-insensitive, so that "clip vit-b/32" has a near match
        folded = {name.lower(): name for name in known}
        near = difflib.get_close_matches(model.lower(), folded, n=3, cutoff=0.0)
        nearest = ", ".join(repr(folded[name]) for name in near)
        raise UnknownModelError(
            f"no published values of {model!r}; the nearest of {len(known)} models: {nearest}"
        )
    order = ("paper", "authors", "rerun")
    return sorted(of_one, key=lambda value: order.index(sources()[value.source]["kind"]))


def models() -> list[str]:
    """Names of all models, in the order of the files."""
    return list(dict.fromkeys(value.model for value in values() if value.model))


@functools.cache
def sources() -> dict[str, dict[str, str]]:
    """Source -> its row of sources.csv: kind (paper, authors or rerun), name, where."""
    return {row["source"]: row for row in rows("sources.csv")}


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
