"""Page of every published value beside chance and the nulls of its set (judged.py).

published_page.js shows the tables, which are one JSON object (`collect`).
"""

import collections
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from vlc_jax.report import cases, judged, page, published, table
from vlc_jax.report.judged import Difference, has_blind, outcome, row
from vlc_jax.report.published import Value
from vlc_jax.run import workdir_files

# rows of a set's size and of chance, whose values no model reached
_NO_MODELS = ("", "chance")


def write(path: Path) -> Path:
    """Writes the page, which needs no other file and no network; returns `path`."""
    context = {
        "css": "".join((page.FOLDER / name).read_text() for name in ("report.css", "cases.css")),
        "script": (page.FOLDER / "published_page.js").read_text(),
        "data": cases.to_script(collect()),
        "summary": summary(),
        "outcomes": judged.OUTCOMES,
    }
    text = page.environment().get_template("published_page.html.jinja").render(context)
    path.parent.mkdir(parents=True, exist_ok=True)
    workdir_files.replace(path, text)
    return path


def of_models() -> list[tuple[Value, table.Row]]:
    """Values of models, with their rows; without those of chance and of sets."""
    return [(v, row(v)) for v in published.values() if v.model not in _NO_MODELS]


def summary() -> dict[str, Any]:
    """Numbers of the page's first sentences.

    values, models: how many. outcomes: of values with a blind null -> number. claims, of papers and
    their authors, and reruns, by others: outcome of a difference -> number. better: of the
    differences that are better, and whose set has a blind null: outcome of the method -> number.
    """
    rows = of_models()
    outcomes = [outcome(of) for _, of in rows if has_blind(of) and of.low is not None]
    kinds = {
        kind: [each for each in judged.differences() if judged.is_rerun(each.method) == is_rerun]
        for kind, is_rerun in (("claims", False), ("reruns", True))
    }
    better = [row(each.method) for of in kinds.values() for each in of if each.outcome == "better"]
    return {
        "values": len(published.values()),
        "models": len({value.model for value, _ in rows} - {published.HUMAN}),
        "outcomes": collections.Counter(outcomes),
        **{kind: collections.Counter(each.outcome for each in of) for kind, of in kinds.items()},
        "better": collections.Counter(outcome(of) for of in better if has_blind(of)),
    }


def collect() -> dict[str, Any]:
    """Tables of the page, ready for JSON: name -> {columns: [[title, kind], ...], rows}.

    kind: "text", "percent", "range" (two percentages), "points", "interval" (two differences),
    "count" or "mark" (a key of OUTCOMES). Rows of `values` hold indices into its lists.
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
            ("source", "text"), rows=map(_difference_cells, judged.differences()),
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


def _sets(rows: Iterable[tuple[Value, table.Row]]) -> Iterator[list[Any]]:
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


def _models(rows: Iterable[tuple[Value, table.Row]]) -> Iterator[list[Any]]:
    by_model: dict[str, list[table.Row]] = {}
    for value, of in rows:
        if has_blind(of) and of.low is not None and value.model != published.HUMAN:
            by_model.setdefault(value.model, []).append(of)
    for model, of_model in by_model.items():
        counts = _count_outcomes(of_model)
        yield [model, len(of_model), *counts, len(of_model) - sum(counts)]


def _claims() -> Iterator[list[Any]]:
    by_claim: dict[tuple[str, str, str], list[Difference]] = {}
    for each in judged.differences():
        key = (each.method.model, each.baseline.model, each.method.origin)
        by_claim.setdefault(key, []).append(each)
    for (method, baseline, origin), differences in by_claim.items():
        counts = collections.Counter(each.outcome for each in differences)
        better = [row(each.method) for each in differences if each.outcome == "better"]
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
                [*judged.OUTCOMES].index(outcome(of)), _percent(of.value), *both,
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
        "outcomes": [*judged.OUTCOMES],
        "rows": lines,
    }
