"""BLA's files."""

from pathlib import Path

from tests.support.sets.files import picture, write_json
from vlc_jax.input_pipeline.benchmarks.bla import SUBSETS


def write(root: Path) -> None:
    folder = root / "BLA_Benchmark"
    for subset in SUBSETS:
        rows = []
        for image, groups in ((7, 1), (8, 2)):
            picture(folder / "images" / f"{image}.jpg")
            rows.append(
                {
                    "image_id": image,
                    "index": image,
                    "caption_group": [
                        {
                            "group_index": n,
                            "True1": f"{subset} {n}: the cook in white holds a pot",
                            "True2": f"{subset} {n}: the cook in blue holds a pan",
                            "False1": f"{subset} {n}: the cook in white holds a pan",
                            "False2": f"{subset} {n}: the cook in blue holds a pot",
                        }
                        for n in range(groups)
                    ],
                }
            )
        write_json(folder / "annotations" / f"{subset}_captions.json", rows)
