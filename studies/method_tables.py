"""Tables of methods in README.md and docs, from configs/common/methods, published and our values.

  python -m studies.method_tables

A table stands between `<!-- table: NAME -->` and `<!-- end -->`, and a test compares the pages with
what this writes.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path

from studies import study_columns, study_results
from studies.study_results import MissingValueError, Results, unnested
from vlc_jax.configs.common.methods import METHODS, ROWS, Method
from vlc_jax.report import published
from vlc_jax.report.to_markdown import markdown_table

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/methods.md", "docs/experiments.md")
BLOCK = re.compile(r"<!-- table: (\w+) -->.*?<!-- end -->", re.DOTALL)
COLUMNS = {"attributes": "attribute swap", "relations": "relation swap", "Aug": "Aug A"}
NOT_OF_METHODS = ("vl_compo", "clip_benchmark")  # sources of all sets of many checkpoints
HEADLINES = {  # benchmark and metric -> name; the first ones that a model has stand in the table
    ("replace", "original_accuracy_macro"): "REPLACE",
    ("swap", "original_accuracy"): "SWAP",
    ("half_truths", "original_accuracy/coco"): "half-truths",
    ("vg_relation", "accuracy_macro"): "VG-Relation",
    ("vg_attribution", "accuracy_macro"): "VG-Attribution",
    ("vg_attribution", "accuracy"): "VG-Attribution",
    ("sugarcrepe", "mean_accuracy"): "SugarCrepe",
    ("aro", "mean_accuracy"): "ARO",
    ("sugarcrepe", "accuracy/replace_att"): "SugarCrepe replace-att",
    ("sugarcrepe", "accuracy/swap_att"): "SugarCrepe swap-att",
    ("whatsup_a_two_way", "accuracy/left_right"): "What'sUp A left / right",
    ("whatsup_a_two_way", "pair_accuracy/left_right"): "pairs",
    ("whatsup_a", "accuracy"): "What'sUp A",
    ("whatsup_b", "accuracy"): "What'sUp B",
    ("imagenet1k", "accuracy"): "ImageNet",
    ("negbench", "accuracy/coco"): "NegBench COCO",
    ("coco_retrieval", "image_to_text_r1"): "COCO R@1 of texts",
    ("coco_retrieval", "text_to_image_r1"): "of images",
    ("mmvp", "image_score"): "MMVP",
}
MOST = 2  # numbers of a cell


def readme(results: Results) -> str:
    header = ["method", "loss or head", "config", *COLUMNS]
    rows = [
        [f"{method.title} ({method.paper})", method.short, f"`{config}`", *numbers]
        for method in METHODS.values()
        if method.short
        for numbers in [_numbers(method, results)]
        for config in [next(iter(method.scenes.values())).partition(":")[0]]
    ]
    return markdown_table(header, rows, len(header))


def photographs(results: Results) -> str:
    titles = ("Orig", "Aug", "R@5 of photographs")
    rows = [
        [study_columns.label(run), *(results.percent(run, title) for title in titles)]
        for run in ("photo_clip_ft", "photo_hn", "photo_hp_hn")
    ]
    return markdown_table(["photographs", "Orig", "Aug", "R@5"], rows, 4)


def methods(results: Results) -> str:
    header = ["method", "config", "loss", "published", "differs here"]
    rows = [
        [_link(m), f"`{m.config}`", m.loss, _published(m), m.differs]
        for m in METHODS.values()
        if m.differs
    ]
    return markdown_table(header, rows, len(header))


def systems(results: Results) -> str:
    """Every system: its rows of the papers' tables, the test of its numbers, and its run."""
    header = ["system", "rows", "compared with", *COLUMNS]
    rows = []
    for method in METHODS.values():
        oracle, _, test = method.compared.partition(": ")
        names = ", ".join(f"`{row.run}`" for row in method.rows if row.given)
        cells = [_link(method, "methods.md"), names, f"{oracle}, `{test}`"]
        rows.append([*cells, *_numbers(method, results)])
    return markdown_table(header, rows, len(header))


def papers(results: Results) -> str:
    """The tables of the papers by their sets, and the runs that make their rows."""
    runs = {row.model: row.run for row in reversed(ROWS) if row.model}
    values: dict[tuple[str, str], list[published.Value]] = {}
    for value in (*published.values(), *published.unknown()):
        if value.model in runs and value.source not in NOT_OF_METHODS:
            values.setdefault((value.source, value.table), []).append(value)
    merged: dict[tuple[str, str], list[dict[str, None]]] = {}  # tables and rows of the same sets
    for (source, table), table_values in values.items():
        sets = ", ".join(dict.fromkeys(value.benchmark for value in table_values))
        tables, rows = merged.setdefault((source, sets), [{}, {}])
        tables[table] = None
        rows |= dict.fromkeys(runs[value.model] for value in table_values)
    pretrained = {row.run for row in METHODS["clip"].rows}
    header = ["source", "tables", "sets", "rows"]
    cells = [
        [published.sources()[source]["name"], "; ".join(tables), sets, ", ".join(rows)]
        for (source, sets), (tables, rows) in merged.items()
        if not {*rows} <= pretrained  # CLIP alone
    ]
    return markdown_table(header, cells, len(header))


TABLES: dict[str, Callable[[Results], str]] = {
    table.__name__: table for table in (readme, photographs, methods, systems, papers)
}


def rewritten(page: str, results: Results) -> str:
    """The page with its tables written anew."""

    def written(block: re.Match[str]) -> str:
        table = TABLES[block[1]](results).strip()
        return f"<!-- table: {block[1]} -->\n\n{table}\n\n<!-- end -->"

    return BLOCK.sub(written, page)


def _numbers(method: Method, results: Results) -> list[str]:
    """The method's columns, in parentheses the control's; a cell without values is empty."""
    cells = []
    for column in COLUMNS.values():
        try:
            cell = results.percent(next(iter(method.scenes), ""), column)
            if method.control:
                cell = unnested(f"{cell} ({results.percent(method.control, column)})")
        except MissingValueError:
            cell = ""
        cells.append(cell)
    return cells


def _published(method: Method) -> str:
    """A few published numbers, in percent, of the first model that the config reproduces."""
    rows = [row for row in method.rows if row.model]
    rows = [row for row in rows if row.config.partition(":")[0] == method.config] or rows
    if not rows:
        return "–"
    model, numbers = rows[0].model, list[str]()
    values = published.model_values(model)
    for (benchmark, metric), name in HEADLINES.items():
        of = [v for v in values if (v.benchmark, v.full_metric) == (benchmark, metric)]
        of = [value for value in of if value.protocol not in ("linear_probe", "generation")]
        if of and len(numbers) < MOST:
            is_rerun = published.sources()[of[0].source]["kind"] == "rerun"
            numbers.append(f"{name} {100 * of[0].number:.1f}{' (rerun)' * is_rerun}")
    beginning = "" if model == method.title else f"{model}: "
    return beginning + ", ".join(numbers)


def _link(method: Method, page: str = "") -> str:
    """A link to the method's section of `page`, docs/methods.md itself by default."""
    section = method.section or method.title
    anchor = re.sub(r"[^\w -]", "", section).lower().replace(" ", "-")
    return f"[{method.title}]({section if '.md#' in section else f'{page}#{anchor}'})"


def main() -> int:
    values = study_results.read_values(ROOT / "docs" / study_results.VALUES)
    results = Results(values, 3)
    for name in PAGES:
        page = ROOT / name
        page.write_text(rewritten(page.read_text(), results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
