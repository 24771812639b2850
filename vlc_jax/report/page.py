"""The pages of `vlc-jax report`: of one run, and of a comparison of several, in HTML and Markdown.

Reads the runs, draws their figures, and renders the templates beside this file.
"""

import base64
import functools
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from vlc_jax.report import compare, examples, paired, patch_maps, plot, read_workdir, summary, table
from vlc_jax.report.compare import Line
from vlc_jax.report.read_workdir import Evaluation, Example, Run
from vlc_jax.run import workdir_files

FOLDER = Path(__file__).parent
MAX_EVENTS = 40  # listed events; the rest are counted
CURVES = {  # metric -> title, options of plot.curves
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
    """Writes report.html, report.md and the figures of a run; returns the path of report.html.

    beside: sentences about published values (`published.add`).
    """
    return _render(run.path, "report", run_context(run) | {"beside": list(beside)})


def write_comparison(runs: Sequence[Run], folder: Path, beside: Sequence[str] = ()) -> Path:
    """Writes comparison.html, comparison.md and their figures into `folder`; returns the path of
    comparison.html.
    """
    return _render(folder, "comparison", comparison_context(runs) | {"beside": beside})


def _render(folder: Path, name: str, context: dict[str, Any]) -> Path:
    """Writes `name`.html, `name`.md and the figures under `name`/ into `folder`.

    context: variables of the templates. Returns the path of the HTML page.
    """
    workdir_files.without_link(folder / name).mkdir(parents=True, exist_ok=True)
    for pictures in context["pictures"].values():
        for picture in pictures:
            picture.write(folder / name)
    context = context | {"css": (FOLDER / "report.css").read_text(), "folder": folder}
    # HTML last: it exists only if all else was written
    for page in (f"{name}.md", f"{name}.html"):
        text = environment().get_template(f"{page}.jinja").render(context)
        # a browser never loads half a page
        workdir_files.replace(folder / page, text)
    return folder / f"{name}.html"


# compiling the templates takes longer than rendering the pages
@functools.cache
def environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
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
    environment.globals |= {
        "number": table.number,
        "interval": table.interval,
        "paper_difference": table.paper_difference,
        "null_cell": table.null_cell,
        "groups": read_workdir.groups,
        "difference": compare.difference_text,
    }
    return environment


@jinja2.pass_context
def _relative(context: jinja2.runtime.Context, file: Path) -> str:
    return file.relative_to(context["folder"]).as_posix()


def run_context(run: Run) -> dict[str, Any]:
    """Variables of the templates of one run."""
    newest = [evaluation.newest for evaluation in run.evaluations]
    headlines = table.headlines(newest)
    mixture = [row for rows in table.mixed(run.mixtures) for row in rows]
    with_examples = [
        (evaluation.title, _with_maps(run, evaluation, cases))
        for evaluation in run.evaluations
        if (cases := examples.show(examples.choose(evaluation.examples)))
    ]
    maps = [picture for _, cases in with_examples for *_, picture in cases if picture]
    return {
        "name": run.path.resolve().name,
        "status": summary.status(run),
        "overview": summary.overview(run),
        "rows": table.rows(newest),
        "all_rows": table.rows(newest, everything=True),
        "has_paper": table.has_paper,
        "nulls_of": table.nulls_of,
        "null_legend": table.null_legend(table.rows(newest, everything=True)),
        "result_notes": table.notes(newest),
        "options": summary.options(newest),
        "table_markdown": table.to_markdown(table.rows(newest)) if newest else "",
        "mixture_rows": mixture,
        "mixture_markdown": table.to_markdown(mixture) if mixture else "",
        "mixed": run.mixed,
        "steps": sorted({row.step for row in headlines}),
        "pictures": {
            "bars": headline_bars(headlines),
            "training": training_curves([""], [run]),
            "evaluation": evaluation_curves(run.evaluations),
            "mixtures": mixture_curves(run),
            "maps": maps,
        },
        "examples": with_examples,
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


def comparison_context(runs: Sequence[Run]) -> dict[str, Any]:
    """Variables of the templates of a comparison."""
    names = compare.names([run.path for run in runs])
    results = compare.newest_results(runs)
    lines, groups = compare.lines(results), compare.by_group(results)
    pairs = paired.lines(runs)
    overviews = [_overview(run, newest) for run, newest in zip(runs, results, strict=True)]
    return {
        "names": names,
        "styles": [plot.run_style(index)[0] for index in range(len(runs))],
        "statuses": [summary.status(run) for run in runs],
        "paths": [run.path for run in runs],
        "lines": lines,
        "groups": groups,
        "all_lines": compare.lines(results, everything=True),
        "has_paper": compare.has_paper,
        "nulls_of": compare.nulls_of,
        "paired": [paired.HEADER, *paired.cells(names, pairs)] if pairs else [],
        "paired_legend": paired.legend(names),
        "cases_command": cases_command(runs[:2]),
        "tables": {
            "lines": compare.to_markdown(names, lines),
            "groups": compare.to_markdown(names, groups),
            "paired": paired.to_markdown(names, pairs),
        },
        "legend": compare.legend(names, lines),
        "other_cases": compare.other_cases(results),
        "stale": compare.stale(names, results),
        "pictures": {
            "benchmarks": comparison_bars(names, compare.headlines(results)),
            "groups": _group_bars(names, groups),
            "training": training_curves(names, runs),
        },
        "config_diff": compare.config_differences(runs),
        "without_config": compare.without_config(names, runs),
        "overview": [row for row in summary.side_by_side(overviews) if any(row[1])],
        "notes": [(n, note) for n, run in zip(names, runs, strict=True) for note in run.notes],
    }


def _overview(run: Run, results: dict[str, dict[str, Any]]) -> dict[str, str]:
    """`summary.overview` of a run and fields of comparisons only; "" if unknown."""
    status = summary.status(run)
    steps = sorted({result["step"] for result in results.values()})
    return {
        "Workdir": str(run.path),
        "Status": f"{status['word']}. {status['text']}",
        "Started from": str(run.config.get("init_from") or ""),
        "Evaluated at step": ", ".join(f"{step:,}" for step in steps),
        **dict(summary.overview(run)),
        "Command": summary.command(run.env.get("command")),
    }


def cases_command(runs: Sequence[Run]) -> str:
    """Command that writes the page of single cases of these runs."""
    workdirs = shlex.join(str(run.path) for run in runs)
    return f"vlc-jax report {workdirs} --cases"


def headline_bars(headlines: Sequence[table.Row]) -> list[plot.Picture]:
    """Bar chart of the headline metrics of a run, with a remark beside those at chance or below."""
    rows = [[row] for row in headlines if row.unit == "fraction"]
    if not rows:
        return []
    words = {"at": "≈ chance", "below": "worse than chance", "blind": f"{table.BLIND} blind"}
    remarks = [[words.get(row.verdict, "")] for (row,) in rows]
    title = f"Benchmarks: {_marks(headlines)}"
    title += "; diamond: paper" if table.has_paper(headlines) else ""
    return [plot.bars("benchmarks", title, [""], rows, remarks)]


def comparison_bars(names: Sequence[str], headlines: Sequence[Line]) -> list[plot.Picture]:
    """Bar charts of headline metrics; benchmarks with `Display.by_group` have a separate figure."""
    fractions = [line for line in headlines if line.any_row.unit == "fraction"]
    triplets = [line for line in fractions if line.any_row.display.by_group]
    others = [line for line in fractions if line not in triplets]
    titles = {
        "benchmarks": ("Benchmarks", others),
        "triplets": ("Hard negatives and hard positives", triplets),
    }
    return [_bars(name, title, names, lines) for name, (title, lines) in titles.items() if lines]


def _group_bars(names: Sequence[str], lines: Sequence[Line]) -> list[plot.Picture]:
    """Bar charts of the groups of cases, one per benchmark."""
    pictures = []
    for benchmark in dict.fromkeys(line.benchmark for line in lines):
        of_benchmark = [line for line in lines if line.benchmark == benchmark]
        title = f"{of_benchmark[0].name}, group by group"
        pictures.append(_bars(f"groups_{benchmark}", title, names, of_benchmark))
    return pictures


def _bars(name: str, title: str, names: Sequence[str], lines: Sequence[Line]) -> plot.Picture:
    """Bar chart of lines, with the symbols of the table."""
    indices = range(len(names))
    symbols = [[compare.SYMBOLS[line.verdict(index)] for index in indices] for line in lines]
    rows = [row for line in lines for row in line.rows if row]
    title = f"{title}: {_marks(rows)}; ▲▼ against {names[0]}"
    title += "; diamond: paper" if compare.has_paper(lines) else ""
    return plot.bars(name, title, names, [line.rows for line in lines], symbols)


def _marks(rows: Sequence[table.Row]) -> str:
    """Meaning of the marks in a bar chart of rows."""
    # short: the titles of comparisons go on with the name of a run
    if any(row.blind is not None for row in rows):
        return "95 % interval, chance (line), blind (dotted)"
    return "value, 95 % interval, chance (upright line)"


def training_curves(names: Sequence[str], runs: Sequence[Run]) -> list[plot.Picture]:
    """Training curves, one panel per metric that any run has logged.

    A single run has marks where it was resumed, and its loss a second axis in units of ln(batch).
    """
    pictures = []
    for metric, (title, options) in CURVES.items():
        curves = []
        for name, run in zip(names, runs, strict=True):
            rows = [row for row in run.metrics if isinstance(row.get(metric), int | float)]
            curves.append((name, [row["step"] for row in rows], [row[metric] for row in rows]))
        # ln(batch) and resumes of several runs would cross in one panel
        if len(runs) == 1:
            options = options | {"resumes": _resumes(runs[0])}
            if metric == "train/loss":
                options["ln_batch"] = _ln_batch(runs[0].metrics)
        panel = plot.curves(metric.replace("/", "_"), title, curves, **options)
        pictures += [panel] if panel else []
    return pictures


def _resumes(run: Run) -> list[int]:
    steps = [row.get("step") for row in run.events if row.get("event") == "resume"]
    return [step for step in steps if isinstance(step, int)]


def _ln_batch(rows: Sequence[dict[str, Any]]) -> float | None:
    """Logarithm of the batch size, the InfoNCE of uniform scores; None if it was not logged."""
    for row in reversed(rows):
        loss, relative = row.get("train/loss"), row.get("train/loss_over_log_batch")
        if all(isinstance(each, int | float) and each > 0 for each in (loss, relative)):
            return loss / relative
    return None


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


def mixture_curves(run: Run) -> list[plot.Picture]:
    """Headline metrics over alpha, the weight of this run in interpolated weights."""
    pictures = []
    for rows in table.mixed(run.mixtures):
        if len(rows) == len(run.mixtures) > 1 and rows[-1].unit == "fraction":
            metric, _, _ = rows[-1].label.partition(": alpha")
            name = f"mixture_{rows[-1].benchmark}_{len(pictures)}"
            pictures.append(plot.along(name, "alpha", list(run.mixtures), rows, metric))
    return pictures


def _with_maps(
    run: Run, evaluation: Evaluation, cases: list[tuple[Example, list[examples.ScoredImage]]]
) -> list[tuple[Example, list[examples.ScoredImage], plot.Picture | None]]:
    """The examples with the figures of their patch maps; None without a file of maps.

    A damaged file becomes a note.
    """
    with_maps = []
    for k, (example, images) in enumerate(cases):
        picture = None
        try:
            maps = example.maps and patch_maps.read(example.maps, evaluation.newest["step"])
            if maps:
                name = f"maps_{evaluation.name}_{k}"
                picture = patch_maps.draw(name, maps, patch_maps.choose(maps, images))
        except ValueError as error:
            run.notes.append(f"{example.maps.relative_to(run.path)}: {error}")
        with_maps.append((example, images, picture))
    return with_maps


def _data_uri(file: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(file.read_bytes()).decode()}"


def _png_width(file: Path) -> int:
    """Width in pixels from the header of a PNG; 0 for other files."""
    header = file.read_bytes()[:24]
    return int.from_bytes(header[16:20], "big") if header[:4] == b"\x89PNG" else 0
