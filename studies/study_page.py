"""Pages of a study: tables and figures of means over seeds with 95 % intervals.

results.md answers questions with a few columns each; the laboratory notes, which are printed on
request, have every table and finding.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import jinja2
import matplotlib
import numpy as np

from studies import (
    study_binding,
    study_columns,
    study_figures,
    study_methods,
    study_plan,
    study_prose,
    study_readme,
)
from studies.study_results import VALUES, Results, cell, measure, percent, signed
from vlc_jax.report import published
from vlc_jax.report.to_markdown import markdown_table

# each from the template NAME.jinja beside this file
ANSWERS, NOTES = "results.md", "lab_notes.md"
METRICS = dict(zip(("Original", "Augmented", "Brittleness"), study_columns.TRIPLET, strict=True))
SETS = {"REPLACE": "scenes_replace", "SWAP": "scenes_swap"}
# sentence, which names metric and set; run, run it is compared with, difference in tables 1 and 3
FINDINGS = (
    ("HN against CLIP: Original of REPLACE rises", "hn", "clip", 12.3),
    ("HN against CLIP: Brittleness of REPLACE", "hn", "clip", -2.2),
    ("HN against CLIP: Brittleness of SWAP rises", "hn", "clip", 3.4),
    ("HP+HN against HN: Brittleness of REPLACE falls", "hp_hn", "hn", -4.1),
    ("HP+HN against HN: Brittleness of SWAP falls", "hp_hn", "hn", -2.2),
    ("HP+HN against HN: Augmented of REPLACE rises", "hp_hn", "hn", 2.3),
    ("swap only against HP+HN: Augmented of REPLACE falls", "hp_hn_swap_only", "hp_hn", -6.4),
    ("replace only against HP+HN: Augmented of SWAP falls", "hp_hn_replace_only", "hp_hn", -5.5),
    ("weight 1 against 0: Original of REPLACE rises", "hp_hn", "hp_hn_w0", 10.5),
    ("weight 1 against 0: Augmented of REPLACE rises", "hp_hn", "hp_hn_w0", 8.2),
)


def table(results: Results, runs: Sequence[str], columns: Sequence[study_columns.Column]) -> str:
    """Markdown table in percent, mean ± half interval; runs that are not done have no row."""
    done = [run for run in runs if results.has(run)]
    if not done:
        return study_prose.NOT_RUN
    titles = zip(results.titles(done), done, strict=True)
    return _table("model", columns, [_row(results, title, run, columns) for title, run in titles])


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
        rows.append(_row(results, results.title(tower), tower, columns, is_partial=True))
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
    chance = ["chance", *[percent(column.chance) for column in columns]]
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
        has = not is_partial or results.has(run, column.benchmark)
        cells.append(cell(results.value(run, column.benchmark, column.metric)) if has else "–")
    return cells


def conditions(results: Results, runs: Sequence[str]) -> str:
    """Markdown table of the conditions of an ideal CLIP by model: share of cases that meet one,
    and for a difference its mean and the noise floor."""
    benchmark = "scenes_conditions"
    done = [run for run in runs if results.has(run, benchmark, "satisfied/1.1a")]
    rows = list[list[str]]()
    if not done:
        return study_prose.NOT_RUN
    for name, sentence in study_columns.CONDITIONS.items():
        cells = [f"{name.replace('_all', ' all')}: {sentence}"]
        for run in done:
            value = results.value(run, benchmark, f"satisfied/{name}")
            cells.append(cell(value) + _floor(results, run, name))
        chance = percent(results.chance(done[0], benchmark, f"satisfied/{name}"))
        rows.append([*cells[:1], chance, *cells[1:]])
    header = ["condition", "chance", *[results.title(run) for run in done]]
    return markdown_table(header, rows, len(header))


def _floor(results: Results, run: str, condition: str) -> str:
    """Mean difference of two images that must differ, and the noise floor."""
    metrics = f"difference/{condition}", f"noise_ratio/{condition}"
    if not all(results.has(run, "scenes_conditions", metric) for metric in metrics):
        return ""
    differences, ratios = (results.by_seed(run, "scenes_conditions", each) for each in metrics)
    floor = np.mean(np.divide(differences, ratios))
    return f" ({np.mean(differences):.3f}; floor {floor:.3f})"


def measures(
    results: Results, runs: Sequence[str], rows: Sequence[tuple[str, str, str]], digits: int = 3
) -> str:
    """Markdown table of measures that are no shares, by model, with measured chance behind it."""
    done = [run for run in runs if all(results.has(run, *of) for _, *of in rows)]
    table = list[list[str]]()
    if not done:
        return study_prose.NOT_RUN
    for title, *of in rows:
        cells = [title]
        for run in done:
            value, chance = results.value(run, *of), results.chance(run, *of)
            beside = "" if np.isnan(chance) else f"; {chance:.{digits}f}"
            cells.append(measure(value, digits) + beside)
        table.append(cells)
    header = ["", *[results.title(run) for run in done]]
    return markdown_table(header, table, len(header))


def tokens(results: Results, runs: Sequence[str]) -> str:
    """Markdown table of a choice between captions by unpooled tokens."""
    sets = {"objects": "scenes_objects_tokens", "attribute swap": "scenes_attribute_swap_tokens"}
    done = [run for run in runs if all(results.has(run, each) for each in sets.values())]
    if not done:
        return study_prose.NOT_RUN
    columns = [(run, each) for each in sets.values() for run in done]
    names = [f"{each}: {results.title(run)}" for each in sets for run in done]
    rows = [["chance", *["50.0"] * len(columns)]]
    for title, metric in study_columns.TOKENS:
        rows.append([title, *[cell(results.value(run, each, metric)) for run, each in columns]])
    return markdown_table(["read by", *names], rows, 1 + len(columns))


def costs(results: Results) -> str:
    """Markdown table of the hours that the runs of each part took, by device."""
    rows = []
    for part, title in study_plan.PARTS.items():
        planned = study_plan.plan(part, results.seeds)
        runs = [run for run in planned if run.tool in study_plan.WITH_VALUES]
        records = [results.by_device(run.name) for run in runs]
        for device in sorted({each for record in records for each in record if each}):
            of_device = [record[device] for record in records if device in record]
            timed = [record["seconds"] for record in of_device if "seconds" in record]
            hours = f"{sum(timed) / 3600:.1f} ({len(timed)})" if timed else "–"
            rows.append([f"{part}: {title}", f"{len(of_device)} of {len(runs)}", device, hours])
    return markdown_table(
        ["part", "runs with values", "device", "hours, summed over runs (runs)"], rows, 4
    )


def scores(results: Results, runs: Sequence[str], benchmark: str) -> str:
    """Markdown table of the mean cosine similarity of caption, negative and positive."""
    metrics = ("mean_score_correct", "mean_score_negative", "mean_score_positive")
    rows = []
    done = [run for run in runs if results.has(run)]
    for title, run in zip(results.titles(done), done, strict=True):
        rows.append([title, *(measure(results.value(run, benchmark, each)) for each in metrics)])
    return markdown_table(["model", "caption", "negative", "positive"], rows, 4)


def findings(results: Results) -> str:
    """Markdown table of the paper's differences between runs and of ours in both worlds."""
    worlds = ("captions hardly ever say synonyms", "often")
    header = ["of Kamath et al. 2024, section 5", "paper", *worlds]
    rows = []
    for sentence, run, other, paper in FINDINGS:
        metric, _, benchmark = sentence.partition(": ")[2].split()[:3]
        cells = [sentence, f"{paper:+.1f}"]
        for world in ("", "_synonyms"):
            names = run + world, other + world
            if all(map(results.has, names)):
                value = results.difference(*names, SETS[benchmark], METRICS[metric])
                cells.append(signed(value))
            else:
                cells.append("not run")
        rows.append(cells)
    return markdown_table(header, rows, 4)


def gains(
    results: Results, pairs: Sequence[tuple[str, str]], columns: Sequence[study_columns.Column]
) -> str:
    """Markdown table of the difference of each pair of runs (run, control), paired by seed."""
    header = ["model against its control", *[column.title for column in columns]]
    rows = []
    for run, control in pairs:
        if results.has(run) and results.has(control):
            cells = [f"{study_columns.label(run)} − {study_columns.label(control)}"]
            for column in columns:
                value = results.difference(run, control, column.benchmark, column.metric)
                cells.append(signed(value))
            rows.append(cells)
    return markdown_table(header, rows, len(header))


def replace_of_paper(model: str, accuracy: str) -> str:
    """Original or augmented accuracy on REPLACE of a model of Kamath et al. 2024, in percent."""
    (value,) = {
        value.value
        for value in published.of_model(model)
        if (value.source, value.full_metric) == ("hard_positives", f"{accuracy}_accuracy_macro")
    }
    return f"{value:.1f}"


def pick(columns: Sequence[study_columns.Column], *titles: str) -> tuple[study_columns.Column, ...]:
    """Columns of these titles, in this order."""
    by_title = {column.title: column for column in columns}
    return tuple(by_title[title] for title in titles)


def write(out: Path, docs: Path, seeds: int, parts: str) -> Path:
    """Writes DOCS/results.md and its figures; returns its path.

    Values come from the finished runs below `out` and from DOCS/results.json, which keeps the
    values of every run, so that a study can be made in pieces. Only the sections of `parts` are
    written; an existing page keeps the others. The tables of a README beside the folder `docs` and
    of DOCS/methods.md get their numbers.
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
    path.write_text(render(results, ANSWERS, parts, path.read_text() if path.exists() else ""))
    for page in (docs.parent / "README.md", docs / "methods.md"):
        if docs.name == "docs" and page.exists():
            page.write_text(study_readme.rewritten(page.read_text(), study_prose.Prose(results)))
    return path


def render(results: Results, name: str, parts: Iterable[str], page: str = "") -> str:
    """The page `name` with its first text and its sections of `parts`; the others are of `page`.

    Claims in these sections that the values do not support are printed to stderr."""
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, autoescape=False, undefined=jinja2.StrictUndefined
    )
    prose = study_prose.Prose(results)
    names = prose.functions() | _template_names(results)
    sections = _sections(page)
    templates = _sections(Path(__file__).with_name(f"{name}.jinja").read_text())
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
    """Functions that write tables, columns and rows that the templates use."""

    def answers(tower: str, run: str, titles: Sequence[str] = (), *protocol_names: str) -> str:
        columns = pick(study_columns.ANSWERS, *titles) if titles else study_columns.ANSWERS
        return protocols(
            results, tower, run, columns, protocol_names or (*study_columns.PROTOCOLS,)
        )

    def of_device(
        runs: Sequence[str], columns: Sequence[study_columns.Column], beside: str = ""
    ) -> str:
        """`table`, of the device that trained `beside` where there are several."""
        with results.beside(beside):
            return table(results, runs, columns)

    return {
        "table": of_device,
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
        "geometry_runs": study_columns.GEOMETRY_RUNS,
        "conditions": lambda runs: conditions(results, runs),
        "measures": lambda runs, rows: measures(results, runs, rows),
        "cone": study_columns.CONE,
        "coefficients": study_columns.COEFFICIENTS,
        "pair_geometry": study_columns.PAIR_GEOMETRY,
        "tokens": lambda runs: tokens(results, runs),
        "order": [study_columns.ORDER],
        "costs": lambda: costs(results),
        "shuffled": study_columns.SHUFFLED,
        "sweep": study_columns.SWEEP,
        "blind": study_columns.BLIND,
        "blind_gains": study_columns.BLIND_GAINS,
        "blind_columns": study_columns.BLIND_COLUMNS,
        "texts_columns": study_columns.TEXTS,
        "gains": lambda pairs, columns: gains(results, pairs, columns),
        "methods": lambda: study_methods.table(results),
        "new_methods": study_columns.NEW_METHODS,
        "negations": [*study_columns.NEGATIONS],
        "negation_columns": study_columns.NEGATION_COLUMNS,
        "drawn": [f"texts_{name}" for name in study_columns.DRAWN],
        "details": [*study_columns.DETAILS],
        "detail_columns": study_columns.DETAIL_COLUMNS,
        "surface": lambda: study_binding.surface(results),
        "hard_negatives": lambda: study_binding.hard_negatives(results),
        "binding": lambda *values: study_binding.at(*values).name,
        "binding_runs": study_binding.RUNS,
        "seeds": results.seeds,
        "has": results.has,
        "with_values": lambda benchmark, *runs: [r for r in runs if results.has(r, benchmark)],
    }


def _sections(page: str) -> dict[str, str]:
    """Sections of a page by part of the study; "" is the text before the first."""
    first, *others = re.split(r"^(?=<!-- part \w -->$)", page, flags=re.MULTILINE)
    return {"": first, **{section[len("<!-- part ")]: section for section in others}}
