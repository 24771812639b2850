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

ZERO_SHOT = "{}_zero_shot"  # name of the run that classifies the images of another
LEFT_OUT = ("count", "example")  # values of other kinds than a model's score on a set
# Protocol of values.csv -> in configs/eval/llava.py.
ASKED = {"keywords": "keywords", "generation": "written", "multiple_choice": "letters"}
FEW_CLASSES = ("kitti_closest_vehicle_distance", "pcam")  # without top 5
MEAN_OF = "mean of: "  # note of a number that is the mean of these models
INTRO = (
    "In a cell the paper's number and, in bold, ours, with half of a 95 % interval: over seeds, of "
    "one seed over cases. Ours has the protocol of the paper and its number of cases, where it is "
    "printed. –: no such number; ?: not known here.\n"
)
NOTES = {  # protocol -> how ours differs
    "mean": "Ours is the mean over the 20 tasks of VTAB in CLIP_benchmark's webdatasets.txt; the "
    "paper does not list its own (docs/benchmarks.md).\n",
    "linear_probe": "Ours is logistic regression by L-BFGS; the paper prints no protocol.\n",
    "generation": "Ours reads the letter that is written (M3ID: t from 1); the paper's answers are "
    "graded by hand.\n",
}


@functools.cache
def values_of(paper: str) -> tuple[published.Value, ...]:
    """Values of the tables of a paper, of models."""
    return tuple(
        value
        for value in (*published.values(), *published.unknown())
        if value.source in PAPERS[paper].sources and value.model and value.protocol not in LEFT_OUT
    )


def asked(value: published.Value) -> str:
    """End of the name of the evaluation by configs/eval/llava.py that gives a value; "" for the
    scores of a model that is not asked."""
    if value.protocol == "multiple_choice" and value.metric == "relaxed_pair":
        return "options"
    if "M3ID" in value.model:
        return "m3id_t1"
    return "vqascore" if value.note == published.VQASCORE else ASKED.get(value.protocol, "")


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


def _members(value: published.Value) -> list[published.Value]:
    """The values, each of one model and one set, that a number is the mean of."""
    _, is_mean, models = value.note.partition(MEAN_OF)
    if tasks := classification.GROUPS.get(value.benchmark):
        metric = value.metric.removeprefix("mean_")
        tasks = [task for task in tasks if metric == "accuracy" or task not in FEW_CLASSES]
        return [value._replace(benchmark=t, metric=metric, protocol="zeroshot") for t in tasks]
    return [value._replace(model=m) for m in models.split("; ")] if is_mean else [value]


def _cell(value: published.Value, ours: Mapping[str, Sequence[Results]]) -> str:
    """A published value and our number for it, in bold, where there is one."""
    text = "?" if math.isnan(value.value) else f"{value.value:.{value.decimals}f}"
    members = _members(value)
    seeds = zip(*(ours.get(member.model, ()) for member in members), strict=False)
    weights = [1 / len(members) for _ in members]
    estimates = [_weighted([*map(_estimate, members, each)], weights) for each in seeds]
    if not estimates or None in estimates:
        return text
    number, scale = study_results.summary(estimates), published.SCALES[value.unit]
    digits = max(value.decimals, 1 if scale < 1 else 3)
    text += f" **{number.mean / scale:.{digits}f}** ±{number.half / scale:.{digits}f}"
    return text if value.unit == "cosine" else study_results.shown(text, number.half)


Estimate = tuple[float, float, float]  # value, and its interval's ends


def _estimate(value: published.Value, results: Results) -> Estimate | None:
    """Our number for a published value; None without one."""
    metric, minus, macro = value.metric.partition("_minus_original")
    if minus:
        terms = (value._replace(metric=f"{m}_accuracy{macro}") for m in (metric, "original"))
        return _weighted([_estimate(term, results) for term in terms], (1, -1))
    end = "probe" if value.protocol == "linear_probe" else asked(value)
    if end:
        value = value._replace(benchmark=f"{value.benchmark}_{end}")
    if value.protocol == "generation":
        value = value._replace(protocol="multiple_choice")
    row = published.find(value, results)
    return (row.value, row.low or row.value, row.high or row.value) if row else None


def _weighted(estimates: Sequence[Estimate | None], weights: Sequence[float]) -> Estimate | None:
    """Weighted sum of estimates with independent errors; None if one is missing."""
    if None in estimates:
        return None
    pairs = [*zip(weights, estimates, strict=True)]
    total = sum(weight * estimate[0] for weight, estimate in pairs)
    half = math.hypot(*(weight * (high - low) / 2 for weight, (_, low, high) in pairs))
    return total, total - half, total + half


def _table(values: Sequence[published.Value], ours: Mapping[str, Sequence[Results]]) -> str:
    """A table of the paper: a row per model, a column per metric, in its order."""
    cells: dict[str, dict[str, str]] = {}
    columns = dict[str, None]()
    for value in values:
        letters = " by letters" if asked(value) == "letters" else ""  # beside written answers
        column = f"{value.benchmark} {value.full_metric}{letters}"
        columns[column] = None
        cells.setdefault(value.model, {})[column] = _cell(value, ours)
    header = ["", *columns]
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
