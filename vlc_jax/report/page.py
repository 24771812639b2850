"""Report of one run: variables of the two templates, rendered to report.html and report.md."""

import base64
import functools
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from vlc_jax.report import (
    examples,
    patch_maps,
    patch_maps_plot,
    plot,
    score_histogram,
    summary,
    table,
)
from vlc_jax.report.read_workdir import Evaluation, Example, Run
from vlc_jax.run import workdir_files

MAX_EVENTS = 40  # listed events; the rest are counted
MAX_CARDS = 6
CARD_ORDER = (  # benchmarks whose headlines come first
    "scenes_retrieval",
    "retrieval",
    "zeroshot",
    "scenes_objects",
    "scenes_attributes",
    "scenes_attribute_swap",
    "scenes_relation_swap",
    "scenes_whatsup",
)
CURVES = {  # metric -> title, options of plot.curve
    "train/loss": ("Loss", {}),
    "train/grad_norm": ("Gradient norm", {"is_log": True}),
    "train/learning_rate": ("Learning rate", {}),
    "train/logit_scale": ("Logit scale", {}),
    "perf/examples_per_s": ("Examples per second", {"is_from_zero": True}),
    "perf/mfu": ("Model FLOPs utilisation", {"is_fraction": True, "is_from_zero": True}),
    "perf/data_wait_fraction": (
        "Time waiting for data",
        {"is_fraction": True, "is_from_zero": True},
    ),
    "perf/memory_gb": ("Memory, GB", {"is_from_zero": True}),
}


def write(run: Run, beside: Sequence[str] = ()) -> Path:
    """Writes both pages and the figures of a run; returns the path of report.html.

    beside: sentences about published values (`paper.add`).
    """
    return render(run.path, "report", make_context(run) | {"beside": list(beside)})


def render(folder: Path, name: str, context: dict[str, Any]) -> Path:
    """Writes `name`.html, `name`.md and the figures under `name`/ into `folder`.

    context: variables of the templates. Returns the path of the HTML page.
    """
    workdir_files.without_link(folder / name).mkdir(parents=True, exist_ok=True)
    for pictures in context["pictures"].values():
        for picture in pictures:
            picture.write(folder / name)
    css = (Path(__file__).parent / "report.css").read_text()
    context = context | {"css": css, "folder": folder}
    for page in (f"{name}.md", f"{name}.html"):
        text = environment().get_template(f"{page}.jinja").render(context)
        workdir_files.replace(folder / page, text)  # a browser never loads half a page
    return folder / f"{name}.html"


@functools.cache  # compiling the templates takes longer than rendering the pages
def environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        # captions, record ids and error messages come from data and must be escaped in HTML
        autoescape=lambda name: bool(name) and name.endswith(".html.jinja"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "data_uri": _data_uri,
        "cell": table.markdown_cell,
        "percent": table.percent,
        "is_small": lambda file: _png_width(file) <= 128,
        "as_is": markupsafe.Markup,
        "relative": _relative,
    }
    return environment


@jinja2.pass_context
def _relative(context: jinja2.runtime.Context, file: Path) -> str:
    return file.relative_to(context["folder"]).as_posix()


def make_context(run: Run) -> dict[str, Any]:
    """Variables of the two templates."""
    newest = [evaluation.newest for evaluation in run.evaluations]
    headlines = table.headlines(newest)
    with_examples = [
        (evaluation, cases, example_maps(run, evaluation, cases))
        for evaluation in run.evaluations
        if (cases := examples.show(examples.choose(evaluation.examples)))
    ]
    maps = [picture for _, _, pictures in with_examples for picture in pictures if picture]
    return {
        "name": run.path.resolve().name,
        "status": summary.status(run),
        "overview": summary.overview(run),
        "cards": cards(headlines),
        "rows": table.rows(newest),
        "all_rows": table.rows(newest, everything=True),
        "result_notes": table.notes(newest),
        "options": summary.options(newest),
        "table_markdown": table.to_markdown(table.rows(newest)) if newest else "",
        "number": table.number,
        "group_label": examples.group_label,
        "interval": table.interval,
        "has_paper": table.has_paper,
        "paper_difference": table.paper_difference,
        "mixture_rows": (mixture := [row for rows in table.mixed(run.mixtures) for row in rows]),
        "mixture_markdown": table.to_markdown(mixture) if mixture else "",
        "mixed": run.mixed,
        "steps": sorted({row.step for row in headlines}),
        "pictures": {
            "bars": [plot.bars("benchmarks", headlines)] if headlines else [],
            "training": training_curves(run),
            "evaluation": evaluation_curves(run.evaluations),
            "mixtures": mixture_curves(run),
            "maps": maps,
        },
        "histograms": score_histogram.of_run(run),
        "examples": [
            (
                evaluation.name,
                [(*case, picture) for case, picture in zip(cases, pictures, strict=True)],
            )
            for evaluation, cases, pictures in with_examples
        ],
        "cases_command": cases_command([run]),
        "map_notes": list(dict.fromkeys(picture.title for picture in maps)),
        "event_counts": Counter(str(row.get("event")) for row in run.events),
        "events": summary.notable(run.events),
        "max_events": MAX_EVENTS,
        "config": summary.flatten(run.config),
        "config_diff": summary.config_diff(run.default_config, run.config),
        "has_default": bool(run.default_config),
        "versions": summary.mapping(run.env.get("versions")),
        "command": summary.command(run.env.get("command")),
        "commit": str(run.env.get("commit") or ""),
        "notes": run.notes,
    }


def cases_command(runs: Sequence[Run]) -> str:
    """Command that writes the page of single cases of these runs."""
    workdirs = shlex.join(str(run.path) for run in runs)
    return f"vlc-jax report {workdirs} --cases"


def cards(headlines: list[table.Row]) -> list[table.Row]:
    """Headline rows at the top of the page, one per benchmark."""
    order = {name: index for index, name in enumerate(CARD_ORDER)}
    first: dict[str, table.Row] = {}
    for row in headlines:
        first.setdefault(row.benchmark, row)
    return sorted(first.values(), key=lambda row: order.get(row.benchmark, len(order)))[:MAX_CARDS]


def training_curves(run: Run) -> list[plot.Picture]:
    """Training curves, one panel per logged metric."""
    resumes = [
        row["step"]
        for row in run.events
        if row.get("event") == "resume" and isinstance(row.get("step"), int)
    ]
    pictures = []
    for metric, (title, options) in CURVES.items():
        rows = [row for row in run.metrics if isinstance(row.get(metric), int | float)]
        if metric == "train/loss":
            options = options | _log_batch(rows)
        picture = plot.curve(
            metric.replace("/", "_"),
            title,
            [row["step"] for row in rows],
            [row[metric] for row in rows],
            resumes=resumes,
            **options,
        )
        pictures += [picture] if picture else []
    return pictures


def _log_batch(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Second axis of the loss in units of ln(batch): InfoNCE of uniform scores is 1."""
    for row in reversed(rows):
        relative = row.get("train/loss_over_log_batch")
        if isinstance(relative, int | float) and relative > 0 and row["train/loss"] > 0:
            factor = row["train/loss"] / relative
            return {"level": (factor, "ln(batch)"), "right": (factor, "loss / ln(batch)")}
    return {}


def evaluation_curves(evaluations: list[Evaluation]) -> list[plot.Picture]:
    """Headline metric over steps of each benchmark with several evaluations."""
    pictures = []
    for evaluation in evaluations:
        rows = [row for result in evaluation.results for row in table.headlines([result])[:1]]
        if len(rows) > 1 and rows[-1].unit == "fraction":
            steps = [row.step for row in rows]
            name = f"eval_{evaluation.name}"
            pictures.append(plot.along(name, "step", steps, rows, rows[-1].label))
    return pictures


def example_maps(
    run: Run, evaluation: Evaluation, cases: list[tuple[Example, list[examples.ScoredImage]]]
) -> list[plot.Picture | None]:
    """Figures of the patch maps, one per example; None without a file of maps.

    A damaged file becomes a note.
    """
    pictures: list[plot.Picture | None] = []
    for k, (example, images) in enumerate(cases):
        picture = None
        try:
            maps = example.maps and patch_maps.read(example.maps, evaluation.newest["step"])
            if maps:
                name = f"maps_{evaluation.name}_{k}"
                picture = patch_maps_plot.draw(name, maps, patch_maps.choose(maps, images))
        except ValueError as error:
            run.notes.append(f"{example.maps.relative_to(run.path)}: {error}")
        pictures.append(picture)
    return pictures


def mixture_curves(run: Run) -> list[plot.Picture]:
    """Headline metrics over alpha, the weight of this run in interpolated weights."""
    pictures = []
    for rows in table.mixed(run.mixtures):
        if len(rows) == len(run.mixtures) > 1 and rows[-1].unit == "fraction":
            metric, _, _ = rows[-1].label.partition(": alpha")
            name = f"mixture_{rows[-1].benchmark}_{len(pictures)}"
            pictures.append(plot.along(name, "alpha", list(run.mixtures), rows, metric))
    return pictures


def _data_uri(file: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(file.read_bytes()).decode()}"


def _png_width(file: Path) -> int:
    """Width in pixels from the header of a PNG; 0 for other files."""
    header = file.read_bytes()[:24]
    return int.from_bytes(header[16:20], "big") if header[:4] == b"\x89PNG" else 0
