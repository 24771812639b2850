"""Published values beside our results, where metric, protocol and number of cases are the same."""

from collections.abc import Iterable, Sequence
from typing import Any

from vlc_jax.report import display, published, table
from vlc_jax.report.published import Value

VQASCORE = "VQAScore"  # note of values that a generative model's answer "Yes" gave
SHOWN = 4  # metrics that are named as published ones


def add(model: str, results: Iterable[dict[str, Any]]) -> list[str]:
    """Writes the published values of `model` into the metrics of results that they fit: "paper".

    results: contents of evals/*.json, which are changed; `table.rows` reads the field. Of several
    sources the first counts, papers before reruns by others.

    Returns sentences: where the values come from, and for each row left out why.

    Raises:
      published.UnknownModelError: a model without published values; it names the nearest ones.
    """
    values = published.of_model(model)
    origins: dict[str, dict[str, None]] = {}
    left_out: dict[str, None] = {}
    without: dict[str, None] = {}
    for result in results:
        name = str(result.get("benchmark"))
        # A benchmark that was asked in two ways is filed as NAME@HASH; its reader has our name.
        candidates = [v for v in values if v.benchmark in (name.partition("@")[0], _reader(result))]
        alike = [value for value in candidates if _is_asked_alike(result, value)]
        if not candidates:
            without[name] = None
        for row in table.rows([result], everything=True):
            if value := _fitting(row, alike):
                result["metrics"][row.metric]["paper"] = value.number
                origins.setdefault(value.origin, {})[_named(name, value)] = None
        if candidates:
            left_out |= dict.fromkeys(_left_out(result, candidates, alike))
    return _sentences(model, origins, left_out, without)


def _is_asked_alike(result: dict[str, Any], value: Value) -> bool:
    """True if both or neither scored captions by VQAScore with its end token."""
    prompt = result.get("details", {}).get("prompt", {})
    is_vqascore = bool(prompt.get("question")) and prompt.get("eos", True)
    if display.of(result).asks:
        return True  # questions of the protocol's own
    return is_vqascore == (value.note == VQASCORE)


def _reader(result: dict[str, Any]) -> str:
    return str(result.get("reader"))


def _fitting(row: table.Row, candidates: Sequence[Value]) -> Value | None:
    """The first value of the same metric, protocol and number of decisions; None without one."""
    return next((value for value in candidates if is_same(row, value)), None)


def is_same(row: table.Row, value: Value) -> bool:
    """True if a published value of the same benchmark has our metric, protocol and number of
    decisions; one whose number is not published counts as the same."""
    is_score = value.unit == "cosine"
    named_alike = (value.full_metric, value.protocol) == (_full_metric(row), row.protocol)
    return named_alike and value.count in (None, row.count) and is_score == (row.unit == "score")


def _full_metric(row: table.Row) -> str:
    """Metric as published values name it: a group without its kind, "subset=swap_obj"."""
    name, slash, group = row.metric.partition("/")
    return name + slash + group.rpartition("=")[2]


def _named(benchmark: str, value: Value) -> str:
    return benchmark if value.count else f"{benchmark} (number of cases not published)"


def _left_out(
    result: dict[str, Any], candidates: Sequence[Value], alike: Sequence[Value]
) -> Iterable[str]:
    """Reasons why rows of the table have no published value, unless a form of their metric has: by
    group, or as the mean over groups. alike: candidates that were asked as the result was."""
    rows = table.rows([result])
    compared = {_stem(row.metric) for row in rows if row.paper is not None}
    for row in rows:
        if _stem(row.metric) not in compared:
            yield f"{row.benchmark}, {row.label}: {_difference(row, candidates, alike)}"


def _stem(metric: str) -> str:
    return metric.partition("/")[0].removesuffix("_macro")


def _difference(row: table.Row, candidates: Sequence[Value], alike: Sequence[Value]) -> str:
    same = [value for value in candidates if value.full_metric == _full_metric(row)]
    of_protocol = [value for value in same if value.protocol == row.protocol]
    if of_protocol and not {*of_protocol} & {*alike}:
        note = of_protocol[0].note
        how = "by VQAScore with its end token, here otherwise" if note == VQASCORE else "otherwise"
        return f"published {how}"
    if of_protocol:
        counts = " or ".join(dict.fromkeys(f"{value.count:,}" for value in of_protocol))
        return f"published of {counts} decisions, here of {row.count or 0:,}"
    if same:
        protocols = " and ".join(dict.fromkeys(value.protocol for value in same))
        return f"published under the protocol {protocols}, here under {row.protocol}"
    names = [*dict.fromkeys(f"{value.full_metric} ({value.protocol})" for value in candidates)]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"published is {', '.join(names[:SHOWN])}{more}"


def _sentences(
    model: str,
    origins: dict[str, dict[str, None]],
    left_out: Iterable[str],
    without: Iterable[str],
) -> list[str]:
    sentences = [
        f"Paper: {model}. {origin}: {', '.join(names)}." for origin, names in origins.items()
    ]
    sentences += [f"Not compared with {model}: {reason}." for reason in left_out]
    if without:
        sentences.append(f"No published value of {model}: {', '.join(without)}.")
    return sentences
