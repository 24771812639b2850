"""VL-CheckList's files."""

from pathlib import Path

from tests.support.sets.files import picture, write_json
from vlc_jax.input_pipeline.benchmarks.vl_checklist import SOURCES, corpora

IMAGES = {"vg": "VG_100K/7.jpg", "hake": "hcvrd/7.jpg", "swig": "eating_7.jpg"}


def write(root: Path) -> None:
    for corpus in corpora():
        images = SOURCES[corpus.source]
        image = IMAGES[images]
        picture(root / images / image)
        rows = [
            [image, {"POS": [f"{corpus.type} cup {n}"], "NEG": [f"{corpus.type} pan {n}"]}]
            for n in range(2)
        ]
        write_json(root / "vl_checklist" / corpus.file, rows)
