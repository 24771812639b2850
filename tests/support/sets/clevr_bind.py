"""CLEVR-bind's files."""

from pathlib import Path

from tests.support.sets.files import picture, write_table
from vlc_jax.input_pipeline.benchmarks.clevr_bind import SUBSETS


def write(root: Path) -> None:
    folder = root / "clevr_bind" / "two_object"
    for subset in SUBSETS:
        rows = []
        for n in range(3):
            picture(folder / "images" / subset / f"CLEVR_{n}.png")
            wrong = {f"neg_{k}": f"{subset} cube {n} {k}" for k in range(4)}
            rows.append({"file_name": f"CLEVR_{n}.png", "pos": f"{subset} cone {n}", **wrong})
        write_table(folder / f"{subset}.csv", rows)
