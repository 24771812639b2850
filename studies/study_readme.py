"""The numbers in the tables of methods (README.md, docs/methods.md), from the values of a study."""

import re
from typing import NamedTuple

from studies.study_prose import MISSING, Prose, unnested

COLUMNS = ("attributes", "relations", "aug A")  # of study_prose.COLUMNS, the last cells of a row


class Row(NamedTuple):
    """A method's run, and the run without the method, in parentheses; "": none."""

    run: str
    other: str = ""


ROWS = {  # first cell of a line, or the text of its link
    "CLIP": Row("clip"),
    "SigLIP": Row("siglip"),
    "NegCLIP": Row("negclip", "clip_ft_400"),
    "CREPE-swap": Row("crepe_swap", "clip_ft"),
    "SVLC": Row("svlc", "clip_ft"),
    "SVLC+Pos": Row("svlc_pos", "clip_ft"),
    "DAC": Row("dac", "clip_ft"),
    "HN": Row("hn", "clip_ft"),
    "HP+HN": Row("hp_hn", "clip_ft"),
    "FSC-CLIP": Row("fsc_clip", "clip_ft"),
    "left / right": Row("leftright", "leftright_none"),
    "LABCLIP": Row("labclip", "clip_mean"),
    "PACL": Row("pacl", "clip_mean"),
    "SPARC": Row("sparc", "clip_mean"),
    "DCSM": Row("dcsm", "clip_mean"),
    "captioner": Row("captioner", "clip_frozen"),
}
NEWER = {  # the same of docs/methods.md alone
    "FSC-CLIP, both losses": Row("fsc_clip_local", "clip_ft"),
    "SigLIP-FT": Row("siglip_ft"),
    "C2LIP": Row("c2lip", "siglip_ft"),
    "SigLIP 2's dense losses": Row("siglip2_dense", "siglip_ft"),
    "TripletCLIP": Row("tripletclip", "clip_ft"),
    "CoN-CLIP": Row("conclip", "clip_ft"),
    "CE-CLIP": Row("ce_clip", "clip_ft"),
    "READ-CLIP": Row("read_clip", "clip_ft"),
    "DeGLA": Row("degla", "clip_ft"),
    "CS-CLIP": Row("csclip", "clip_ft"),
    "CLIC": Row("clic", "clip_ft"),
    "FLAIR": Row("flair", "clip_mean"),
    "MaxSim": Row("pooled", "clip_mean"),
    "TFLocal": Row("tflocal", "clip_mean"),
    "segments and crops": Row("crops", "clip"),
    "segments, crops and the whole": Row("crops_half", "clip"),
    "segments and patches": Row("patches", "clip_mean"),
    "negation": Row("negation", "clip"),
}
NONE = "not yet run"  # in the first cell of a row of NEWER without values


def rewritten(page: str, prose: Prose) -> str:
    """The page with the last cells of its rows taken from the values; a cell without values is
    empty."""
    lines = [_line(line, prose) for line in page.split("\n")]
    return "\n".join(lines)


def _line(line: str, prose: Prose) -> str:
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    row = (ROWS | NEWER).get(re.sub(r"\[(.*)\]\(.*\)", r"\1", cells[0]))
    # other tables have fewer columns
    if row is None or len(cells) <= 2 * len(COLUMNS):
        return line
    for n, column in enumerate(COLUMNS, start=len(cells) - len(COLUMNS)):
        value = prose.n(row.run, column)
        other = prose.n(row.other, column) if row.other else ""
        cells[n] = unnested(f"{value} ({other})") if other else value
        if MISSING in cells[n]:
            cells[n] = ""
    if row in NEWER.values() and not any(cells[-len(COLUMNS) :]):
        cells[-len(COLUMNS)] = NONE
    return f"| {' | '.join(cells)} |".replace("  ", " ")
