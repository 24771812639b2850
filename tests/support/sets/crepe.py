"""CREPE's files."""

from pathlib import Path

from tests.support.sets.files import picture, write_table
from vlc_jax.input_pipeline.benchmarks.crepe import (
    COMPLEXITIES,
    PRODUCTIVITY_NEGATIVES,
    SPLITS,
    SYSTEMATICITY_NEGATIVES,
    TRAINING,
)

IMAGES = {"7": "VG_100K", "8": "VG_100K_2"}
_BOX = {"x": 4, "y": 6, "width": 20, "height": 16}


def write(root: Path) -> None:
    for image, folder in IMAGES.items():
        picture(root / "vg" / folder / f"{image}.jpg")
    for split in SPLITS:
        for training in TRAINING:
            # As many as were found valid: their number differs.
            negatives = {
                f"valid_hard_negs_{kind}": [f"a {kind} pan {j}" for j in range(2 + k)]
                for k, kind in enumerate(SYSTEMATICITY_NEGATIVES)
            }
            name = f"syst_hard_negatives/syst_vg_hard_negs_{split}_in_{training}.csv"
            _table(root / "crepe" / name, 'a "big" cup, on a table', negatives)
    for kind in PRODUCTIVITY_NEGATIVES:
        for number in COMPLEXITIES:
            negatives = {"hard_negs": [f"a {kind} pan of {number} parts {j}" for j in range(5)]}
            name = f"{kind}/prod_vg_hard_negs_{kind}_complexity_{number}.csv"
            path = root / "crepe" / "prod_hard_negatives" / name
            _table(path, f"a cup of {number} parts", negatives)


def _table(path: Path, caption: str, negatives: dict[str, list[str]]) -> None:
    rows = [
        # an index without a name, as pandas writes it
        {"": n, "image_id": image, "caption": f"{caption} {image}", **_BOX, **negatives}
        for n, image in enumerate(IMAGES)
    ]
    write_table(path, rows)
