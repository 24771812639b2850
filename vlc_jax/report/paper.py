"""Results of runs for a paper: a table with a row per method, and records of all metrics.

Runs that differ only in their seed are one method. The columns of a published benchmark are those
of its published tables (values.csv), of others the headline metrics.
"""

import csv
import dataclasses
import functools
import hashlib
import io
import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.report import compare, paired, published, summary, table, to_latex, to_markdown
from vlc_jax.report.blocks import BREAK, Content, Span, Table
from vlc_jax.report.compare import Line
from vlc_jax.report.read_workdir import Run, score_rows
from vlc_jax.report.table import Row
from vlc_jax.run import workdir_files

COLUMNS = 7  # of metrics beside each other: those of SugarCrepe fit the width of a page
TITLES = {  # of benchmarks in papers; of others: underscores as spaces
    "vg_relation": "ARO Relation",
    "vg_attribution": "ARO Attribute",
    "coco_order": "COCO Order",
    "flickr30k_order": "Flickr30k Order",
    "coco_retrieval": "COCO retrieval",
    "flickr30k_retrieval": "Flickr30k retrieval",
    "sugarcrepe": "SugarCrepe",
    "winoground": "Winoground",
    "valse": "VALSE",
    "vl_checklist": "VL-CheckList",
}
FIELDS = ("benchmark", "protocol", "metric", "step", "unit", "value", "low", "high", "chance")
FIELDS += ("blind", "ceiling", "human", "ties")
BOLD = (
    "Bold: the best run of a column, where it differs from every other run by a paired test at 5 % "
    "(sign test over the same cases; of several seeds, t test of the differences by seed, where a "
    "model that was not trained has one value)"
)


Reader = Callable[[int, str], tuple[dict[str, Any], list[dict[str, Any]]]]


class Method(NamedTuple):
    """A row of the table: runs, by their index, that differ only in their seed."""

    name: str
    runs: tuple[int, ...]


class Cell(NamedTuple):
    """A metric of a method.

    row: of several seeds their mean with its interval; of equal values that of the first.
    half: of the interval over seeds; None for one run, and for equal values.
    is_comparable: evaluated on the cases of the first run.
    """

    row: Row
    half: float | None
    is_comparable: bool


def methods(names: Sequence[str], runs: Sequence[Run]) -> list[Method]:
    """The runs by method, in the order of their first ones."""
    texts = [_without_seed(run) or name for name, run in zip(names, runs, strict=True)]
    grouped: dict[str, list[int]] = {}
    for index, (text, run) in enumerate(zip(texts, runs, strict=True)):
        if texts.count(text) == 1:
            # seeds that started from runs of their own: init_from=runs/clip_0, runs/clip_1
            seed = re.escape(str(run.config.get("seed")))
            text = re.sub(rf'(?<=[-_/=sd]){seed}(?=[/"])', "SEED", text)
        grouped.setdefault(text, []).append(index)
    groups: list[tuple[int, ...]] = []
    for indices in grouped.values():
        # the same seed again is no further draw
        is_drawn_twice = len({runs[k].config.get("seed") for k in indices}) < len(indices)
        groups += [(k,) for k in indices] if is_drawn_twice else [tuple(indices)]
    short = [_common_name([names[k] for k in group]) for group in groups]
    if len({*short}) < len(short):
        short = [names[group[0]] for group in groups]
    return sorted(map(Method, short, groups), key=lambda method: method.runs)


def _without_seed(run: Run) -> str:
    """Config of the training without seeds, and the step of the results; "" without a config."""
    fields = [
        f"{field}={value}"
        for field, value in summary.flatten(run.config).items()
        if not re.fullmatch(r"(pretrain\.)*seed", field)
        and not any(f"{field}.".startswith(f"{name}.") for name in workdir_files.RESUMABLE)
    ]
    step = max((one.newest["step"] for one in run.evaluations), default=0)
    return "\n".join([*fields, f"step={step}"] if fields else [])


def _common_name(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    letters = itertools.takewhile(lambda same: len({*same}) == 1, zip(*names, strict=False))
    start = "".join(letter for letter, *_ in letters).rstrip("0123456789")
    return re.sub(r"[-_./,]*(seed|s)?[-_=]*$", "", start) or names[0]


def records(names: Sequence[str], runs: Sequence[Run]) -> list[dict[str, Any]]:
    """A record per run and metric, groups included, in the units of evals/*.json.

    cases: equal for runs evaluated on the same cases. in_tables: the metric is in result tables.
    """
    found = []
    for method in methods(names, runs):
        for index, result in ((k, one.newest) for k in method.runs for one in runs[k].evaluations):
            listed = {row.metric for row in table.rows([result])}
            cases = json.dumps(compare.case_fields(result), sort_keys=True)
            known = {
                "method": method.name,
                "run": names[index],
                "seed": runs[index].config.get("seed"),
                "cases": hashlib.sha256(cases.encode()).hexdigest()[:8],
            }
            for row in table.rows([result], everything=True):
                fields = {name: getattr(row, name) for name in FIELDS}
                others = {"n": row.count, "published": row.paper, "in_tables": row.metric in listed}
                found.append(known | fields | others)
    return found


def to_json(names: Sequence[str], runs: Sequence[Run], model: str = "") -> str:
    """JSON of `records`."""
    return json.dumps(records(names, runs), indent=1, ensure_ascii=False)


def to_csv(names: Sequence[str], runs: Sequence[Run], model: str = "") -> str:
    """CSV of `records`; a missing number is empty."""
    found, file = records(names, runs), io.StringIO()
    writer = csv.DictWriter(file, [*found[0]], lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return file.getvalue().removesuffix("\n")


FORMATS: Mapping[str, Callable[..., str]] = {  # form -> names, runs, model -> text
    "csv": to_csv,
    "json": to_json,
    "latex": lambda *given: to_latex.render(to_tables(*given)),
    "markdown": lambda *given: to_markdown.render(to_tables(*given), Path()),
}


def columns(results: Sequence[dict[str, dict[str, Any]]]) -> list[Line]:
    """The metrics of the table, by benchmark."""
    headlines = {(line.benchmark, line.metric) for line in compare.headlines(results)}
    every, chosen = compare.lines(results, everything=True), list[Line]()
    for benchmark, same in itertools.groupby(every, lambda line: line.benchmark):
        lines = {published.full_metric(line.any_row): line for line in same}
        printed = published.printed(next(each[benchmark] for each in results if benchmark in each))
        stems = [*dict.fromkeys(metric.partition("/")[0] for metric in lines)]
        metrics = [metric for metric in printed if metric in lines]
        if not 0 < len(metrics) <= COLUMNS:
            metrics = [m for m, line in lines.items() if (benchmark, line.metric) in headlines]
        metrics.sort(key=lambda metric: stems.index(metric.partition("/")[0]))
        chosen += [lines[metric] for metric in metrics]
    return chosen


def to_tables(names: Sequence[str], runs: Sequence[Run], model: str = "") -> list[Table]:
    """The table, in parts of at most COLUMNS columns; the last has the caption.

    model: whose published values have a row.
    """
    newest = compare.newest_results(runs)
    lines, rows = columns(newest), methods(names, runs)

    @functools.lru_cache(len(runs))  # one benchmark: its rows may be a million
    def read(index: int, benchmark: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        result = newest[index][benchmark]
        rows = score_rows(runs[index], benchmark, result)
        return result, [{key: row.get(key) for key in paired.KEYS} for row in rows]

    cells = [[_cell(line, method) for method in rows] for line in lines]
    tests = [functools.partial(_differ, runs, read, line) for line in lines]
    best = [_best(rows, of, test) for of, test in zip(cells, tests, strict=True)]
    tables = []
    for part in _parts(lines):
        body: list[list[Content]] = [
            [Span(name, "muted"), *(lines[k].null(name) for k in part)]
            for name in ("chance", *compare.nulls_of(lines[k] for k in part))
        ]
        if model and compare.has_paper(lines):
            body.append([Span(f"{model}, published", "muted"), *(lines[k].paper for k in part)])
        for index, method in enumerate(rows):
            seeds = Span(f"({len(method.runs)} seeds)", "muted")
            name = [method.name, BREAK, seeds] if len(method.runs) > 1 else method.name
            body.append([name, *(_content(cells[k][index], best[k] == index) for k in part)])
        header = ["model", *([_title(lines[k]), BREAK, _label(lines[k].any_row)] for k in part)]
        tables.append(Table(header, body, 1, "paper"))
    return [*tables[:-1], tables[-1]._replace(caption=_caption(cells, best))]


def _parts(lines: Sequence[Line]) -> list[list[int]]:
    """Columns by part; a benchmark is in one part."""
    parts: list[list[int]] = [[]]
    for _, same in itertools.groupby(range(len(lines)), lambda k: lines[k].benchmark):
        group = [*same]
        if parts[-1] and len(parts[-1]) + len(group) > COLUMNS:
            parts.append([])
        parts[-1] += group
    return parts


def _cell(line: Line, method: Method) -> Cell | None:
    rows = [row for index in method.runs if (row := line.rows[index]) is not None]
    if len(rows) < len(method.runs):
        return None
    row, half = rows[0], None
    if len(rows) > 1:
        mean, half = over_seeds([row.value for row in rows])
        if half:
            row = dataclasses.replace(row, value=mean, low=mean - half, high=mean + half)
    return Cell(row, half or None, all(line.is_comparable[index] for index in method.runs))


def over_seeds(values: Sequence[float]) -> tuple[float, float]:
    """Mean over seeds, and half of its 95 % interval (Student's t)."""
    # here, because its import is slow
    from scipy import stats

    spread = float(np.std(values, ddof=1)) / len(values) ** 0.5
    return float(np.mean(values)), float(stats.t.ppf(0.975, len(values) - 1)) * spread


def _content(cell: Cell | None, is_best: bool) -> Content:
    if cell is None:
        return "–"
    row = cell.row
    text = table.interval(row)
    if cell.half is not None:
        text = f"±{table.number(row, cell.half)}"
    signs = row.sign + ("" if cell.is_comparable else compare.SYMBOLS["other cases"])
    return [Span(table.number(row, row.value), "bold" * is_best), signs, BREAK, Span(text, "muted")]


def _best(
    rows: Sequence[Method], cells: Sequence[Cell | None], is_other: Callable[[Method, Method], bool]
) -> int | None:
    """The best cell, if a test tells it from every other; None for scores, whose scales differ."""
    known = {k: cell for k, cell in enumerate(cells) if cell and cell.is_comparable}
    if len(known) < 2 or any(cell.row.unit == "score" for cell in known.values()):
        return None
    sign = -1 if next(iter(known.values())).row.is_better_small else 1
    best = max(known, key=lambda k: sign * known[k].row.value)
    others = [rows[k] for k in known if k != best]
    return best if all(is_other(rows[best], other) for other in others) else None


def _differ(runs: Sequence[Run], read: Reader, line: Line, one: Method, other: Method) -> bool:
    """True if a paired test at 5 % tells two methods apart; False where there is none."""
    if len(one.runs) == len(other.runs) == 1:
        decisions = [
            paired.decisions(*read(k, line.benchmark), line.rows[k])
            for k in (*one.runs, *other.runs)
        ]
        difference = paired.between(*decisions)
        return difference is not None and difference.p < 0.05
    seeds = {runs[k].config.get("seed") for k in (*one.runs, *other.runs) if runs[k].metrics}
    first, second = (
        dict.fromkeys(seeds, line.rows[method.runs[0]].value)
        if len(method.runs) == 1 and not runs[method.runs[0]].metrics  # evaluated, not trained
        else {runs[k].config.get("seed"): line.rows[k].value for k in method.runs}
        for method in (one, other)
    )
    if first.keys() != second.keys():
        return False
    mean, half = over_seeds([first[seed] - second[seed] for seed in first])
    # equal differences of all seeds have no interval
    return abs(mean) > half > 0


def _title(line: Line) -> str:
    name = line.any_row.name
    return TITLES.get(name, name.replace("_", " "))


def _label(row: Row) -> str:
    """Metric without the kind of its group, which alone names an accuracy: "swap obj"."""
    _, _, group = row.label.partition(": ")
    group = group.rpartition("=")[2].replace("_", " ")
    stem = dataclasses.replace(row, metric=row.metric.partition("/")[0]).label
    return (group if stem == "accuracy" else f"{stem}: {group}") if group else stem


def _caption(cells: Sequence[Sequence[Cell | None]], best: Sequence[int | None]) -> str:
    known = [cell for column in cells for cell in column if cell]
    rows = [cell.row for cell in known]
    sentences = ["Results in percent"]
    if any(row.unit != "fraction" for row in rows):
        sentences = ["Results in percent, ranks and scores as they are"]
    if any(cell.half is None for cell in known):
        sentences.append("Below a value: its 95 % interval over test cases")
    if any(cell.half is not None for cell in known):
        sentences.append("±: half of the 95 % interval over seeds (Student's t)")
    if best != [None] * len(best):
        sentences.append(BOLD)
    if not all(cell.is_comparable for cell in known):
        sentences.append("≠ evaluated on other cases, not compared")
    if any(cell is None for column in cells for cell in column):
        sentences.append("–: not evaluated")
    return ". ".join(sentences) + f".{table.null_legend(rows)}"


def notes(names: Sequence[str], runs: Sequence[Run]) -> list[str]:
    """Sentences about runs that are one row, and about those that lack benchmarks of others."""
    results = compare.newest_results(runs)
    every = dict.fromkeys(benchmark for each in results for benchmark in each)
    folded = [[names[k] for k in method.runs] for method in methods(names, runs)]
    return [f"one row: {', '.join(same)}" for same in folded if len(same) > 1] + [
        f"{name}: no result on {', '.join(lacking)}"
        for name, each in zip(names, results, strict=True)
        if (lacking := [benchmark for benchmark in every if benchmark not in each])
    ]
