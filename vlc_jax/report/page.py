"""The pages of `vlc-jax report`: of one run, and of a comparison of several, in HTML and Markdown.

Each is one sequence of blocks, which both renderers read.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from vlc_jax.report import (
    blocks,
    compare,
    examples,
    paired,
    patch_maps,
    pictures,
    read_workdir,
    summary,
    table,
    to_html,
    to_markdown,
)
from vlc_jax.report.blocks import (
    Block,
    Cases,
    Content,
    Details,
    Figures,
    Heading,
    Span,
    Table,
    Text,
)
from vlc_jax.report.read_workdir import Evaluation, Example, Run
from vlc_jax.run import workdir_files

MAX_EVENTS = 40  # listed events; the rest are counted
BANDS = "Band: 95 % interval. Dashed: chance."
INSTALL = "pip install -r requirements.lock && pip install --no-deps -e ."


def write(folder: Path, name: str, title: str, content: Sequence[Block]) -> Path:
    """Writes `name`.html, `name`.md and the figures under `name`/ into `folder`; returns the path
    of the HTML page."""
    workdir_files.without_link(folder / name).mkdir(parents=True, exist_ok=True)
    for picture in blocks.pictures(content):
        picture.write(folder / name)
    markdown = to_markdown.render(content, to_markdown.Place(folder, name))
    # a browser never loads half a page; HTML last: it exists only if all else was written
    workdir_files.replace(folder / f"{name}.md", f"{markdown}\n")
    workdir_files.replace(folder / f"{name}.html", to_html.page(title, content))
    return folder / f"{name}.html"


def run_page(run: Run, beside: Sequence[str]) -> Iterator[Block]:
    """The page of one run."""
    status = summary.status(run)
    yield Heading([run.path.resolve().name, " ", _pill(status)], 1)
    yield Text(status["text"], "reason" if status["kind"] == "failed" else "muted")
    yield Heading("Benchmarks")
    yield from _benchmarks(run, beside)
    yield Heading("What ran")
    command, commit = (str(summary.command(run.env.get(name))) for name in ("command", "commit"))
    if command:
        yield Text(command, "pre")
    yield _facts(summary.overview(run))
    yield from _config(run)
    yield Heading("Training")
    yield from _training([""], [run], "Dotted verticals: the run was resumed there.")
    if curves := pictures.evaluation_curves(run.evaluations):
        yield Heading("Benchmarks during training")
        yield Figures(curves, "small")
        yield Text(BANDS, "muted")
    yield from _mixtures(run)
    yield from _examples(run)
    yield Heading("What happened")
    yield from _events(run)
    yield from _notes(run.notes)
    yield Heading("How to reproduce")
    if not command:
        yield Text("The command was not recorded (env.json).")
        return
    checkout = f"git checkout {commit.removesuffix('-dirty')}\n" if commit else ""
    yield Text(f"{checkout}{INSTALL}\n{command}", "pre")
    if commit.endswith("-dirty"):
        yield Text("The working tree had changes that are in no commit.", "bad")
    yield Text(
        "Use a new --workdir: the same one would be continued. The order of the data depends on "
        "the seed and the step only.",
        "muted",
    )


def _benchmarks(run: Run, beside: Sequence[str]) -> Iterator[Block]:
    newest = [evaluation.newest for evaluation in run.evaluations]
    rows, all_rows = table.rows(newest), table.rows(newest, everything=True)
    if not rows:
        yield Text("No benchmark has been evaluated yet.")
        return
    headlines = table.headlines(newest)
    steps = ", ".join(map(str, sorted({row.step for row in headlines})))
    yield Text(f"Newest evaluation of each benchmark, step {steps}.", "muted")
    yield Figures(pictures.headline_bars(headlines), "wide")
    yield table.to_table(rows)
    for sentence in (*table.notes(newest), *beside):
        yield Text(sentence, "muted")
    if len(all_rows) > len(rows):
        title = f"All {len(all_rows)} metrics, groups included"
        yield Details(title, [table.to_table(all_rows)], is_long=True)
    if options := summary.options(newest):
        yield Details("Splits, files and options of the benchmarks", [_facts(options)])


def _config(run: Run) -> Iterator[Block]:
    changed = summary.config_diff(run.default_config, run.config)
    if changed:
        yield Heading("Differences from the default config", 3)
        yield _texts(["field", "default", "this run"], changed)
    elif run.default_config:
        yield Text("The config is the default one.")
    if config := summary.flatten(run.config):
        fields = _texts(["field", "value"], config.items())
        yield Details(f"Config, all {len(config)} fields", [fields], is_long=True)
    if versions := summary.mapping(run.env.get("versions")):
        yield Details("Versions", [_facts(versions.items())])


def _training(names: Sequence[str], runs: Sequence[Run], remark: str) -> Iterator[Block]:
    if curves := pictures.training_curves(names, runs):
        yield Figures(curves)
        yield Text(f"Thin line: logged values; thick line: running mean. {remark}", "muted")
    else:
        yield Text("No metric has two logged steps yet, which a curve needs.")


def _mixtures(run: Run) -> Iterator[Block]:
    rows = [row for rows in table.mixed(run.mixtures) for row in rows]
    if rows:
        step = f" at step {run.mixed['step']}" if "step" in run.mixed else ""
        text = f"(1 − alpha) × other weights + alpha × this run's{step} (WiSE-FT)"
        other = Span(str(run.mixed.get("other", "not recorded")), "code")
        yield Heading("Between two sets of weights")
        yield Text(
            [text, "; the others: ", other, ". Band: 95 % interval. Dashed: chance."], "muted"
        )
        yield Figures(pictures.mixture_curves(run), "small")
        yield table.to_table(rows)


def _examples(run: Run) -> Iterator[Block]:
    shown = [
        (evaluation.title, [_case(run, evaluation, k, *each) for k, each in enumerate(cases)])
        for evaluation in run.evaluations
        if (cases := examples.show(examples.choose(evaluation.examples)))
    ]
    if not shown:
        return
    yield Heading("Examples")
    words = (
        "Captions by score, bars from the lowest to the highest score shown of a benchmark. ✓ the "
        "correct caption; bold: the choice of the model. "
    )
    yield Text([words, _cases_command([run]), " writes a page of all cases."], "muted")
    maps = (case.maps.title for _, cases in shown for case in cases if case.maps)
    for sentence in dict.fromkeys(maps):
        yield Text(sentence, "muted")
    for title, cases in shown:
        yield Heading(Span(title, "code"), 3)
        yield Cases(cases)


def _case(
    run: Run, evaluation: Evaluation, k: int, example: Example, images: list[examples.ScoredImage]
) -> examples.Case:
    """An example with the figure of its patch maps; a damaged file becomes a note."""
    row, picture = example.row, None
    try:
        maps = example.maps and patch_maps.read(example.maps, evaluation.newest["step"])
        if maps:
            name = f"maps_{evaluation.name}_{k}"
            picture = patch_maps.draw(name, maps, patch_maps.choose(maps, images))
    except ValueError as error:
        run.notes.append(f"{example.maps.relative_to(run.path)}: {error}")
    return examples.Case(str(row.get("id")), read_workdir.groups(row), images, picture)


def _events(run: Run) -> Iterator[Block]:
    counts = Counter(str(row.get("event")) for row in run.events)
    if counts:
        yield Text(" · ".join(f"{event} {number}" for event, number in counts.items()), "muted")
    events = summary.notable(run.events)
    if not events:
        yield Text("Nothing out of the ordinary: no resume, no bad record, no damaged checkpoint.")
        return
    rows = [
        [Span(each["time"], "time"), Span(each["event"], each["kind"]), each["text"], each["step"]]
        for each in events[:MAX_EVENTS]
    ]
    yield Table(["time (UTC)", "event", "details", "step"], rows, 3)
    if len(events) > MAX_EVENTS:
        yield Text(f"and {len(events) - MAX_EVENTS} more in events.jsonl", "muted")


def comparison_page(runs: Sequence[Run], beside: Sequence[str]) -> Iterator[Block]:
    """The page of a comparison."""
    names, results = compare.names([run.path for run in runs]), compare.newest_results(runs)
    header = compare.run_headers(names)
    yield Heading(f"Comparison of {len(runs)} runs", 1)
    for index, run in enumerate(runs):
        pill, path = _pill(summary.status(run)), Span(str(run.path), "code")
        name = Span(names[index], "bold")
        yield Text([compare.swatch(index), name, " ", pill, " ", path])
    if other_cases := compare.other_cases(results):
        words = (
            "These benchmarks had other cases in some runs. Their numbers stand beside each other"
        )
        yield Heading("Not evaluated on the same cases")
        yield Text(f"{words} below but do not compare.", "reason")
        rows = [(benchmark, field, *values) for benchmark, field, values in other_cases]
        yield _texts(["benchmark", "field", *header], rows)
    yield Heading("Benchmarks")
    yield from _compared(names, runs, beside)
    yield Heading("What differs between the configs")
    if missing := compare.without_config(names, runs):
        yield Text(f"Without a config that can be read: {', '.join(missing)}.", "bad")
    differing = [(field, *values) for field, values in compare.config_differences(runs)]
    yield _texts(["field", *header], differing) if differing else Text("No field.")
    yield Heading("What ran")
    columns = [_overview(run, newest) for run, newest in zip(runs, results, strict=True)]
    ran = [(name, *values) for name, values in summary.side_by_side(columns) if any(values)]
    yield _texts(["", *header], ran)
    yield Heading("Training")
    remark = "Losses compare only between runs with the same losses, weights and batch size."
    yield from _training(names, runs, remark)
    notes = ((name, note) for name, run in zip(names, runs, strict=True) for note in run.notes)
    yield from _notes([f"{name}: {note}" for name, note in notes])


def _compared(names: Sequence[str], runs: Sequence[Run], beside: Sequence[str]) -> Iterator[Block]:
    results = compare.newest_results(runs)
    lines, all_lines = compare.lines(results), compare.lines(results, everything=True)
    if not lines:
        yield Text("No benchmark has been evaluated yet.")
        return
    legend = compare.legend(names, lines)
    yield Text(f"Newest evaluation of each benchmark in each run. {legend}", "muted")
    for sentence in compare.stale(names, results):
        yield Text(sentence, "bad")
    yield Figures(pictures.comparison_bars(names, compare.headlines(results)), "wide")
    yield compare.to_table(names, lines)
    for sentence in beside:
        yield Text(sentence, "muted")
    if pairs := paired.lines(runs):
        words = (
            "The cases themselves, where the runs disagree for example, with images and scores: "
        )
        yield Heading("Case by case")
        yield paired.to_table(names, pairs)
        yield Text([words, _cases_command(runs[:2]), " writes a page of them."], "muted")
    if groups := compare.by_group(results):
        yield Heading("Hard negatives and hard positives, group by group")
        yield Text(
            "Augmented: the correct caption and the hard positive both score above the hard "
            "negative. Original: the correct caption does. Brittleness: the hard negative scores "
            "between the two.",
            "muted",
        )
        yield Figures(pictures.group_bars(names, groups), "wide")
        yield compare.to_table(names, groups)
    if len(all_lines) > len(lines):
        every = compare.to_table(names, all_lines)
        yield Details(f"All {len(all_lines)} metrics", [every], is_long=True)


def _notes(notes: Sequence[str]) -> Iterator[Block]:
    if notes:
        yield Heading("Files that could not be used", 3)
        yield from map(Text, notes)


def _facts(pairs: Iterable[tuple[str, object]]) -> Table:
    return Table([], [[name, str(value)] for name, value in pairs], 2, "facts")


def _texts(header: Sequence[Content], rows: Iterable[Sequence[str]]) -> Table:
    """Table of texts whose first column is of names; an empty text is a dash."""
    cells = [[Span(name, "code"), *(text or "–" for text in texts)] for name, *texts in rows]
    return Table(header, cells, len(header))


def _pill(status: dict[str, str]) -> Span:
    return Span(status["word"], f"pill {status['kind']}")


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


def _cases_command(runs: Sequence[Run]) -> Span:
    """Command that writes the page of single cases of these runs."""
    return Span(f"vlc-jax report {shlex.join(str(run.path) for run in runs)} --cases", "code")
