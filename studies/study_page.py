"""Pages of a study: tables and figures of means over seeds with 95 % intervals.

results.md answers questions with a few columns each; lab_notes.md has every table and finding.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import jinja2
import matplotlib
import numpy as np

from studies import study_columns, study_figures
from studies.study_results import VALUES, Results
from vlc_jax.report import published
from vlc_jax.report.table import markdown_table

PAGES = ("results.md", "lab_notes.md")  # each from the template NAME.jinja beside this file
ORIGINAL, AUGMENTED, BRITTLENESS = study_columns.TRIPLET
REPLACE, SWAP = "scenes_replace", "scenes_swap"
# sentence, run, run it is compared with, benchmark, metric, difference in the paper (tables 1, 3)
FINDINGS = (
    ("HN against CLIP: Original of REPLACE rises", "hn", "clip", REPLACE, ORIGINAL, 12.3),
    ("HN against CLIP: Brittleness of REPLACE", "hn", "clip", REPLACE, BRITTLENESS, -2.2),
    ("HN against CLIP: Brittleness of SWAP rises", "hn", "clip", SWAP, BRITTLENESS, 3.4),
    ("HP+HN against HN: Brittleness of REPLACE falls", "hp_hn", "hn", REPLACE, BRITTLENESS, -4.1),
    ("HP+HN against HN: Brittleness of SWAP falls", "hp_hn", "hn", SWAP, BRITTLENESS, -2.2),
    ("HP+HN against HN: Augmented of REPLACE rises", "hp_hn", "hn", REPLACE, AUGMENTED, 2.3),
    (
        "swap only against HP+HN: Augmented of REPLACE falls",
        "hp_hn_swap_only",
        "hp_hn",
        REPLACE,
        AUGMENTED,
        -6.4,
    ),
    (
        "replace only against HP+HN: Augmented of SWAP falls",
        "hp_hn_replace_only",
        "hp_hn",
        SWAP,
        AUGMENTED,
        -5.5,
    ),
    ("weight 1 against 0: Original of REPLACE rises", "hp_hn", "hp_hn_w0", REPLACE, ORIGINAL, 10.5),
    (
        "weight 1 against 0: Augmented of REPLACE rises",
        "hp_hn",
        "hp_hn_w0",
        REPLACE,
        AUGMENTED,
        8.2,
    ),
)


def table(results: Results, runs: Sequence[str], columns: Sequence[study_columns.Column]) -> str:
    """Markdown table in percent, mean ± half interval; runs that are not done have no row."""
    rows = [
        _row(results, study_columns.label(run), run, columns) for run in runs if results.has(run)
    ]
    return _table("model", columns, rows)


def protocols(
    results: Results,
    tower: str,
    run: str,
    columns: Sequence[study_columns.Column],
    names: Sequence[str] = tuple(study_columns.PROTOCOLS),
) -> str:
    """Markdown table of a model that answers: the cosine of the run `tower`, then a row for each
    protocol of `names`. Sets without a result of the protocol are blank."""
    rows = []
    if results.has(tower):
        rows.append(_row(results, study_columns.label(tower), tower, columns, is_partial=True))
    for name in names if results.has(run) else ():
        of_protocol = [
            column._replace(benchmark=f"{column.benchmark}_{name}") for column in columns
        ]
        title = study_columns.PROTOCOLS[name]
        rows.append(_row(results, title, run, of_protocol, is_partial=True))
    return _table("protocol", columns, rows)


def _table(
    title: str, columns: Sequence[study_columns.Column], rows: Sequence[Sequence[str]]
) -> str:
    """Table in Markdown with a first row of chance levels."""
    header = [title, *[column.title for column in columns]]
    chance = ["chance", *[_percent(column.chance) for column in columns]]
    return markdown_table(header, [chance, *rows], len(header))


def _row(
    results: Results,
    title: str,
    run: str,
    columns: Sequence[study_columns.Column],
    is_partial: bool = False,
) -> list[str]:
    """Cells of a row; is_partial: a benchmark without results is blank instead of an error."""
    cells = [title]
    for column in columns:
        cell = "–"
        if not is_partial or results.has(run, column.benchmark):
            value = results.value(run, column.benchmark, column.metric)
            cell = f"{_percent(value.mean)} ±{_percent(value.half)}"
        cells.append(cell)
    return cells


def scores(results: Results, runs: Sequence[str], benchmark: str) -> str:
    """Markdown table of the mean cosine similarity of caption, negative and positive."""
    metrics = ("mean_score_correct", "mean_score_negative", "mean_score_positive")
    rows = []
    for run in filter(results.has, runs):
        values = [results.value(run, benchmark, metric) for metric in metrics]
        cells = [f"{value.mean:.3f} ±{value.half:.3f}" for value in values]
        rows.append([study_columns.label(run), *cells])
    return markdown_table(["model", "caption", "negative", "positive"], rows, 4)


def findings(results: Results) -> str:
    """Markdown table of the paper's differences between runs and of ours in both worlds."""
    header = [
        "of Kamath et al. 2024, section 5",
        "paper",
        "captions hardly ever say synonyms",
        "often",
    ]
    rows = []
    for sentence, run, other, benchmark, metric, paper in FINDINGS:
        cells = [sentence, f"{paper:+.1f}"]
        for world in ("", "_synonyms"):
            names = run + world, other + world
            if all(map(results.has, names)):
                value = results.difference(*names, benchmark, metric)
                cells.append(f"{100 * value.mean:+.1f} ±{_percent(value.half)}")
            else:
                cells.append("not run")
        rows.append(cells)
    return markdown_table(header, rows, 4)


def replace_of_paper(model: str, accuracy: str) -> str:
    """Original or augmented accuracy on REPLACE of a model of Kamath et al. 2024, in percent."""
    (value,) = {
        value.value
        for value in published.of_model(model)
        if (value.source, value.full_metric) == ("hard_positives", f"{accuracy}_accuracy_macro")
    }
    return f"{value:.1f}"


def _percent(fraction: float) -> str:
    return "–" if np.isnan(fraction) else f"{100 * fraction:.1f}"


def pick(columns: Sequence[study_columns.Column], *titles: str) -> tuple[study_columns.Column, ...]:
    """Columns of these titles, in this order."""
    by_title = {column.title: column for column in columns}
    return tuple(by_title[title] for title in titles)


def write(out: Path, docs: Path, seeds: int, parts: str) -> Path:
    """Writes DOCS/results.md, DOCS/lab_notes.md and their figures; returns the path of the first.

    Values come from the finished runs below `out` and from DOCS/results.json, which keeps the
    values of every run, so that a study can be made in pieces. Only the sections of `parts` are
    written; existing pages keep the others.
    """
    results = Results(out, seeds, docs / VALUES)
    folder = docs / "images"
    folder.mkdir(parents=True, exist_ok=True)
    # before the tables: the values survive if a table lacks one
    results.save(docs / VALUES)
    for part, name, paint in study_figures.FIGURES:
        if part not in parts:
            continue
        with matplotlib.rc_context({"axes.spines.right": False, "axes.spines.top": False}):
            figure = paint(results)
            if figure is not None:
                figure.savefig(folder / f"study_{name}.png", dpi=130)
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, autoescape=False)
    names = _template_names(results)
    for name in PAGES:
        template = environment.from_string(Path(__file__).with_name(f"{name}.jinja").read_text())
        _replace_sections(docs / name, template.render(names), parts)
    return docs / PAGES[0]


def _template_names(results: Results) -> dict[str, object]:
    """Functions, columns and rows that the templates use."""

    def answers(tower: str, run: str, titles: Sequence[str] = (), *protocol_names: str) -> str:
        columns = pick(study_columns.ANSWERS, *titles) if titles else study_columns.ANSWERS
        return protocols(
            results, tower, run, columns, protocol_names or (*study_columns.PROTOCOLS,)
        )

    return {
        "table": lambda runs, columns: table(results, runs, columns),
        "pick": pick,
        "scores": lambda runs, benchmark: scores(results, runs, benchmark),
        "bag_of_words": study_columns.BAG_OF_WORDS,
        "heads": study_columns.HEADS,
        "heads_of": lambda suffix: [f"{name}{suffix}" for name in study_columns.HEAD_RUNS],
        "captions_of": lambda suffix: [f"{name}{suffix}" for name in study_columns.CAPTION_RUNS],
        "triplet": study_columns.triplet_columns,
        "findings": lambda: findings(results),
        "paper": replace_of_paper,
        "others": study_columns.OTHERS,
        "other_columns": study_columns.OTHER_COLUMNS,
        "probes": study_columns.PROBES,
        "decoders": study_columns.DECODER_RUNS,
        "decoder_columns": study_columns.DECODERS,
        "protocols": answers,
        "superposition": study_columns.SUPERPOSITION,
        "shuffled": study_columns.SHUFFLED,
        "sweep": study_columns.SWEEP,
        "seeds": results.seeds,
        "has": results.has,
    }


def _replace_sections(page: Path, text: str, parts: str) -> None:
    """Writes the sections of `parts`, and the text before the first, of a rendered page."""
    sections = _sections(page.read_text()) if page.exists() else {}
    for part, section in _sections(text).items():
        if part in parts or not part:
            sections[part] = section
    page.write_text(
        "".join(sections[part].rstrip() + "\n\n" for part in sorted(sections)).rstrip() + "\n"
    )


def _sections(page: str) -> dict[str, str]:
    """Sections of a page by part of the study; "" is the text before the first."""
    first, *others = re.split(r"^(?=<!-- part \w -->$)", page, flags=re.MULTILINE)
    return {"": first, **{section[len("<!-- part ")]: section for section in others}}
