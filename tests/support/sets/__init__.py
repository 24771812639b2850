"""Published evaluation sets in miniature: their authors' files and folders, with our own contents.

`SETS` has a module for each set; its function `write` writes the files below a folder, the ROOT of
the readers.
"""

from pathlib import Path

from tests.support.sets import (
    aro,
    bivlc,
    bla,
    clevr_bind,
    coco_counterfactuals,
    cola,
    colorfoil,
    colorswap,
    crepe,
    eqben,
    half_truths,
    hard_positives,
    imagecode,
    mmvp,
    naturalbench,
    ncd_squares,
    negbench,
    spatial,
    spec,
    sugarcrepe,
    sugarcrepe_pp,
    svo_probes,
    valse,
    vismin,
    vl_checklist,
    whatsup,
    winoground,
)

SETS = (
    aro,
    bivlc,
    bla,
    clevr_bind,
    coco_counterfactuals,
    cola,
    colorfoil,
    colorswap,
    crepe,
    eqben,
    half_truths,
    hard_positives,
    imagecode,
    mmvp,
    naturalbench,
    ncd_squares,
    negbench,
    spatial,
    spec,
    sugarcrepe,
    sugarcrepe_pp,
    svo_probes,
    valse,
    vismin,
    vl_checklist,
    whatsup,
    winoground,
)


def options(name: str, root: Path) -> dict[str, object]:
    """What a reader needs beside its root to read the set in miniature."""
    if name.endswith("_order"):
        return {"root": root, "tagger": f"precomputed:{root / 'tags.jsonl'}"}
    return {"root": root}


def write_all(root: Path) -> Path:
    """Writes every set; returns the folder."""
    for each in SETS:
        each.write(root)
    return root
