"""Published values of the same metric, protocol and number of cases, added to our results."""

from collections.abc import Iterable, Sequence
from typing import Any

from vlc_jax.report import display, published, table
from vlc_jax.report.published import Value

VQASCORE = "VQAScore"  # note of values from the probability of a generated "Yes"
NAMED = 4  # published metrics listed in a sentence


def add(model: str, results: Iterable[dict[str, Any]]) -> list[str]:
    """Adds the published values of `model` to matching metrics of results, as their field "paper".

    results: contents of evals/*.json, modified in place; `table.rows` reads the field. The first of
    several sources counts; papers come before reruns by others.

    Returns sentences: the sources of the values, and why each other row has none.

    Raises:
      published.UnknownModelError: a model without published values; it names the nearest ones.
    """
    values = published.of_model(model)
    origins: dict[str, dict[str, None]] = {}
    left_out: dict[str, None] = {}
    without: dict[str, None] = {}
    for result in results:
        name = str(result.get("benchmark"))
        # A second set of options is filed as NAME@HASH; published values may also name the reader.
        candidates = [v for v in values if v.benchmark in (name.partition("@")[0], _reader(result))]
        alike = [value for value in candidates if _has_same_scores(result, value)]
        if not candidates:
            without[name] = None
        for row in table.rows([result], everything=True):
            if value := _fitting(row, alike):
                result["metrics"][row.metric]["paper"] = value.number
                origins.setdefault(value.origin, {})[_named(name, value)] = None
        if candidates:
            left_out |= dict.fromkeys(_left_out(result, candidates, alike))
    return _sentences(model, origins, left_out, without)


def _has_same_scores(result: dict[str, Any], value: Value) -> bool:
    """True if both or neither score captions by VQAScore with its end token."""
    prompt = result.get("details", {}).get("prompt", {})
    is_vqascore = bool(prompt.get("question")) and prompt.get("eos", True)
    if display.of(result).asks:
        return True  # questions of the protocol's own
    return is_vqascore == (value.note == VQASCORE)


def _reader(result: dict[str, Any]) -> str:
    return str(result.get("reader"))


def _fitting(row: table.Row, candidates: Sequence[Value]) -> Value | None:
    """First value of the same metric, protocol and number of decisions; None if there is none."""
    return next((value for value in candidates if is_same(row, value)), None)


def is_same(row: table.Row, value: Value) -> bool:
    """True if a published value of the same benchmark has our metric, protocol and number of
    decisions; an unpublished number matches any."""
    is_score = value.unit == "cosine"
    named_alike = (value.full_metric, value.protocol) == (_full_metric(row), row.protocol)
    return named_alike and value.count in (None, row.count) and is_score == (row.unit == "score")


def _full_metric(row: table.Row) -> str:
    """Metric as named by published values: a group "subset=swap_obj" without its kind."""
    name, slash, group = row.metric.partition("/")
    return name + slash + group.rpartition("=")[2]


def _named(benchmark: str, value: Value) -> str:
    return benchmark if value.count else f"{benchmark} (number of cases not published)"


def _left_out(
    result: dict[str, Any], candidates: Sequence[Value], alike: Sequence[Value]
) -> Iterable[str]:
    """Reasons why rows of the table have no published value, unless another form of the metric (a
    group, or the mean over groups) has one. alike: candidates with `_has_same_scores`."""
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
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"published is {', '.join(names[:NAMED])}{more}"


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
