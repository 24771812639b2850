"""Tables of a paper in Markdown: its numbers, and those of the runs of a sweep."""

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from studies import study_results
from studies.paper_rows import PAPERS
from vlc_jax.configs.common import classification
from vlc_jax.configs.common.methods.record import Row
from vlc_jax.report import published, read_workdir, table
from vlc_jax.report.to_markdown import markdown_table

# Values of other kinds than a model's score on a set.
ZERO_SHOT = "{}_zero_shot"  # name of the run that classifies the images of another
LEFT_OUT = ("count", "example")
INTRO = (
    "In a cell the paper's number and, in bold, ours, with half of a 95 % interval: over seeds, of "
    "one seed over cases. Ours has the protocol of the paper and its number of cases, where it is "
    "printed. –: no such number.\n"
)
NOTES = {  # protocol -> how ours differs
    "mean": "Ours is the mean over the 19 tasks of VTAB in CLIP_benchmark; the paper's 20 tasks "
    "are not listed, so the two are no comparison.\n",
    "linear_probe": "Ours is logistic regression by L-BFGS; the paper prints no protocol.\n",
}


@functools.cache
def values_of(paper: str) -> tuple[published.Value, ...]:
    """Values of the tables of a paper, of models."""
    return tuple(
        value
        for value in published.values()
        if value.source in PAPERS[paper].sources and value.model and value.protocol not in LEFT_OUT
    )


@functools.cache
def values_of_model(paper: str, model: str) -> tuple[published.Value, ...]:
    """Those of one model."""
    return tuple(value for value in values_of(paper) if value.model == model)


def page(paper: str, rows: Sequence[Row], runs: Mapping[str, str], out: Path, seeds: int) -> str:
    """The page of a paper.

    runs: name of a row -> name of its run, of those in this sweep; runs of earlier sweeps in the
    same folder have the row's name.
    Raises ValueError for a damaged result.
    """
    values = study_results.add({}, *study_results.finished(out))
    results = study_results.Results(values, seeds)
    named = [(row, runs.get(row.run, row.run)) for row in rows if row.model or row.label]
    done = [(row, run) for row, run in named if results.has(run)]
    ours = {row.model: _by_seed(out, run, seeds) for row, run in done if row.model}
    tables: dict[tuple[str, str], list[published.Value]] = {}
    for value in values_of(paper):
        tables.setdefault((value.source, value.table), []).append(value)
    sections = [f"# {PAPERS[paper].title}\n", INTRO]
    for (source, name), values in tables.items():
        sections += [f"## {name or published.sources()[source]['name']}\n", _table(values, ours)]
        sections += [NOTES[p] for p in dict.fromkeys(v.protocol for v in values) if p in NOTES]
    # first the models that the runs start from
    labels = {run: run for run in ("clip", "relations", "siglip") if run in runs.values()}
    labels |= {run: row.label or row.model for row, run in done}
    sections += ["## All results\n", _all(results, labels, out, PAPERS[paper].scenes)]
    return "\n".join(sections)


Results = Sequence[dict]  # of a run, newest ones


def _by_seed(out: Path, run: str, seeds: int) -> list[Results]:
    folders = [[out / f"{n}-{s}" for n in (run, ZERO_SHOT.format(run))] for s in range(seeds)]
    return [[r for one in each for r in read_workdir.newest_results(one)] for each in folders]


def _cell(value: published.Value, by_seed: Sequence[Results]) -> str:
    """A published value and our number for it, in bold, where there is one."""
    text = f"{value.value:.{value.decimals}f}"
    estimates = [found for results in by_seed if (found := _estimate(value, results))]
    if not estimates or len(estimates) < len(by_seed):
        return text
    number = study_results.summary(estimates)
    digits = max(value.decimals, 1 if value.unit == "percent" else 3)
    mean, half = (one / published.SCALES[value.unit] for one in number)
    text += f" **{mean:.{digits}f}** ±{half:.{digits}f}"
    is_share = value.unit in ("percent", "fraction")
    return study_results.shown(text, number.half) if is_share else text


Estimate = tuple[float, float, float]  # value, and its interval's ends


def _estimate(value: published.Value, results: Results) -> Estimate | None:
    """Our number for a published value; None without one."""
    if value.benchmark in classification.GROUPS:
        return _mean(value, results)
    if value.protocol == "linear_probe":
        value = value._replace(benchmark=f"{value.benchmark}_probe")
    row = published.find(value, results)
    return (row.value, row.low or row.value, row.high or row.value) if row else None


def _mean(value: published.Value, results: Results) -> Estimate | None:
    """The mean over a group's tasks with the metric (few classes have no top 5), if none lacks a
    result; their errors are independent."""
    tasks = classification.GROUPS[value.benchmark]
    metric = value.metric.removeprefix("mean_")

    def task_estimates(metric: str) -> list[Estimate]:
        each = (value._replace(benchmark=t, metric=metric, protocol="zeroshot") for t in tasks)
        return [found for one in each if (found := _estimate(one, results))]

    if len(task_estimates("accuracy")) < len(tasks):
        return None
    estimates = task_estimates(metric)
    mean = sum(estimate[0] for estimate in estimates) / len(estimates)
    half = math.hypot(*((high - low) / 2 for _, low, high in estimates)) / len(estimates)
    return mean, mean - half, mean + half


def _table(values: Sequence[published.Value], ours: Mapping[str, Sequence[Results]]) -> str:
    """A table of the paper: a row per model, a column per metric, in its order."""
    cells: dict[str, dict[tuple[str, str], str]] = {}
    columns = dict[tuple[str, str], None]()
    for value in values:
        column = (value.benchmark, value.full_metric)
        columns[column] = None
        cells.setdefault(value.model, {})[column] = _cell(value, ours.get(value.model, ()))
    header = ["", *(" ".join(column) for column in columns)]
    body = [[model, *(of.get(column, "–") for column in columns)] for model, of in cells.items()]
    return markdown_table(header, body, 1) + "\n"


def _all(
    results: study_results.Results, labels: Mapping[str, str], out: Path, scenes: Sequence[str]
) -> str:
    """A row per finished run, a column per metric of the summaries.

    scenes: the benchmarks of the scenes that have columns.
    """
    chance: dict[tuple[str, str], float | None] = {}
    runs = [run for run in labels if results.has(run)]
    for result in (r for run in runs for r in read_workdir.newest_results(out / f"{run}-0")):
        name = result["benchmark"]
        if not name.startswith("scenes_") or name in scenes:
            for metric in result.get("summary", ()):
                if "/" not in metric:  # groups are the paper's columns
                    chance[name, metric] = result["metrics"][metric]["chance"]
    body = [["chance", *(table.percent(value) for value in chance.values())]]
    for run in runs:
        cells = (
            study_results.cell(results.value(run, *column)) if results.has(run, *column) else "–"
            for column in chance
        )
        body.append([labels[run], *cells])
    return markdown_table(["", *(" ".join(column) for column in chance)], body, 1) + "\n"
