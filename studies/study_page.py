"""Pages of a study: tables and figures of means over seeds with 95 % intervals.

results.md answers questions with a few columns each; results.parquet beside it has every value.
"""

import re
import sys
from collections.abc import Sequence
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
    study_results,
)
from studies.study_columns import PROTOCOLS, column
from studies.study_results import VALUES, MissingValueError, Results, Value
from vlc_jax.report import published
from vlc_jax.report.to_markdown import markdown_table

ANSWERS = "results.md"  # from the template results.md.jinja beside this file
QUESTION = re.compile(r"(?=^<!-- part \w -->$)|(?<!-->\n)(?=^## )", re.MULTILINE)


class Prose:
    """Numbers in the text of a page, and claims that the values must support.

    Templates name a run and a column: `n("hn", "Aug size A")` is 0 if HN's mean is .4 percent. A
    claim is a condition beside its sentence: `holds(x("hn", "Aug size A").mean < 5, "HN loses
    synonyms")` writes nothing, and `broken` lists the claims that the values no longer support.
    A column may name a protocol: "attribute swap/vqascore". A run or benchmark without values
    raises MissingValueError."""

    NAMES = ("d", "x", "each", "gain", "every", "score", "holds")

    def __init__(self, results: Results) -> None:
        self.results, self.broken = results, list[str]()

    def x(self, run: str, name: str) -> Value:
        """Mean and half interval of a run, in percent."""
        return _in_percent(self.results.value(run, *column(name)[1:3]))

    def gain(self, run: str, other: str, name: str) -> Value:
        """Difference of two runs, seed by seed, in points."""
        return _in_percent(self.results.difference(run, other, *column(name)[1:3]))

    def d(self, run: str, other: str, name: str) -> str:
        """The difference with its interval: "+1.3 ±.7"."""
        return study_results.signed(self.results.difference(run, other, *column(name)[1:3]))

    def every(self, run: str, name: str) -> Sequence[float]:
        """The value of each seed, in percent."""
        return [100 * value for value in self.results.by_seed(run, *column(name)[1:3])]

    def each(self, run: str, name: str, beside: str = "") -> str:
        """The value of each seed: "95, 99 and 73".

        beside: a run that started from this one; its device's values are taken."""
        with self.results.beside(beside):
            *most, last = [f"{value:.0f}" for value in self.every(run, name)]
        return f"{', '.join(most)} and {last}" if most else last

    def score(self, run: str, benchmark: str, metric: str) -> str:
        """The mean of a metric that is no share."""
        value = self.results.value(run, benchmark, metric)
        return study_results.shown(f"{value.mean:.2f}", value.half)

    def holds(self, condition: object, sentence: str) -> None:
        """Notes the sentence as broken if the condition is false."""
        if not condition:
            self.broken.append(sentence)


def _in_percent(value: Value) -> Value:
    return Value(100 * float(value.mean), 100 * float(value.half))


def table(
    results: Results, rows: Sequence[tuple[str, str, str]], titles: Sequence[str], name: str
) -> str:
    """Markdown table in percent, mean ± half interval, below the chance levels.

    rows: title, run and protocol, "" without one. name: of the first column.
    """
    chances = [study_results.percent(column(title).chance) for title in titles]
    cells = [["chance", *chances]]
    for title, run, protocol in rows:
        columns = [column(f"{each}{protocol and f'/{protocol}'}") for each in titles]
        values = [results.value(run, of.benchmark, of.metric) for of in columns]
        cells.append([title, *map(study_results.cell, values)])
    return markdown_table([name, *titles], cells, 1 + len(titles))


def of_runs(results: Results, runs: Sequence[str], *titles: str) -> str:
    """Table of runs."""
    rows = [(title, run, "") for title, run in zip(results.titles(runs), runs, strict=True)]
    return table(results, rows, titles, "model")


def of_protocols(results: Results, tower: str, run: str, *titles: str) -> str:
    """Table of a model that answers: the cosine of the run `tower`, a row for each protocol."""
    rows = [(title, run, protocol) for protocol, title in PROTOCOLS.items()]
    return table(results, [(*results.titles([tower]), tower, ""), *rows], titles, "protocol")


def replace_of_paper(model: str, accuracy: str) -> str:
    """Original or augmented accuracy on REPLACE of a model of Kamath et al. 2024, in percent."""
    wanted = ("hard_positives", f"{accuracy}_accuracy_macro")
    values = published.model_values(model)
    (value,) = {each.value for each in values if (each.source, each.full_metric) == wanted}
    return f"{value:.1f}"


def write(out: Path, docs: Path, seeds: int) -> Path:
    """Writes DOCS/results.md and its figures; returns its path.

    Values come from the finished runs below `out` and from the file VALUES in DOCS, which keeps the
    values of every run, so that a study can be made in pieces. The tables of method_tables.PAGES
    beside the folder `docs` are written anew.
    """
    values = study_results.read_values(docs / VALUES)
    study_results.add(values, *study_results.finished(out))
    results, folder = Results(values, seeds), docs / "images"
    folder.mkdir(parents=True, exist_ok=True)
    # before the tables: the values survive if a table lacks one
    study_results.write_values(docs / VALUES, values)
    for part, name, paint in study_figures.FIGURES:
        results.prefer = study_plan.preferred(part, results)
        with matplotlib.rc_context({"axes.spines.right": False, "axes.spines.top": False}):
            try:
                paint(results).savefig(folder / f"study_{name}.png", dpi=130)
            except MissingValueError as error:
                print(f"no figure {name}: {error}", file=sys.stderr)
    path = docs / ANSWERS
    path.write_text(answers(results))
    for page in (docs.parent / name for name in method_tables.PAGES):
        if docs.name == "docs" and page.exists():
            page.write_text(method_tables.rewritten(page.read_text(), results))
    return path


def answers(results: Results) -> str:
    """The page of answers, without the questions that lack a value.

    These, and claims that the values do not support, are printed to stderr."""
    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined,
        extensions=["jinja2.ext.do"],
    )  # fmt: skip
    prose, texts = Prose(results), list[str]()
    names = {name: getattr(prose, name) for name in Prose.NAMES} | _template_names(results)
    template = Path(__file__).with_name(f"{ANSWERS}.jinja").read_text()
    for question in QUESTION.split(template):
        if part := re.match(r"<!-- part (\w)", question):
            results.prefer = study_plan.preferred(part[1], results)
        try:
            texts.append(environment.from_string(question).render(names).strip())
        except MissingValueError as error:
            title = question.partition("## ")[2].partition("\n")[0]
            print(f"left out: {title} {error}", file=sys.stderr)
    results.prefer = ""
    for sentence in prose.broken:
        print(f"the values do not support: {sentence}", file=sys.stderr)
    return study_results.unnested("\n\n".join(texts)) + "\n"


def _template_names(results: Results) -> dict[str, object]:
    """Functions that write tables, and rows that the templates use."""
    return {
        "table": lambda runs, *titles: of_runs(results, runs, *titles),
        "protocols": lambda tower, run, *titles: of_protocols(results, tower, run, *titles),
        "n": results.percent,
        "methods": lambda: study_methods.table(results),
        "binding": lambda *values: study_binding.at(*values).name,
        "sweep": study_columns.SWEEP,
        "shares": study_columns.SHARES,
        "paper": replace_of_paper,
        "seeds": results.seeds,
    }
