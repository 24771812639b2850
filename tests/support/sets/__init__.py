"""Published evaluation sets in miniature: their authors' files and folders, with our own contents.

`WRITERS` has a function for each module of input_pipeline/benchmarks that reads such files; it
writes them below a folder, the ROOT of the readers.
"""

from collections.abc import Callable
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

WRITERS: dict[str, Callable[[Path], None]] = {
    "aro": aro.write,
    "bivlc": bivlc.write,
    "bla": bla.write,
    "clevr_bind": clevr_bind.write,
    "coco_counterfactuals": coco_counterfactuals.write,
    "cola": cola.write,
    "colorfoil": colorfoil.write,
    "colorswap": colorswap.write,
    "crepe": crepe.write,
    "eqben": eqben.write,
    "half_truths": half_truths.write,
    "hard_positives": hard_positives.write,
    "imagecode": imagecode.write,
    "mmvp": mmvp.write,
    "naturalbench": naturalbench.write,
    "ncd_squares": ncd_squares.write,
    "negbench": negbench.write,
    "spatial": spatial.write,
    "spec": spec.write,
    "sugarcrepe": sugarcrepe.write,
    "sugarcrepe_pp": sugarcrepe_pp.write,
    "svo_probes": svo_probes.write,
    "valse": valse.write,
    "vismin": vismin.write,
    "vl_checklist": vl_checklist.write,
    "whatsup": whatsup.write,
    "winoground": winoground.write,
}


def options(name: str, root: Path) -> dict[str, object]:
    """What a reader needs beside its root to read the set in miniature."""
    if name.endswith("_order"):
        return {"root": root, "tagger": f"precomputed:{root / 'tags.jsonl'}"}
    return {"root": root}


def write_all(root: Path) -> Path:
    """Writes every set; returns the folder."""
    for write in WRITERS.values():
        write(root)
    return root
