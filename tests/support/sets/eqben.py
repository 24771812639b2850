"""Files of EqBen-mini, of EqBen's tenth and of all of EqBen."""

from pathlib import Path

import numpy as np

from tests.support.sets.files import picture, write_json
from vlc_jax.input_pipeline.benchmarks.eqben import FAMILIES
from vlc_jax.input_pipeline.benchmarks.published import ORIGINS

RGB = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)


def write(root: Path) -> None:
    for name in ("eqben", "eqben_subset", "eqben_full"):
        origin = ORIGINS[name]
        rows = _rows(root / origin.images)
        rows = whole(rows) if name == "eqben_full" else rows
        write_json(root / origin.folder / origin.files[0], rows)


def whole(rows: list[dict]) -> list[dict]:
    """Rows of the full set, one for each caption with each image, in another order."""
    made = [
        {
            "image": row[f"image{i}"],
            "caption": row[f"caption{c}"],
            "private_info": {
                "dataset": row["image0"].split("/")[0],
                "name": f"c{c}i{i}",
                "sample_cnt": number,
            },
        }
        for number, row in enumerate(rows)
        for c in (0, 1)
        for i in (0, 1)
    ]
    return made[::-1]


def _rows(images: Path) -> list[dict]:
    rows = []
    for subset in FAMILIES:
        suffix = "npy" if subset == "eqbenyoucook2" else "png"
        names = [f"{subset}/video_1/frame_{k}.{suffix}" for k in (0, 1)]
        for k, name in enumerate(names):
            if suffix == "npy":
                (images / name).parent.mkdir(parents=True, exist_ok=True)
                np.save(images / name, (RGB + k)[:, :, ::-1])  # BGR, as OpenCV has it
            else:
                picture(images / name)
        captions = {f"caption{k}": f"{k + 1} cups on a table" for k in (0, 1)}
        rows.append({"image0": names[0], "image1": names[1], **captions})
    return rows
