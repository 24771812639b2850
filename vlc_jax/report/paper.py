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
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.report import compare, paired, published, table
from vlc_jax.report.blocks import BREAK, Content, Span, Table
from vlc_jax.report.compare import Line
from vlc_jax.report.read_workdir import Run, score_rows
from vlc_jax.report.table import Row

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
    "svo_probes": "SVO-Probes",
    "crepe_productivity": "CREPE",
    "colorswap": "ColorSwap",
    "mmvp_vlm": "MMVP-VLM",
    "bivlc": "BiVLC",
    "imagenet1k": "ImageNet",
}
BOLD = (
    "Bold: the best of a column, where it differs from every other row by a paired test at 5 % "
    "(sign test over the same cases; between rows of the same seeds, t test of the differences)"
)


class Method(NamedTuple):
    """A row of the table: runs, by their index, that differ only in their seed."""

    name: str
    runs: tuple[int, ...]


class Cell(NamedTuple):
    """A metric of a method. row: of several seeds their mean, with its interval."""

    row: Row
    values: tuple[float, ...]  # of its runs
    is_comparable: bool  # evaluated on the cases of the first run


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
    found: list[Method] = []
    for indices in grouped.values():
        if len({runs[k].config.get("seed") for k in indices}) < len(indices):
            # the same seed again is no further draw
            found += [Method(names[k], (k,)) for k in indices]
        else:
            found.append(Method(_common_name([names[k] for k in indices]), tuple(indices)))
    if len({method.name for method in found}) < len(found):
        found = [Method(names[runs[0]], runs) for _, runs in found]
    return sorted(found, key=lambda method: method.runs)


def _without_seed(run: Run) -> str:
    """Config without seeds, and the step of the results; "" without a config."""

    def without(config: dict[str, Any]) -> dict[str, Any]:
        parts = {name: value for name, value in config.items() if name != "seed"}
        inner = parts.get("pretrain")
        return parts | {"pretrain": without(inner)} if isinstance(inner, dict) else parts

    step = max((one.newest["step"] for one in run.evaluations), default=0)
    return json.dumps([without(run.config), step], sort_keys=True) if run.config else ""


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
        for index in method.runs:
            run = runs[index]
            for result in (one.newest for one in run.evaluations):
                listed = {row.metric for row in table.rows([result])}
                same = json.dumps(compare.case_fields(result), sort_keys=True)
                for row in table.rows([result], everything=True):
                    found.append({
                        "method": method.name, "run": names[index],
                        "seed": run.config.get("seed"), "step": row.step,
                        "benchmark": row.benchmark, "protocol": row.protocol,
                        "cases": hashlib.sha256(same.encode()).hexdigest()[:8],
                        "metric": row.metric, "in_tables": row.metric in listed, "unit": row.unit,
                        "value": row.value, "low": row.low, "high": row.high, "n": row.count,
                        "chance": row.chance, "blind": row.blind, "ceiling": row.ceiling,
                        "human": row.human, "published": row.paper, "ties": row.ties,
                    })  # fmt: skip
    return found


def to_json(found: Sequence[dict[str, Any]]) -> str:
    """JSON of records."""
    return json.dumps(found, indent=1, ensure_ascii=False)


def to_csv(found: Sequence[dict[str, Any]]) -> str:
    """CSV of records; a missing number is empty."""
    file = io.StringIO()
    writer = csv.DictWriter(file, [*found[0]], lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return file.getvalue().removesuffix("\n")


def columns(results: Sequence[dict[str, dict[str, Any]]]) -> list[Line]:
    """The metrics of the table, by benchmark."""
    headlines = {(line.benchmark, line.metric) for line in compare.headlines(results)}
    by_benchmark: dict[str, list[Line]] = {}
    for line in compare.lines(results, everything=True):
        by_benchmark.setdefault(line.benchmark, []).append(line)
    chosen = []
    for benchmark, lines in by_benchmark.items():
        result = next(each[benchmark] for each in results if benchmark in each)
        keys = [(name, lines[0].any_row.protocol)
                for name in (benchmark.partition("@")[0], result.get("reader"))]  # fmt: skip
        order = next((published.printed()[key] for key in keys if key in published.printed()), [])
        stems = [*dict.fromkeys(line.metric.partition("/")[0] for line in lines)]
        found = [line for line in lines if published.full_metric(line.any_row) in order]
        if not 0 < len(found) <= COLUMNS:
            chosen += [line for line in lines if (benchmark, line.metric) in headlines]
            continue
        chosen += sorted(found, key=lambda line: (
            stems.index(line.metric.partition("/")[0]),
            order.index(published.full_metric(line.any_row)),
        ))  # fmt: skip
    return chosen


def to_tables(names: Sequence[str], runs: Sequence[Run], model: str = "") -> list[Table]:
    """The table, in parts of at most COLUMNS columns; the last has the caption.

    model: whose published values have a row.
    """
    lines, rows = columns(compare.newest_results(runs)), methods(names, runs)
    test = _tests(runs)
    cells = [[_cell(line, method) for method in rows] for line in lines]
    best = [
        _best(of, functools.partial(test, line, rows))
        for line, of in zip(lines, cells, strict=True)
    ]
    references = ["chance", *compare.nulls_of(lines)]
    tables = []
    for part in _parts(lines):
        body: list[list[Content]] = [
            [Span(name, "muted"), *(lines[k].null(name) for k in part)] for name in references
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


def _parts(lines: Sequence[Line]) -> Iterator[list[int]]:
    """Columns by part; a benchmark is in one part, if it fits."""
    part: list[int] = []
    for index, line in enumerate(lines):
        same = sum(other.benchmark == line.benchmark for other in lines[index:])
        is_first = not part or lines[part[-1]].benchmark != line.benchmark
        if len(part) == COLUMNS or (is_first and part and len(part) + min(same, COLUMNS) > COLUMNS):
            yield part
            part = []
        part.append(index)
    yield part


def _cell(line: Line, method: Method) -> Cell | None:
    rows = [line.rows[index] for index in method.runs]
    known = [row for row in rows if row is not None]
    if len(known) < len(rows):
        return None
    values = tuple(row.value for row in known)
    row = known[0]
    if len(rows) > 1:
        mean, half = over_seeds(values)
        row = dataclasses.replace(row, value=mean, low=mean - half, high=mean + half)
    return Cell(row, values, all(line.is_comparable[index] for index in method.runs))


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
    if len(cell.values) > 1:
        text = f"±{table.number(row, row.value - row.low)}"
    signs = row.sign + ("" if cell.is_comparable else compare.SYMBOLS["other cases"])
    return [Span(table.number(row, row.value), "bold" * is_best), signs, BREAK, Span(text, "muted")]


def _best(cells: Sequence[Cell | None], is_better: Callable[[int, int], bool]) -> int | None:
    """The best cell, if `is_better` than every other; None for scores, whose scales differ."""
    known = {k: cell for k, cell in enumerate(cells) if cell and cell.is_comparable}
    if len(known) < 2 or any(cell.row.unit == "score" for cell in known.values()):
        return None
    sign = -1 if next(iter(known.values())).row.is_better_small else 1
    best = max(known, key=lambda k: sign * known[k].row.value)
    return best if all(is_better(best, other) for other in known if other != best) else None


def _tests(runs: Sequence[Run]) -> Callable[..., bool]:
    """Paired tests of two methods on a metric: (line, methods, one, other) -> whether they differ.

    False also where there is none: a metric without decisions per case, other seeds.
    """

    @functools.cache
    def score_file(index: int, benchmark: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        newest = {one.name: one.newest for one in runs[index].evaluations}[benchmark]
        return newest, [*score_rows(runs[index], benchmark, newest)]

    def differs(line: Line, rows: Sequence[Method], one: int, other: int) -> bool:
        first, second = rows[one].runs, rows[other].runs
        if len(first) == len(second) == 1:
            decisions = [
                paired.decisions(*score_file(k, line.benchmark), line.rows[k])
                for k in (*first, *second)
            ]
            difference = paired.between(*decisions)
            return difference is not None and difference.p < 0.05
        by_seed = [{runs[k].config.get("seed"): line.rows[k].value for k in x}
                   for x in (first, second)]  # fmt: skip
        if by_seed[0].keys() != by_seed[1].keys():
            return False
        mean, half = over_seeds([by_seed[0][seed] - by_seed[1][seed] for seed in by_seed[0]])
        return abs(mean) > half

    return differs


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
    if any(len(cell.values) == 1 for cell in known):
        sentences.append("Below a value: its 95 % interval over test cases")
    if any(len(cell.values) > 1 for cell in known):
        sentences.append("±: half of the 95 % interval over seeds (Student's t)")
    if best != [None] * len(best):
        sentences.append(BOLD)
    if not all(cell.is_comparable for cell in known):
        sentences.append("≠ evaluated on other cases, not compared")
    if any(cell is None for column in cells for cell in column):
        sentences.append("–: not evaluated")
    return ". ".join(sentences) + f".{table.null_legend(rows)}"


def missing(names: Sequence[str], runs: Sequence[Run]) -> list[str]:
    """Sentences about runs that lack benchmarks of others."""
    results = compare.newest_results(runs)
    every = dict.fromkeys(benchmark for each in results for benchmark in each)
    return [
        f"{name}: no result on {', '.join(lacking)}"
        for name, each in zip(names, results, strict=True)
        if (lacking := [benchmark for benchmark in every if benchmark not in each])
    ]
