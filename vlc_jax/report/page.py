"""The pages of `vlc-jax report`, of one run or of a comparison of several, in HTML and Markdown.

A page is one sequence of blocks, which both renderers read.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from vlc_jax.report import (
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
    plain,
)
from vlc_jax.report.read_workdir import Evaluation, Example, Run
from vlc_jax.run import workdir_files

MAX_EVENTS = 40  # listed events; the rest are counted
BANDS = "Band: 95 % interval. Dashed: chance."
INSTALL = "pip install -r requirements.lock && pip install --no-deps -e ."


def write(runs: Sequence[Run], folder: Path, name: str, beside: Sequence[str] = ()) -> Path:
    """Writes `name`.html, `name`.md and the figures under `name`/ into `folder`; returns the path
    of the HTML page.

    beside: sentences about published values (`published.add`).
    """
    return write_blocks([*blocks(runs, beside)], folder, name)


def write_blocks(content: Sequence[Block], folder: Path, name: str) -> Path:
    """`write` of any blocks, of which the first is the title."""
    workdir_files.without_link(folder / name).mkdir(parents=True, exist_ok=True)
    # a browser never loads half a page; HTML last: it exists only if all else was written
    markdown = to_markdown.render(content, folder / name)
    workdir_files.replace(folder / f"{name}.md", f"{markdown}\n")
    html = to_html.page(plain(content[0].content), content)
    workdir_files.replace(folder / f"{name}.html", html)
    return folder / f"{name}.html"


def blocks(runs: Sequence[Run], beside: Sequence[str]) -> Iterator[Block]:
    """The page of one run, or of a comparison of several."""
    names, results = compare.names([run.path for run in runs]), compare.newest_results(runs)
    run, is_alone = runs[0], len(runs) == 1
    yield Heading(names[0] if is_alone else f"Comparison of {', '.join(names)}", 1)
    for name, status in zip(compare.run_headers(names), map(summary.status, runs), strict=True):
        pill = Span(status["word"], f"pill {status['kind']}")
        sentence = [*([] if is_alone else [*name, " "]), pill, f" {status['text']}"]
        yield Text(sentence, "reason" if status["kind"] == "failed" else "")
    yield from _other_cases(names, results)
    yield Heading("Benchmarks")
    if not any(results):
        yield Text("No benchmark has been evaluated yet.")
    elif is_alone:
        yield from _results(run, beside)
    else:
        yield from _compared(names, runs, beside)
    if not is_alone:
        yield from _configs(names, runs)
    yield Heading("What ran")
    columns = [_overview(run, newest) for run, newest in zip(runs, results, strict=True)]
    ran = [(name, *values) for name, values in summary.side_by_side(columns) if any(values)]
    yield _texts([] if is_alone else ["", *compare.run_headers(names)], ran)
    if is_alone:
        yield from _recorded(run)
    yield from _training(names, runs)
    if is_alone:
        yield from _along(run)
        yield from _examples(run)
        yield from _events(run)
    if any(run.notes for run in runs):
        yield Heading("Files that could not be used")
    for name, one in zip(names, runs, strict=True):
        yield from (Text(note if is_alone else f"{name}: {note}") for note in one.notes)
    if is_alone:
        yield from _reproduction(run)


def _other_cases(names: Sequence[str], results: Sequence[dict[str, Any]]) -> Iterator[Block]:
    rows = [(name, field, *values) for name, field, values in compare.other_cases(results)]
    if rows:
        words = "These benchmarks had other cases in some runs: their numbers below do not compare."
        yield Heading("Not evaluated on the same cases")
        yield Text(words, "reason")
        yield _texts(["benchmark", "field", *compare.run_headers(names)], rows)


def _results(run: Run, beside: Sequence[str]) -> Iterator[Block]:
    newest = [evaluation.newest for evaluation in run.evaluations]
    rows, all_rows = table.rows(newest), table.rows(newest, everything=True)
    steps = ", ".join(map(str, sorted({row.step for row in table.headlines(newest)})))
    yield Text(f"Newest evaluation of each benchmark, step {steps}.", "muted")
    yield Figures(pictures.benchmark_bars([""], [run]), "wide")
    yield table.to_table(rows)
    for sentence in (*table.notes(newest), *beside):
        yield Text(sentence, "muted")
    if len(all_rows) > len(rows):
        title = f"All {len(all_rows)} metrics, groups included"
        yield Details(title, [table.to_table(all_rows)], is_long=True)
    if options := summary.options(newest):
        yield Details("Splits, files and options of the benchmarks", [_texts([], options)])


def _compared(names: Sequence[str], runs: Sequence[Run], beside: Sequence[str]) -> Iterator[Block]:
    results = compare.newest_results(runs)
    lines, all_lines = compare.lines(results), compare.lines(results, everything=True)
    legend = compare.legend(names, lines)
    yield Text(f"Newest evaluation of each benchmark in each run. {legend}", "muted")
    for sentence in compare.stale(names, results):
        yield Text(sentence, "bad")
    yield Figures(pictures.benchmark_bars(names, runs), "wide")
    yield compare.to_table(names, lines)
    for sentence in beside:
        yield Text(sentence, "muted")
    if pairs := paired.lines(runs):
        words = "The cases, such as those where the runs disagree, with images and scores: "
        yield Heading("Case by case")
        yield paired.to_table(names, pairs)
        yield Text([words, _cases_command(runs[:2]), " writes a page of them."], "muted")
    if groups := compare.by_group(results):
        words = (
            "Augmented: the correct caption and the hard positive both score above the hard "
            "negative. Original: the correct caption does. Brittleness: the hard negative scores "
            "between the two."
        )
        yield Heading("Hard negatives and hard positives, group by group")
        yield Text(words, "muted")
        yield Figures(pictures.group_bars(names, groups), "wide")
        yield compare.to_table(names, groups)
    if len(all_lines) > len(lines):
        every = compare.to_table(names, all_lines)
        yield Details(f"All {len(all_lines)} metrics", [every], is_long=True)


def _configs(names: Sequence[str], runs: Sequence[Run]) -> Iterator[Block]:
    """Differences between the configs of runs."""
    yield Heading("What differs between the configs")
    if missing := compare.without_config(names, runs):
        yield Text(f"Without a config that can be read: {', '.join(missing)}.", "bad")
    rows = [(field, *values) for field, values in compare.config_differences(runs)]
    header = ["field", *compare.run_headers(names)]
    yield _texts(header, rows) if rows else Text("No field.")


def _recorded(run: Run) -> Iterator[Block]:
    if config := summary.flatten(run.config):
        fields = _texts(["field", "value"], config.items())
        yield Details(f"Config, all {len(config)} fields", [fields], is_long=True)
    if versions := read_workdir.mapping(run.env.get("versions")):
        yield Details("Versions", [_texts([], versions.items())])


def _training(names: Sequence[str], runs: Sequence[Run]) -> Iterator[Block]:
    yield Heading("Training")
    curves = pictures.training_curves(names, runs)
    if not curves:
        yield Text("No metric has two logged steps yet, which a curve needs.")
        return
    remark = "Dotted verticals: the run was resumed there."
    if len(runs) > 1:
        remark = "Losses compare only between runs with the same losses, weights and batch size."
    yield Figures(curves)
    yield Text(f"Thin line: logged values; thick line: running mean. {remark}", "muted")


def _along(run: Run) -> Iterator[Block]:
    """Benchmarks over the steps, and over the mixtures of two weights."""
    if curves := pictures.evaluation_curves(run.evaluations):
        yield Heading("Benchmarks during training")
        yield Figures(curves, "small")
        yield Text(BANDS, "muted")
    if rows := [row for rows in table.mixed(run.mixtures) for row in rows]:
        step = f" at step {run.mixed['step']}" if "step" in run.mixed else ""
        text = f"(1 − alpha) × other weights + alpha × this run's{step} (WiSE-FT); the others: "
        other = Span(str(run.mixed.get("other", "not recorded")), "code")
        yield Heading("Between two sets of weights")
        yield Text([text, other, f". {BANDS}"], "muted")
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
    words = (
        "Captions by score, bars from the lowest to the highest score shown of a benchmark. ✓ the "
        "correct caption; bold: the choice of the model. "
    )
    yield Heading("Examples")
    yield Text([words, _cases_command([run]), " writes a page of all cases."], "muted")
    maps = (case.maps.title for _, cases in shown for case in cases if case.maps)
    yield from (Text(sentence, "muted") for sentence in dict.fromkeys(maps))
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
    yield Heading("What happened")
    counts = Counter(str(row.get("event")) for row in run.events)
    if counts:
        yield Text(" · ".join(f"{event} {number}" for event, number in counts.items()), "muted")
    events = summary.notable(run.events)
    if not events:
        yield Text("Nothing out of the ordinary: no resume, no bad record, no damaged checkpoint.")
        return
    rows = [
        [Span(time, "time"), Span(event, "bad" * is_bad), details, step]
        for time, event, details, step, is_bad in events[:MAX_EVENTS]
    ]
    yield Table(["time (UTC)", "event", "details", "step"], rows, 3)
    if len(events) > MAX_EVENTS:
        yield Text(f"and {len(events) - MAX_EVENTS} more in events.jsonl", "muted")


def _reproduction(run: Run) -> Iterator[Block]:
    yield Heading("How to reproduce")
    command, commit = (summary.command(run.env.get(name)) for name in ("command", "commit"))
    if not command:
        yield Text("The command was not recorded (env.json).")
        return
    version = str(read_workdir.mapping(run.env.get("versions")).get("vlc_jax") or "")
    install = f"git checkout {commit.removesuffix('-dirty')}\n{INSTALL}" if commit else INSTALL
    if not commit and version[:1].isdecimal():  # of a wheel
        install = f"pip install vlc_jax=={version}"
    yield Text(f"{install}\n{command}", "pre")
    if commit.endswith("-dirty"):
        yield Text("The working tree had changes that are in no commit.", "bad")
    words = "Use a new --workdir: the same one would be continued. The order of the data depends on"
    yield Text(f"{words} the seed and the step only.", "muted")


def _texts(header: Sequence[Content], rows: Iterable[Sequence[Any]]) -> Table:
    """Table of texts whose first column is of names; an empty text is a dash."""
    style = "code" if header and header[0] else ""
    cells = [
        [Span(str(name), style), *(str(text or "–") for text in texts)] for name, *texts in rows
    ]
    return Table(header, cells, len(header) or 2, "" if header else "facts")


def _overview(run: Run, results: dict[str, dict[str, Any]]) -> dict[str, str]:
    """`summary.overview` of a run and where its files come from; "" if unknown."""
    steps = sorted({result["step"] for result in results.values()})
    return {
        "Workdir": str(run.path),
        "Started from": str(run.config.get("init_from") or ""),
        "Evaluated at step": ", ".join(f"{step:,}" for step in steps),
        **dict(summary.overview(run)),
        "Command": summary.command(run.env.get("command")),
    }


def _cases_command(runs: Sequence[Run]) -> Span:
    """Command that writes the page of single cases of these runs."""
    return Span(f"vlc-jax report {shlex.join(str(run.path) for run in runs)} --cases", "code")
