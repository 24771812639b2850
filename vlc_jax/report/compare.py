"""Several runs beside each other: which numbers belong together, and which only seem to."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rich.box
import rich.table
import rich.text

from vlc_jax.report import summary, table
from vlc_jax.report.read_workdir import Run

MARKS = {"better": "▲", "worse": "▼", "other cases": "≠", "": ""}


@dataclass(frozen=True)
class Line:
    """One metric of one benchmark in every run; None where a run lacks it.

    `is_comparable` tells which runs were judged on the same cases as the first run that has it.
    """

    benchmark: str
    metric: str
    rows: tuple[table.Row | None, ...]
    is_comparable: tuple[bool, ...]

    @property
    def any_row(self) -> table.Row:
        return next(row for row in self.rows if row is not None)

    @property
    def chance(self) -> str:
        """Chance as text; more than one where the runs were judged on different cases."""
        found = [table.number(row, row.chance) for row in self.rows if row is not None]
        return " / ".join(dict.fromkeys(found))

    def difference(self, place: int) -> float | None:
        """Value of a run minus that of the first one; None where the two do not compare."""
        first, row = self.rows[0], self.rows[place]
        if place == 0 or first is None or row is None or not self.is_comparable[place]:
            return None
        return row.value - first.value

    def verdict(self, place: int) -> str:
        """ "better" or "worse" than the first run where the two intervals have no value in common,
        "other cases" where the two do not compare, else "".

        Of scores, which are on a scale of each model's own, none is better.
        """
        first, row = self.rows[0], self.rows[place]
        if row is not None and not self.is_comparable[place]:
            return "other cases"
        if self.difference(place) is None or row.unit == "score":
            return ""
        if None in (first.low, first.high, row.low, row.high):
            return ""
        if row.low <= first.high and first.low <= row.high:
            return ""
        return "better" if (row.value > first.value) != row.is_better_small else "worse"


def names(paths: Sequence[Path]) -> list[str]:
    """Short names of the workdirs, all different: the folders', or as much more as that takes."""
    resolved = [path.resolve() for path in paths]
    short = [path.name for path in resolved]
    if len(set(short)) == len(short):
        return short
    common = os.path.commonpath([path.parent for path in resolved])
    return [path.relative_to(common).as_posix() for path in resolved]


def newest_results(runs: Iterable[Run]) -> list[dict[str, dict[str, Any]]]:
    """Benchmark -> its newest result, of each run."""
    return [{one.name: one.newest for one in run.evaluations} for run in runs]


def lines(results: Sequence[Mapping[str, dict[str, Any]]], everything: bool = False) -> list[Line]:
    """What `table.rows` finds in the results of each run, the same metrics beside each other."""
    found: dict[tuple[str, str], list[table.Row | None]] = {}
    for place, of_run in enumerate(results):
        for row in table.rows(of_run.values(), everything):
            key = (row.benchmark, row.metric)
            found.setdefault(key, [None] * len(results))[place] = row
    same = {name: _is_comparable(name, results) for of_run in results for name in of_run}
    together = {}  # benchmark -> its lines, whichever run had them first
    for (benchmark, metric), rows in found.items():
        line = Line(benchmark, metric, tuple(rows), same[benchmark])
        together.setdefault(benchmark, []).append(line)
    ordered = sorted(together.values(), key=lambda of: table.place(of[0].any_row.protocol))
    return [line for of_benchmark in ordered for line in of_benchmark]


def headlines(results: Sequence[Mapping[str, dict[str, Any]]]) -> list[Line]:
    """Of `lines` what `table.headlines` takes of any run."""
    rows = [row for of_run in results for row in table.headlines(of_run.values())]
    wanted = {(row.benchmark, row.metric) for row in rows}
    return [line for line in lines(results) if (line.benchmark, line.metric) in wanted]


def by_group(results: Sequence[Mapping[str, dict[str, Any]]]) -> list[Line]:
    """The metrics of the triplet benchmarks in each group of cases, a group's metrics together.

    Benchmarks of a single group have none: it would say the same twice.
    """
    shown = [line for line in lines(results) if line.any_row.protocol == "triplet"]
    every = {(line.benchmark, line.metric): line for line in lines(results, everything=True)}
    found = []
    for benchmark in dict.fromkeys(line.benchmark for line in shown):
        metrics = [line.metric for line in shown if line.benchmark == benchmark]
        groups = dict.fromkeys(
            metric.partition("/")[2]
            for name, metric in every
            if name == benchmark and metric.partition("/")[0] in metrics and "/" in metric
        )
        if len(groups) > 1:
            keys = [(benchmark, f"{metric}/{group}") for group in groups for metric in metrics]
            found += [every[key] for key in keys if key in every]
    return found


def other_cases(
    results: Sequence[Mapping[str, dict[str, Any]]],
) -> list[tuple[str, str, list[str]]]:
    """(benchmark, field, its value in each run) where runs were judged on different cases.

    Fields: the protocol, the version and the options of the benchmark, how many cases there were.
    """
    found = []
    for benchmark in dict.fromkeys(name for of_run in results for name in of_run):
        places = [place for place, of_run in enumerate(results) if benchmark in of_run]
        columns = [_cases(results[place][benchmark]) for place in places]
        for field, values in summary.differences(columns):
            shown = [""] * len(results)
            for place, value in zip(places, values, strict=True):
                shown[place] = value
            found.append((benchmark, field, shown))
    return found


def stale(run_names: Sequence[str], results: Sequence[Mapping[str, dict[str, Any]]]) -> list[str]:
    """Sentences about results that are older than others of the same run."""
    found = []
    for name, of_run in zip(run_names, results, strict=True):
        last = max((result["step"] for result in of_run.values()), default=None)
        old = {bench: r["step"] for bench, r in of_run.items() if r["step"] != last}
        listed = ", ".join(f"{benchmark} at step {step:,}" for benchmark, step in old.items())
        if old:
            found.append(f"{name}: evaluated at step {last:,}, but {listed}.")
    return found


def config_differences(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """(field, its value in each run) of config fields that are not the same in all runs.

    Runs without a config have "" and count for nothing. Where only some runs describe another one
    that comes first (config.pretrain), its fields are shown only if they differ among these.
    """
    configs = [run.config for run in runs if run.config]
    whole = [config["pretrain"] for config in configs if config.get("pretrain")]
    if len(whole) == len(configs):
        columns = [summary.flatten(config) for config in configs]
    else:
        kept = {field for field, _ in summary.differences([summary.flatten(one) for one in whole])}
        columns = [_without_pretrain(config, kept) for config in configs]
    found = []
    for field, values in summary.differences(columns):
        left = iter(values)
        found.append((field, [next(left) if run.config else "" for run in runs]))
    return found


def to_rich(run_names: Sequence[str], shown: Sequence[Line]) -> rich.table.Table:
    """The table for a terminal. Where it is narrow, intervals go below their values."""
    found = rich.table.Table(box=rich.box.SIMPLE_HEAD, padding=0, pad_edge=False)
    found.add_column("benchmark", no_wrap=True)
    found.add_column("chance", justify="right", no_wrap=True)
    for name in run_names:
        found.add_column(rich.text.Text(name), justify="right", overflow="fold")
    style = {"better": "green", "worse": "red", "other cases": "yellow", "": ""}
    benchmarks = [line.benchmark for line in shown]
    before = None
    for line in shown:
        words = line.any_row.words
        if benchmarks.count(line.benchmark) == 1:
            first = line.benchmark if words == "accuracy" else f"{line.benchmark} {words}"
        else:
            first = f"  {words}"
            if line.benchmark != before:
                found.add_row(rich.text.Text(line.benchmark))
        cells = [
            rich.text.Text(_plain_cell(line, place), style=style[line.verdict(place)])
            for place in range(len(run_names))
        ]
        found.add_row(rich.text.Text(first), line.chance, *cells)
        before = line.benchmark
    found.caption = rich.text.Text(legend(run_names))
    found.caption_justify = "left"
    return found


def to_markdown(run_names: Sequence[str], shown: Sequence[Line]) -> str:
    """The same table in Markdown, with the differences."""
    heads = ["benchmark", "metric", "chance", *map(table.markdown_cell, run_names)]
    rules = ["---", "---", *["---:"] * (len(run_names) + 1)]
    rows = [f"| {' | '.join(heads)} |", f"|{'|'.join(rules)}|"]
    for line in shown:
        cells = [f"`{line.benchmark}`", table.markdown_cell(line.any_row.words), line.chance]
        for place, row in enumerate(line.rows):
            if row is None:
                cells.append("–")
                continue
            remark = difference_text(line, place)
            remark = f" ({remark})" if remark else ""
            cells.append(f"**{table.number(row, row.value)}** {table.interval(row)}{remark}")
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def legend(run_names: Sequence[str]) -> str:
    """What the numbers and marks of the tables say, and what they do not."""
    return (
        f"Values with 95 % interval, in percent (ranks and scores as they are). ▲ better, ▼ worse "
        f"than {run_names[0]}: the two intervals have no value in common (of brittleness and ranks "
        "less is better). Without a mark they overlap, which does not show that the runs are "
        "equal. Each line is judged alone. ≠ judged on other cases than the first run with this "
        "benchmark, not compared. The intervals are those of the drawn test cases: the same "
        "training with another seed can differ by more."
    )


def difference_text(line: Line, place: int) -> str:
    """The difference to the first run with its mark: "+4.2 ▲", in percentage points; or ""."""
    difference, mark = line.difference(place), MARKS[line.verdict(place)]
    if difference is None:
        return mark
    factor, digits = {"fraction": (100, 1), "rank": (1, 1), "score": (1, 3)}[line.rows[place].unit]
    number = f"{factor * difference:+.{digits}f}".replace("-", "−")
    return f"{number} {mark}".strip()


def _plain_cell(line: Line, place: int) -> str:
    row = line.rows[place]
    if row is None:
        return "–"
    value = f"{table.number(row, row.value)}{MARKS[line.verdict(place)]}"
    return f"{value} {table.interval(row)}"


def _cases(result: Mapping[str, Any]) -> dict[str, str]:
    """What decides whether two results are about the same cases, as JSON."""
    parts = {name: result.get(name) for name in ("protocol", "version", "options")}
    parts = {name: part for name, part in parts.items() if part}
    count = next((row.count for row in table.rows([result])), None)
    return summary.flatten(parts) | {"cases": json.dumps(count)}


def _is_comparable(
    benchmark: str, results: Sequence[Mapping[str, dict[str, Any]]]
) -> tuple[bool, ...]:
    cases = [_cases(of_run[benchmark]) if benchmark in of_run else None for of_run in results]
    first = next(one for one in cases if one is not None)
    return tuple(one is None or one == first for one in cases)


def _without_pretrain(config: Mapping[str, Any], kept: set[str]) -> dict[str, str]:
    """A flat config in which config.pretrain is one field, and those in `kept`."""
    inner = summary.flatten(config.get("pretrain") or {})
    flat = summary.flatten({name: value for name, value in config.items() if name != "pretrain"})
    flat["pretrain"] = f"a config of {len(inner)} fields" if inner else "{}"
    return flat | {f"pretrain.{name}": inner[name] for name in inner if name in kept}
