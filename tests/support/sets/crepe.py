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
            rows = [
                {
                    "": n,  # an index without a name, as pandas writes it
                    "image_id": image,
                    "caption": f'a "big" cup, on a table {image}',
                    **_BOX,
                    # As many as were found valid: their number differs.
                    **{
                        f"valid_hard_negs_{kind}": [f"a {kind} pan {j}" for j in range(2 + k)]
                        for k, kind in enumerate(SYSTEMATICITY_NEGATIVES)
                    },
                }
                for n, image in enumerate(IMAGES)
            ]
            name = f"syst_vg_hard_negs_{split}_in_{training}.csv"
            write_table(root / "crepe" / "syst_hard_negatives" / name, rows)
    for kind in PRODUCTIVITY_NEGATIVES:
        for number in COMPLEXITIES:
            rows = [
                {
                    "": n,  # an index without a name, as pandas writes it
                    "image_id": image,
                    "caption": f"a cup of {number} parts {image}",
                    **_BOX,
                    "hard_negs": [f"a {kind} pan of {number} parts {j}" for j in range(5)],
                }
                for n, image in enumerate(IMAGES)
            ]
            name = f"{kind}/prod_vg_hard_negs_{kind}_complexity_{number}.csv"
            write_table(root / "crepe" / "prod_hard_negatives" / name, rows)
