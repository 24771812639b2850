"""The numbers in the tables of methods (README.md, docs/methods.md), from the values of a study."""

import re

from studies.study_prose import MISSING, Prose, unnested
from vlc_jax.configs.common.methods import METHODS

COLUMNS = ("attribute swap", "relation swap", "Aug A")  # the last cells of a row
# first cell of a line, or the text of its link -> run, control
ROWS = {
    method.title: (next(iter(method.scenes)), method.control)
    for method in METHODS.values()
    if method.scenes
}


def rewritten(page: str, prose: Prose) -> str:
    """The page with the last cells of its rows taken from the values; a cell without values is
    empty."""
    return "\n".join(_line(line, prose) for line in page.split("\n"))


def _line(line: str, prose: Prose) -> str:
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    run, control = ROWS.get(re.sub(r"\[(.*)\]\(.*\)", r"\1", cells[0]), ("", ""))
    # other tables have fewer columns, and some rows a link in place of numbers
    if not run or len(cells) <= 2 * len(COLUMNS) or cells[-3][:1] in ("[", "i"):
        return line
    for n, column in enumerate(COLUMNS, start=len(cells) - len(COLUMNS)):
        value = prose.n(run, column)
        other = prose.n(control, column) if control else ""
        cells[n] = unnested(f"{value} ({other})") if other else value
        if MISSING in cells[n]:
            cells[n] = ""
    return f"| {' | '.join(cells)} |".replace("  ", " ")
