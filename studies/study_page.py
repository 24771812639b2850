"""Pages of a study: tables and figures of means over seeds with 95 % intervals.

results.md answers questions with a few columns each; `notes`, which are printed on request, have
the tables of all runs.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import jinja2
import matplotlib

from studies import (
    method_tables,
    study_binding,
    study_columns,
    study_figures,
    study_methods,
    study_plan,
    study_prose,
)
from studies.study_columns import COLUMNS, PROTOCOLS, Column, column
from studies.study_results import RECORD, VALUES, Results, cell, percent, signed
from vlc_jax.report import published
from vlc_jax.report.to_markdown import markdown_table

ANSWERS = "results.md"  # from the template results.md.jinja beside this file


def table(results: Results, runs: Sequence[str], *titles: str) -> str:
    """Markdown table in percent, mean ± half interval; runs that are not done have no row."""
    done, columns = [run for run in runs if results.has(run)], [*map(column, titles)]
    if not done:
        return study_prose.NOT_RUN
    titles = zip(results.titles(done), done, strict=True)
    rows = [[title, *(_cell(results, run, of) for of in columns)] for title, run in titles]
    return _with_chance("model", columns, rows)


def protocols(results: Results, tower: str, run: str, *titles: str) -> str:
    """Markdown table of a model that answers: the cosine of the run `tower`, then a row for each
    protocol. Sets without a result of the protocol are blank."""
    asked = {"": (tower, *results.titles([tower]))} if results.has(tower) else {}
    if results.has(run):
        asked |= {f"/{name}": (run, title) for name, title in PROTOCOLS.items()}
    rows = []
    for end, (name, title) in asked.items():
        columns = [column(f"{each}{end}") for each in titles]
        has = [results.has(name, of.benchmark) for of in columns]
        cells = zip(columns, has, strict=True)
        rows.append([title, *(_cell(results, name, of) if there else "–" for of, there in cells)])
    return _with_chance("protocol", [*map(column, titles)], rows)


def _cell(results: Results, run: str, of: Column) -> str:
    return cell(results.value(run, of.benchmark, of.metric))


def _with_chance(title: str, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> str:
    """Table in Markdown with a first row of chance levels."""
    header = [title, *[of.title for of in columns]]
    chance = ["chance", *[percent(of.chance) for of in columns]]
    return markdown_table(header, [chance, *rows], len(header))


def replace_of_paper(model: str, accuracy: str) -> str:
    """Original or augmented accuracy on REPLACE of a model of Kamath et al. 2024, in percent."""
    (value,) = {
        value.value
        for value in published.model_values(model)
        if (value.source, value.full_metric) == ("hard_positives", f"{accuracy}_accuracy_macro")
    }
    return f"{value:.1f}"


def notes(results: Results, parts: Iterable[str]) -> Iterator[str]:
    """Tables of all runs of the parts, one by benchmark: its columns in COLUMNS in percent, of a
    benchmark without any all metrics as they are."""
    yield (
        f"# All results\n\nMean over {results.seeds} seeds, or as many as a row says, ± half of "
        "the 95 % interval over seeds, and the value of each seed.\n"
    )
    for part in parts:
        results.prefer = study_plan.preferred(part, results)
        planned = dict.fromkeys(run.name.rpartition("-")[0] for run in study_plan.plan(part, 1))
        runs = [run for run in planned if results.has(run)]
        yield f"## Part {part}: {study_plan.PARTS[part]}\n"
        for benchmark in results.benchmarks(runs):
            yield f"### {benchmark}\n\n{_benchmark_table(results, runs, benchmark)}\n"
        yield _gains(results, runs)
    results.prefer = ""


def _benchmark_table(results: Results, runs: Sequence[str], benchmark: str) -> str:
    """The table of a benchmark; turned if it has more metrics than runs."""
    runs = [run for run in runs if results.has(run, benchmark)]
    titles = {of.metric: of.title for of in COLUMNS.values() if of.benchmark == benchmark}
    found = dict.fromkeys(name for run in runs for name in results.metrics(run, benchmark))
    names = [name for name in found if name in titles] or [*found]
    rows = [["", *[titles.get(name, name) for name in names]]]
    for run, title in zip(runs, results.titles(runs), strict=True):
        has = [results.has(run, benchmark, name) for name in names]
        cells = (
            _with_seeds(results, run, benchmark, name, name in titles) if there else "–"
            for name, there in zip(names, has, strict=True)
        )
        rows.append([title, *cells])
    header, *rows = zip(*rows, strict=True) if len(names) > len(runs) else rows
    return markdown_table(header, rows, len(header))


def _with_seeds(results: Results, run: str, benchmark: str, metric: str, is_share: bool) -> str:
    """The mean, its interval, the value of each seed, and chance where it was measured."""
    estimates = results.estimates(run, benchmark, metric)
    seeds = [estimate.value for estimate in estimates]
    if benchmark == RECORD:
        return ", ".join(f"{value:g}" for value in seeds)
    value, chances = results.value(run, benchmark, metric), [each.chance for each in estimates]
    text = cell(value) if is_share else f"{value.mean:.3f} ±{value.half:.3f}"
    if len(seeds) > 1:
        shown = (f"{100 * seed:.1f}" if is_share else f"{seed:.3f}" for seed in seeds)
        text += f" [{', '.join(shown)}]"
    return text if None in chances else f"{text}; chance {sum(chances) / len(chances):.3f}"


def _gains(results: Results, runs: Sequence[str]) -> str:
    """Differences of runs and their controls, paired by seed: a column per benchmark."""
    columns = [COLUMNS[title] for title in study_columns.OF_GAINS]
    rows = []
    for run in runs:
        control = study_columns.control(run)
        if control and results.has(control):
            title = f"{study_columns.label(run)} − {study_columns.label(control)}"
            rows.append([title, *(_gain(results, run, control, of) for of in columns)])
    header = ["method − control", *study_columns.OF_GAINS]
    return f"### Gains\n\n{markdown_table(header, rows, len(header))}\n" if rows else ""


def _gain(results: Results, run: str, control: str, of: Column) -> str:
    has = all(results.has(each, of.benchmark, of.metric) for each in (run, control))
    return signed(results.difference(run, control, of.benchmark, of.metric)) if has else "–"


def write(out: Path, docs: Path, seeds: int, parts: str) -> Path:
    """Writes DOCS/results.md and its figures; returns its path.

    Values come from the finished runs below `out` and from the file VALUES in DOCS, which keeps the
    values of every run, so that a study can be made in pieces. Only the sections of `parts` are
    written; an existing page keeps the others. The tables of method_tables.PAGES beside the folder
    `docs` are written anew.
    """
    results = Results(out, seeds, docs / VALUES)
    folder = docs / "images"
    folder.mkdir(parents=True, exist_ok=True)
    # before the tables: the values survive if a table lacks one
    results.save(docs / VALUES)
    for part, name, paint in study_figures.FIGURES:
        if part not in parts:
            continue
        results.prefer = study_plan.preferred(part, results)
        with matplotlib.rc_context({"axes.spines.right": False, "axes.spines.top": False}):
            figure = paint(results)
            if figure is not None:
                figure.savefig(folder / f"study_{name}.png", dpi=130)
    path = docs / ANSWERS
    path.write_text(answers(results, parts, path.read_text() if path.exists() else ""))
    for page in (docs.parent / name for name in method_tables.PAGES):
        if docs.name == "docs" and page.exists():
            page.write_text(method_tables.rewritten(page.read_text(), study_prose.Prose(results)))
    return path


def answers(results: Results, parts: Iterable[str], page: str = "") -> str:
    """The page of answers with its first text and its sections of `parts`; the others are of
    `page`.

    Claims in these sections that the values do not support are printed to stderr."""
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, autoescape=False, undefined=jinja2.StrictUndefined
    )
    prose = study_prose.Prose(results)
    names = prose.functions() | _template_names(results)
    sections = _sections(page)
    templates = _sections(Path(__file__).with_name(f"{ANSWERS}.jinja").read_text())
    for part in ("", *sorted({*parts} & {*templates})):
        results.prefer = study_plan.preferred(part, results)
        text = environment.from_string(templates[part]).render(names)
        sections[part] = study_prose.without_marks(text)
    results.prefer = ""
    for sentence in prose.broken:
        print(f"the values do not support: {sentence}", file=sys.stderr)
    # a section of an extra that has not been run is a comment alone, and left out
    texts = [sections[part].rstrip() for part in sorted(sections)]
    return "\n\n".join(text for text in texts if "\n" in text) + "\n"


def _template_names(results: Results) -> dict[str, object]:
    """Functions that write tables, and rows that the templates use."""
    return {
        "table": lambda runs, *titles: table(results, runs, *titles),
        "protocols": lambda tower, run, *titles: protocols(results, tower, run, *titles),
        "methods": lambda: study_methods.table(results),
        "hard_negatives": lambda: study_binding.hard_negatives(results),
        "binding": lambda *values: study_binding.at(*values).name,
        "binding_runs": study_binding.RUNS,
        "newer": study_columns.NEWER,
        "sweep": study_columns.SWEEP,
        "paper": replace_of_paper,
        "seeds": results.seeds,
        "has": results.has,
        "with_values": lambda benchmark, *runs: [r for r in runs if results.has(r, benchmark)],
    }


def _sections(page: str) -> dict[str, str]:
    """Sections of a page by part of the study; "" is the text before the first."""
    first, *others = re.split(r"^(?=<!-- part \w -->$)", page, flags=re.MULTILINE)
    return {"": first, **{section[len("<!-- part ")]: section for section in others}}
