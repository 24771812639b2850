"""Comparison of several runs: the same metrics side by side, if they are comparable."""

import functools
import itertools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlc_jax.report import summary, table
from vlc_jax.report.blocks import BREAK, Content, Span, Table
from vlc_jax.report.read_workdir import Run, mapping

RUNS = ("blue", "orange", "green", "purple", "red", "ink")  # colours of runs, of report.css
SYMBOLS = {"better": "▲", "worse": "▼", "other cases": "≠", "": ""}


@dataclass(frozen=True)
class Line:
    """One metric of one benchmark in every run; None where a run lacks it.

    is_comparable: per run, whether it was evaluated on the same cases as the first run with the
    metric.
    """

    benchmark: str
    metric: str
    rows: tuple[table.Row | None, ...]
    is_comparable: tuple[bool, ...]

    @property
    def any_row(self) -> table.Row:
        """A row of one of the runs, for what all share."""
        return next(row for row in self.rows if row is not None)

    def null(self, name: str) -> str:
        """Chance or a column of `table.NULLS` as text; several values for runs evaluated on
        different cases."""
        values = [table.number(row, getattr(row, name)) for row in self.rows if row is not None]
        return " / ".join(dict.fromkeys(values))

    @property
    def paper_row(self) -> table.Row | None:
        """The first row with a published value."""
        return next((row for row in self.rows if row is not None and row.paper is not None), None)

    @property
    def paper(self) -> str:
        """The published value as text; "–" without one."""
        row = self.paper_row
        return "–" if row is None else table.number(row, row.paper)

    @property
    def paper_differences(self) -> str:
        """Each run minus the published value, in the order of the runs; "–" on other cases."""
        reference = self.paper_row
        if reference is None:
            return "–"
        return " / ".join(
            table.paper_difference(row) if row and row.paper == reference.paper else "–"
            for row in self.rows
        )

    def difference(self, index: int) -> float | None:
        """Value of a run minus the first run's; None if the two are not comparable."""
        first, row = self.rows[0], self.rows[index]
        if index == 0 or first is None or row is None or not self.is_comparable[index]:
            return None
        return row.value - first.value

    def verdict(self, index: int) -> str:
        """A run against the first one: "better", "worse", "other cases" or "".

        "better" and "worse": the two 95 % intervals do not overlap. "other cases": not comparable.
        Scores have no verdict, since their scales differ between models.
        """
        first, row = self.rows[0], self.rows[index]
        if row is not None and not self.is_comparable[index]:
            return "other cases"
        if self.difference(index) is None or row.unit == "score":
            return ""
        if None in (first.low, first.high, row.low, row.high):
            return ""
        # a common value of two intervals does not show that the runs are equal: no verdict
        if row.low <= first.high and first.low <= row.high:
            return ""
        return "better" if (row.value > first.value) != row.is_better_small else "worse"


def names(paths: Sequence[Path]) -> list[str]:
    """Distinct short names of workdirs: folder names, or paths relative to a common parent."""
    resolved = [path.resolve() for path in paths]
    short = [path.name for path in resolved]
    if len(set(short)) == len(short):
        return short
    # equal folder names are often seeds of several methods: runs/clip/0, runs/hn/0
    common = os.path.commonpath([path.parent for path in resolved])
    return [path.relative_to(common).as_posix() for path in resolved]


def newest_results(runs: Iterable[Run]) -> list[dict[str, dict[str, Any]]]:
    """{benchmark: its newest result} of each run."""
    return [{one.name: one.newest for one in run.evaluations} for run in runs]


def lines(results: Sequence[Mapping[str, dict[str, Any]]], everything: bool = False) -> list[Line]:
    """`table.rows` of all runs, one Line per metric, grouped by benchmark."""
    by_metric: dict[tuple[str, str], list[table.Row | None]] = {}
    for index, run_results in enumerate(results):
        for row in table.rows(run_results.values(), everything):
            key = (row.benchmark, row.metric)
            by_metric.setdefault(key, [None] * len(results))[index] = row
    comparable = {
        name: _is_comparable(name, results) for run_results in results for name in run_results
    }
    by_benchmark = {}
    for (benchmark, metric), rows in by_metric.items():
        line = Line(benchmark, metric, tuple(rows), comparable[benchmark])
        by_benchmark.setdefault(benchmark, []).append(line)
    ordered = sorted(by_benchmark.values(), key=lambda group: group[0].any_row.display.order)
    return [line for group in ordered for line in group]


def headlines(results: Sequence[Mapping[str, dict[str, Any]]]) -> list[Line]:
    """The lines whose metric is a headline (`table.headlines`) of any run."""
    rows = [row for run_results in results for row in table.headlines(run_results.values())]
    metrics = {(row.benchmark, row.metric) for row in rows}
    return [line for line in lines(results) if (line.benchmark, line.metric) in metrics]


def by_group(results: Sequence[Mapping[str, dict[str, Any]]]) -> list[Line]:
    """Metrics per group of cases of benchmarks with `Display.by_group`, sorted by group.

    Benchmarks with a single group are left out: its numbers are those of the whole.
    """
    grouped_lines = [line for line in lines(results) if line.any_row.display.by_group]
    all_lines = {(line.benchmark, line.metric): line for line in lines(results, everything=True)}
    grouped = []
    for benchmark in dict.fromkeys(line.benchmark for line in grouped_lines):
        metrics = [line.metric for line in grouped_lines if line.benchmark == benchmark]
        groups = dict.fromkeys(
            metric.partition("/")[2]
            for name, metric in all_lines
            if name == benchmark and metric.partition("/")[0] in metrics and "/" in metric
        )
        if len(groups) > 1:
            keys = [(benchmark, f"{metric}/{group}") for group in groups for metric in metrics]
            grouped += [all_lines[key] for key in keys if key in all_lines]
    return grouped


def other_cases(
    results: Sequence[Mapping[str, dict[str, Any]]],
) -> list[tuple[str, str, list[str]]]:
    """(benchmark, field, its value in each run) where runs were evaluated on different cases.

    Fields: protocol, version and options of the benchmark, and the number of cases.
    """
    differing = []
    for benchmark in dict.fromkeys(name for run_results in results for name in run_results):
        rows = summary.differences(_cases(benchmark, results))
        differing += [(benchmark, field, values) for field, values in rows]
    return differing


def not_same(results: Sequence[Mapping[str, dict[str, Any]]]) -> list[str]:
    """`other_cases` as a sentence per benchmark."""
    fields: dict[str, list[str]] = {}
    for benchmark, field, _ in other_cases(results):
        fields.setdefault(benchmark, []).append(field)
    return [f"≠ {name}: not the same {', '.join(differing)}" for name, differing in fields.items()]


def stale(run_names: Sequence[str], results: Sequence[Mapping[str, dict[str, Any]]]) -> list[str]:
    """Sentences about results of older steps than others of the same run."""
    sentences = []
    for name, run_results in zip(run_names, results, strict=True):
        last = max((result["step"] for result in run_results.values()), default=None)
        old = {bench: r["step"] for bench, r in run_results.items() if r["step"] != last}
        listed = ", ".join(f"{benchmark} at step {step:,}" for benchmark, step in old.items())
        if old:
            sentences.append(f"{name}: evaluated at step {last:,}, but {listed}.")
    return sentences


def config_differences(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """(field, its value in each run) of config fields that differ between runs.

    Runs without a config have "" and are not compared. If only some runs have a pretraining run
    (config.pretrain), only the fields that differ among these are listed.
    """
    configs = [run.config for run in runs if run.config]
    pretrain = [mapping(config.get("pretrain")) for config in configs]
    flatten = summary.flatten
    # else a run without pretraining would differ in every field of config.pretrain
    if not all(pretrain):
        flat = [summary.flatten(config) for config in pretrain if config]
        differing = {field for field, _ in summary.differences(flat)}
        flatten = functools.partial(_without_pretrain, fields=differing)
    return summary.differences([flatten(run.config) if run.config else None for run in runs])


def without_config(run_names: Sequence[str], runs: Sequence[Run]) -> list[str]:
    """Names of runs whose config is missing; results of vlc_jax.evaluate have none."""
    pairs = zip(run_names, runs, strict=True)
    return [name for name, run in pairs if not run.config and "scorer" not in run.env]


def to_table(run_names: Sequence[str], lines: Sequence[Line], is_narrow: bool = False) -> Table:
    """Table with a column for each run, and their differences to the first.

    is_narrow: without the numbers of differences and a column of metrics, so that six runs fit a
      terminal.
    """
    nulls, paper = nulls_of(lines), ["paper", "− paper"] if has_paper(lines) else []
    header = ["benchmark", *([] if is_narrow else ["metric"]), "chance", *nulls, *paper]
    header += run_headers(run_names)
    rows: list[list[Content]] = []
    for _, group in itertools.groupby(lines, lambda line: line.benchmark):
        same = list(group)
        if is_narrow and len(same) > 1:
            rows.append([same[0].any_row.name, *[""] * (len(header) - 1)])
        for line in same:
            name, label = line.any_row.name, line.any_row.label
            first = [Span(name, "code"), label]
            if is_narrow and len(same) == 1:
                first = [name if label == "accuracy" else f"{name} {label}"]
            elif is_narrow:
                first = [f"  {label}"]
            published = [line.paper, line.paper_differences] if paper else []
            runs = (_cell(line, index, is_narrow) for index in range(len(run_names)))
            rows.append([*first, *map(line.null, ["chance", *nulls]), *published, *runs])
    if is_narrow:
        return Table(header, rows, 1, "runs", legend(run_names, lines))
    return Table(header, rows, 2, "runs results")


def run_headers(run_names: Sequence[str]) -> list[Content]:
    """Names of runs in the header of a table, with their colours."""
    colours = zip(run_names, itertools.cycle(RUNS), strict=False)
    return [[Span("", f"swatch {colour}"), name] for name, colour in colours]


def _cell(line: Line, index: int, is_narrow: bool) -> Content:
    row, verdict = line.rows[index], line.verdict(index)
    if row is None:
        return Span("–")
    remark = difference_text(line, index)
    if is_narrow:
        remark = SYMBOLS[verdict]
    elif remark:
        remark = f" ({remark})"
    return [
        Span(table.number(row, row.value), "bold"),
        Span(row.sign, row.verdict),
        Span(remark, verdict.replace(" ", "-")),
        BREAK,
        Span(table.interval(row), "muted"),
    ]


def has_paper(lines: Iterable[Line]) -> bool:
    """True if any line has a published value."""
    return any(line.paper_row is not None for line in lines)


def nulls_of(lines: Iterable[Line]) -> list[str]:
    """The columns of `table.NULLS` that say something."""
    return table.nulls_of(row for line in lines for row in line.rows if row is not None)


def legend(run_names: Sequence[str], lines: Iterable[Line] = ()) -> str:
    """Legend of the tables: numbers, symbols, and their limits."""
    rows = [row for line in lines for row in line.rows if row is not None]
    return (
        f"Values with 95 % interval, in percent (ranks and scores as they are). ▲ better, ▼ worse "
        f"than {run_names[0]}: the two intervals have no value in common (of brittleness and ranks "
        "less is better). Without a symbol they overlap, which does not show that the runs are "
        "equal. Each line is compared on its own. ≠ evaluated on other cases than the first run "
        "with this benchmark, not compared. The intervals are those of the drawn test cases: the "
        "same training with another seed can differ by more."
        f"{table.null_legend(rows)}"
    )


def difference_text(line: Line, index: int) -> str:
    """Difference to the first run with its symbol, in percentage points: "+4.2 ▲"; or ""."""
    difference, symbol = line.difference(index), SYMBOLS[line.verdict(index)]
    if difference is None:
        return symbol
    return f"{table.signed(line.rows[index], difference)} {symbol}".strip()


def case_fields(result: Mapping[str, Any]) -> dict[str, str]:
    """Fields (as JSON) that are equal for two results on the same cases."""
    parts = {name: result.get(name) for name in ("protocol", "version", "options")}
    # these change scores, not cases; root: the version is of the files' content
    if isinstance(parts["options"], Mapping):
        left_out = ("vqascore", "negation", "segments", "root")
        parts["options"] = {k: v for k, v in parts["options"].items() if k not in left_out}
    parts = {name: part for name, part in parts.items() if part}
    count = next((row.count for row in table.rows([result])), None)
    return summary.flatten(parts) | {"cases": json.dumps(count)}


def same_cases(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """True for two results on the same cases."""
    return case_fields(first) == case_fields(second)


def _cases(
    benchmark: str, results: Sequence[Mapping[str, dict[str, Any]]]
) -> list[dict[str, str] | None]:
    """`case_fields` of each run; None for a run that lacks the benchmark."""
    return [case_fields(each[benchmark]) if benchmark in each else None for each in results]


def _is_comparable(
    benchmark: str, results: Sequence[Mapping[str, dict[str, Any]]]
) -> tuple[bool, ...]:
    cases = _cases(benchmark, results)
    # the first run may lack the benchmark: ≠ then marks other cases than the next run's
    first = next(one for one in cases if one is not None)
    return tuple(one is None or one == first for one in cases)


def _without_pretrain(config: Mapping[str, Any], fields: set[str]) -> dict[str, str]:
    """Flat config with config.pretrain as one field, plus its fields in `fields`."""
    inner = summary.flatten(mapping(config.get("pretrain")))
    flat = summary.flatten({name: value for name, value in config.items() if name != "pretrain"})
    flat["pretrain"] = f"a config of {len(inner)} fields" if inner else "{}"
    return flat | {f"pretrain.{name}": inner[name] for name in inner if name in fields}
