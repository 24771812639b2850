"""Published values beside chance and the nulls of their sets, and the differences between a paper's
method and its baseline.

The nulls are those of the published files (`nulls.table`); claims.csv lists the differences,
effective.csv the sets whose cases share images.
"""

import functools
import math
import statistics
from typing import NamedTuple

from vlc_jax.input_pipeline.benchmarks import nulls
from vlc_jax.report import published, table
from vlc_jax.report.paired import Z
from vlc_jax.report.published import Value

# Options of a case of sets without printed chance and without nulls.
OPTIONS = {
    "vg_relation": 2,
    "vg_attribution": 2,
    "flickr30k_order": 5,
    "coco_order": 5,
    "crepe_productivity": 6,
    "imagecode": 10,
    "svo_probes": 2,
    "vl_checklist": 2,
    "clevr_bind": 5,
    "ncd_squares": 2,
    "negbench": 4,
}
PAIRS = {"text_score": 1 / 4, "image_score": 1 / 4, "pair_accuracy": 1 / 4, "group_score": 1 / 6}
# (benchmark, published subset) -> subset of the nulls, where it has another name
_SUBSETS = {
    ("imagecode", "videos"): "video",
    # 1,000 of these 30,650 cases: the only source of the subset
    ("vl_checklist", "relation_spatial"): "Relation/spatial/vg",
}
_METRICS = {"text_score": "pair_accuracy"}  # published metric -> the same of nulls.METRICS
_NOT_SHARES = ("mean", "count", "geometry", "example")  # protocols
OUTCOMES = {  # of a value -> its mark, and what the mark says
    "above": ("", "above chance and, where it is known, above blind"),
    "at": ("≈", "chance lies inside the 95 % interval"),
    "below": ("▼", "worse than chance"),
    "blind": (table.BLIND, "above chance, but the interval reaches blind"),
    "below blind": ("◆", "the whole interval lies below blind"),
    "": ("", "no interval, or chance is unknown"),
}


class Difference(NamedTuple):
    """Method minus baseline of one metric in one table, in [-1, 1], larger is better.

    low, high: Newcombe's 95 % interval of two independent samples; None without a number of cases.
    """

    method: Value
    baseline: Value
    value: float
    low: float | None
    high: float | None

    @property
    def outcome(self) -> str:
        """better, worse, not resolved (the interval holds 0) or no interval."""
        if self.low is None or self.high is None:
            return "no interval"
        return "better" if self.low > 0 else "worse" if self.high < 0 else "not resolved"


def wilson(value: float, count: float) -> tuple[float, float]:
    """Wilson's score interval of the proportion `value` of `count` draws.

    As in evaluators/stats.py, which this room does not import: a test compares the two.
    """
    centre = value + Z**2 / (2 * count)
    half = Z * math.sqrt(value * (1 - value) / count + Z**2 / (4 * count**2))
    scale = 1 + Z**2 / count
    # rounding may put a limit outside [0, 1] or on the wrong side of the value
    low, high = min((centre - half) / scale, value), max((centre + half) / scale, value)
    return max(0.0, low), min(1.0, high)


def interval(value: Value) -> tuple[float, float] | None:
    """95 % interval of a published share, wider by half a unit of its last printed digit.

    None for values that are no share of a known number of cases. Cases of one image count by their
    effective number (effective.csv), as in our results; means over subsets as shares of all cases.
    """
    is_share = value.unit in ("percent", "fraction") and value.protocol not in _NOT_SHARES
    if not (is_share and value.count) or value.metric == "roc_auc":
        return None
    half = 0.5 * published.SCALES[value.unit] / 10 ** _decimals()[_table_of(value)]
    low, high = max(0.0, value.number - half), min(1.0, value.number + half)
    count = effective_count(value)
    return wilson(low, count)[0], wilson(high, count)[1]


def effective_count(value: Value) -> float:
    """Kish's effective number of cases where the cases of a value share images, as in our results.

    Some sets were printed with a case more (SugarCrepe's swap_obj); images as queries share none.
    """
    assert value.count
    cases, effective = _effective().get((value.benchmark, value.subset), (0, 0))
    is_known = abs(value.count - cases) <= 1
    return value.count * effective / cases if is_known else value.count


@functools.cache
def _effective() -> dict[tuple[str, str], tuple[int, int]]:
    """(benchmark, subset) -> cases, effective number of them."""
    return {
        (row["benchmark"], row["subset"]): (int(row["cases"]), int(row["effective"]))
        for row in published.rows("effective.csv")
    }


def _table_of(value: Value) -> tuple[str, str, str]:
    return value.source, value.table, value.unit


@functools.cache
def _decimals() -> dict[tuple[str, str, str], int]:
    """Printed digits of a table: those of its longest value, as files may omit zeros at the end."""
    digits: dict[tuple[str, str, str], int] = {}
    for value in published.values():
        key = _table_of(value)
        digits[key] = max(digits.get(key, 0), value.decimals)
    return digits


@functools.cache
def _nulls() -> dict[tuple[str, str, str], list[nulls.Null]]:
    """(benchmark, subset, metric) -> its row of the frozen nulls; subset "": the rows of all."""
    by_key: dict[tuple[str, str, str], list[nulls.Null]] = {}
    for rows in nulls.table().values():
        for row in rows:
            for subset in {row.subset, ""}:
                by_key.setdefault((row.benchmark, subset, row.metric), []).append(row)
    return by_key


def null(value: Value, name: str) -> float | None:
    """Null `name` ("blind", "ceiling") of a published value; None if it is unknown.

    The null of a mean over subsets is the mean of their nulls.
    """
    stem = value.metric.removesuffix("_macro")
    subset = _SUBSETS.get((value.benchmark, value.subset), value.subset)
    rows = _nulls().get((value.benchmark, subset, _METRICS.get(stem, stem)), [])
    is_of_all = bool(subset) or stem != value.metric or len(rows) == 1
    if not rows or not is_of_all or value.protocol not in nulls.METRICS:
        return None
    return statistics.fmean(getattr(row, name) for row in rows)


def chance(value: Value) -> float | None:
    """Chance of a published value: as printed, of its nulls, or of the number of its options."""
    printed = _printed_chance().get((value.benchmark, value.subset, value.metric, value.protocol))
    if printed is not None:
        return printed
    if value.protocol == "pairs" and value.metric in PAIRS:
        return PAIRS[value.metric]
    if (known := null(value, "chance")) is not None:
        return known
    if value.protocol == "triplet" and value.metric.startswith("original_accuracy"):
        return 1 / 2
    is_choice = value.protocol == "choice" and value.metric.startswith("accuracy")
    return 1 / OPTIONS[value.benchmark] if is_choice and value.benchmark in OPTIONS else None


@functools.cache
def _printed_chance() -> dict[tuple[str, ...], float]:
    return {
        (value.benchmark, value.subset, value.metric, value.protocol): value.number
        for value in published.values()
        if value.model == "chance"
    }


def row(value: Value) -> table.Row:
    """A published value as a row of our tables: with interval, chance and nulls."""
    low, high = interval(value) or (None, None)
    return table.Row(
        benchmark=value.benchmark,
        protocol=value.protocol,
        metric=value.full_metric,
        value=value.number,
        low=low,
        high=high,
        chance=chance(value),
        count=value.count,
        ties=None,
        unit="score" if value.unit in ("cosine", "count") else "fraction",
        step=0,
        blind=null(value, "blind"),
        ceiling=null(value, "ceiling"),
    )


def has_blind(of: table.Row) -> bool:
    """True if texts can say something: not of pairs, which cancel, nor of images as options."""
    return bool(of.blind) and of.blind != of.chance


def outcome(of: table.Row) -> str:
    """Verdict on a row, a key of OUTCOMES: its 95 % interval against chance and blind."""
    is_below = of.verdict == "blind" and of.high is not None and of.blind is not None
    return "below blind" if is_below and of.high < of.blind else of.verdict


@functools.cache
def differences() -> tuple[Difference, ...]:
    """Differences of each pair of claims.csv in every metric that both rows of the table have.

    Reruns by vl_compo count only on sets of compositional cases.
    """
    by_model: dict[tuple[str, str, str], dict[tuple[str, str, str], Value]] = {}
    for value in published.values():
        if value.source != "vl_compo" or value.protocol in nulls.METRICS:
            of_row = by_model.setdefault((value.source, value.table, value.model), {})
            of_row.setdefault((value.benchmark, value.subset, value.metric), value)
    return tuple(
        _difference(method, baseline)
        for claim in published.rows("claims.csv")
        for key, method in by_model[claim["source"], claim["table"], claim["method"]].items()
        if (baseline := by_model[claim["source"], claim["table"], claim["baseline"]].get(key))
        and method.unit in ("percent", "fraction")
    )


def _difference(method: Value, baseline: Value) -> Difference:
    """Difference of two values, with Newcombe's interval (Statistics in Medicine 1998, method 10).

    Two models err on the same cases more often than independent ones would: the interval of their
    paired difference is narrower, but needs the cases. The intervals of both include rounding.
    """
    # less is better: first and second change places
    better, worse = (baseline, method) if row(method).is_better_small else (method, baseline)
    value = better.number - worse.number
    first, second = interval(better), interval(worse)
    if first is None or second is None:
        return Difference(method, baseline, value, None, None)
    low = value - math.hypot(better.number - first[0], second[1] - worse.number)
    high = value + math.hypot(first[1] - better.number, worse.number - second[0])
    return Difference(method, baseline, value, low, high)


def is_rerun(value: Value) -> bool:
    """True for a value that others than the method's authors measured."""
    return published.sources()[value.source]["kind"] == "rerun"
