"""Page of every published value beside chance and the nulls of its set, and of the differences
between a paper's method and its baseline.

The nulls are those of the published files (`nulls.table`); claims.csv lists the differences.
published_page.js shows the tables, which are one JSON object (`collect`).
"""

import collections
import functools
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vlc_jax.input_pipeline.benchmarks import nulls
from vlc_jax.report import cases, page, published, table
from vlc_jax.report.paired import Z
from vlc_jax.report.published import Value
from vlc_jax.run import workdir_files

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
_MODELS = ("", "chance")  # not models
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
        if self.low is None or self.high is None:
            return "no interval"
        return "better" if self.low > 0 else "worse" if self.high < 0 else "not resolved"


def write(path: Path) -> Path:
    """Writes the page, which needs no other file and no network; returns `path`."""
    context = {
        "css": "".join((page.FOLDER / name).read_text() for name in ("report.css", "cases.css")),
        "script": (page.FOLDER / "published_page.js").read_text(),
        "data": cases.to_script(collect()),
        "summary": summary(),
        "outcomes": OUTCOMES,
    }
    text = page.environment().get_template("published_page.html.jinja").render(context)
    path.parent.mkdir(parents=True, exist_ok=True)
    workdir_files.replace(path, text)
    return path


def wilson(value: float, count: float) -> tuple[float, float]:
    """Wilson's score interval of the proportion `value` of `count` draws, as in our results."""
    centre = value + Z**2 / (2 * count)
    half = Z * math.sqrt(value * (1 - value) / count + Z**2 / (4 * count**2))
    return (centre - half) / (1 + Z**2 / count), (centre + half) / (1 + Z**2 / count)


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
    count = value.count * _effective().get((value.benchmark, value.subset), 1.0)
    return max(0.0, wilson(low, count)[0]), min(1.0, wilson(high, count)[1])


@functools.cache
def _effective() -> dict[tuple[str, str], float]:
    """Kish's effective number of cases as a share of the cases, of sets that share images."""
    return {
        (row["benchmark"], row["subset"]): int(row["effective"]) / int(row["cases"])
        for row in published.rows("effective.csv")
    }


def _table_of(value: Value) -> tuple[str, str, str]:
    return value.source, value.table, value.unit


@functools.cache
def _decimals() -> dict[tuple[str, str, str], int]:
    """Printed digits of a table: those of its longest value, as files may omit zeros at the end."""
    found: dict[tuple[str, str, str], int] = {}
    for value in published.values():
        key = _table_of(value)
        found[key] = max(found.get(key, 0), value.decimals)
    return found


@functools.cache
def _nulls() -> dict[tuple[str, str, str], list[nulls.Null]]:
    """(benchmark, subset, metric) -> its row of the frozen nulls; subset "": the rows of all."""
    found: dict[tuple[str, str, str], list[nulls.Null]] = {}
    for rows in nulls.table().values():
        for row in rows:
            for subset in {row.subset, ""}:
                found.setdefault((row.benchmark, subset, row.metric), []).append(row)
    return found


def null(value: Value, name: str) -> float | None:
    """The null `name` ("blind", "ceiling") of a published value; None if it is unknown.

    Of a mean over subsets: the mean of their nulls.
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
    """A key of OUTCOMES: the 95 % interval against chance and blind."""
    is_below = of.verdict == "blind" and of.high is not None and of.blind is not None
    return "below blind" if is_below and of.high < of.blind else of.verdict


def differences() -> list[Difference]:
    """Of each pair of claims.csv, every metric that both rows of the table have.

    Of the reruns by vl_compo only sets of compositional cases.
    """
    found: dict[tuple[str, str, str], dict[tuple[str, str, str], Value]] = {}
    for value in published.values():
        if value.source != "vl_compo" or value.protocol in nulls.METRICS:
            of_row = found.setdefault((value.source, value.table, value.model), {})
            of_row.setdefault((value.benchmark, value.subset, value.metric), value)
    return [
        _difference(method, baseline)
        for claim in published.rows("claims.csv")
        for key, method in found[claim["source"], claim["table"], claim["method"]].items()
        if (baseline := found[claim["source"], claim["table"], claim["baseline"]].get(key))
        and method.unit in ("percent", "fraction")
    ]


def _difference(method: Value, baseline: Value) -> Difference:
    """Newcombe, Statistics in Medicine 1998, method 10, of intervals that include rounding.

    Two models err on the same cases more often than independent ones would: the interval of their
    paired difference is narrower, but needs the cases.
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


def _is_rerun(value: Value) -> bool:
    return published.sources()[value.source]["kind"] == "rerun"


def of_models() -> list[tuple[Value, table.Row]]:
    """Values of models, with their rows; without those of chance and of sets."""
    return [(v, row(v)) for v in published.values() if v.model not in _MODELS]


def summary() -> dict[str, Any]:
    """Numbers of the page's first sentences.

    values, models: how many. outcomes: of values with a blind null -> number. claims, of papers and
    their authors, and reruns, by others: outcome of a difference -> number. better: of the
    differences that are better, and whose set has a blind null: outcome of the method -> number.
    """
    rows = of_models()
    models = {value.model for value, _ in rows}
    judged = collections.Counter(
        outcome(of) for _, of in rows if has_blind(of) and of.low is not None
    )
    kinds = {"claims": False, "reruns": True}
    found = {
        kind: [each for each in differences() if _is_rerun(each.method) == is_rerun]
        for kind, is_rerun in kinds.items()
    }
    better = [row(each.method) for of in found.values() for each in of if each.outcome == "better"]
    return {
        "values": len(published.values()),
        "models": len(models),
        "outcomes": judged,
        **{kind: collections.Counter(each.outcome for each in of) for kind, of in found.items()},
        "better": collections.Counter(outcome(of) for of in better if has_blind(of)),
    }


def collect() -> dict[str, Any]:
    """Tables of the page, ready for JSON: name -> {columns: [[title, kind], ...], rows}.

    kind: "text", "percent", "range" (two percentages), "points", "interval" (two differences),
    "count" or "mark" (a key of OUTCOMES). Cells of `values` after the model and the numbers are an
    index into its list `scores`.
    """
    rows = of_models()
    return {
        "sets": _table(
            ("set", "text"), ("metric", "text"), ("chance", "percent"), ("blind", "percent"),
            ("ceiling", "percent"), ("models", "count"), ("above blind", "count"),
            ("reaches blind ◇", "count"), ("below blind ◆", "count"), ("best", "percent"),
            ("best model", "text"), rows=_sets(rows),
        ),
        "claims": _table(
            ("method", "text"), ("baseline", "text"), ("better", "count"),
            ("not resolved", "count"), ("worse", "count"), ("no interval", "count"),
            ("better, not above blind", "count"), ("source", "text"), rows=_claims(),
        ),
        "differences": _table(
            ("method", "text"), ("baseline", "text"), ("set", "text"), ("metric", "text"),
            ("method’s", "percent"), ("baseline’s", "percent"), ("better by", "points"),
            ("95 %", "interval"), ("outcome", "text"), ("against blind", "mark"), ("n", "count"),
            ("source", "text"), rows=map(_difference_cells, differences()),
        ),
        "models": _table(
            ("model", "text"), ("values with blind", "count"), ("above blind", "count"),
            ("reaches blind ◇", "count"), ("below blind ◆", "count"), ("≈ or ▼ chance", "count"),
            rows=_models(rows),
        ),
        "values": _values(rows),
    }  # fmt: skip


def _table(*columns: tuple[str, str], rows: Iterable[Sequence[Any]]) -> dict[str, Any]:
    return {"columns": columns, "rows": [*rows]}


def _percent(number: float | None) -> float | None:
    return None if number is None else round(100 * number, 2)


def _set(value: Value) -> str:
    return f"{value.benchmark} {value.subset}".strip()


def _metric(value: Value) -> str:
    return value.metric.replace("_macro", ", mean of groups").replace("_", " ")


def _count_outcomes(rows: Iterable[table.Row]) -> list[int]:
    """Above blind, reaching it, below it; at or below chance is the rest."""
    counts = collections.Counter(map(outcome, rows))
    return [counts["above"], counts["blind"], counts["below blind"]]


def _sets(rows: Iterable[tuple[Value, table.Row]]) -> Iterable[list[Any]]:
    """A line per set and metric with a blind null: each model's best value counts once."""
    by_set: dict[tuple[str, str], dict[str, tuple[Value, table.Row]]] = {}
    for value, of in rows:
        if has_blind(of) and of.low is not None and value.model != published.HUMAN:
            best = by_set.setdefault((_set(value), _metric(value)), {})
            if value.model not in best or of.value > best[value.model][1].value:
                best[value.model] = (value, of)
    for names, best in by_set.items():
        value, of = max(best.values(), key=lambda each: each[1].value)
        counts = _count_outcomes(each for _, each in best.values())
        nulls_of = map(_percent, (of.chance, of.blind, of.ceiling))
        yield [*names, *nulls_of, len(best), *counts, _percent(of.value), value.model]


def _models(rows: Iterable[tuple[Value, table.Row]]) -> Iterable[list[Any]]:
    by_model: dict[str, list[table.Row]] = {}
    for value, of in rows:
        if has_blind(of) and of.low is not None:
            by_model.setdefault(value.model, []).append(of)
    for model, of_model in by_model.items():
        counts = _count_outcomes(of_model)
        yield [model, len(of_model), *counts, len(of_model) - sum(counts)]


def _claims() -> Iterable[list[Any]]:
    by_claim: dict[tuple[str, str, str], list[Difference]] = {}
    for each in differences():
        key = (each.method.model, each.baseline.model, each.method.origin)
        by_claim.setdefault(key, []).append(each)
    for (method, baseline, origin), found in by_claim.items():
        counts = collections.Counter(each.outcome for each in found)
        better = [row(each.method) for each in found if each.outcome == "better"]
        in_vain = sum(has_blind(of) and outcome(of) != "above" for of in better)
        of_each = (counts[name] for name in ("better", "not resolved", "worse", "no interval"))
        yield [method, baseline, *of_each, in_vain, origin]


def _difference_cells(each: Difference) -> list[Any]:
    of, value = row(each.method), each.method
    both = [_percent(each.low), _percent(each.high)]
    protocols = dict.fromkeys((value.protocol, each.baseline.protocol))
    metric = _metric(value) + (f" ({' − '.join(protocols)})" if len(protocols) > 1 else "")
    return [
        value.model, each.baseline.model, _set(value), metric, _percent(value.number),
        _percent(each.baseline.number), _percent(each.value), both, each.outcome,
        outcome(of) if has_blind(of) else "", value.count, value.origin,
    ]  # fmt: skip


def _values(rows: Iterable[tuple[Value, table.Row]]) -> dict[str, Any]:
    """All values that are a percentage: 28,000 lines, so what they share is in `scores`."""
    models: dict[str, int] = {}
    scores: dict[tuple[Any, ...], int] = {}
    lines = []
    for value, of in rows:
        if of.unit == "fraction":  # neither a cosine nor a number of cases
            nulls_of = map(_percent, (of.chance, of.blind, of.ceiling))
            score = (_set(value), _metric(value), value.protocol, *nulls_of, value.count,
                     value.origin)  # fmt: skip
            both = [] if of.low is None else [round(100 * of.low, 1), round(100 * of.high, 1)]
            lines.append([
                models.setdefault(value.model, len(models)),
                scores.setdefault(score, len(scores)),
                [*OUTCOMES].index(outcome(of)), _percent(of.value), *both,
            ])  # fmt: skip
    columns = [
        ("model", "text"), ("set", "text"), ("metric", "text"), ("value", "percent"),
        ("95 %", "range"), ("", "mark"), ("chance", "percent"), ("blind", "percent"),
        ("ceiling", "percent"), ("n", "count"), ("protocol", "text"), ("source", "text"),
    ]  # fmt: skip
    return {
        "columns": columns,
        "models": [*models],
        "scores": [*scores],
        "outcomes": [*OUTCOMES],
        "rows": lines,
    }
