"""Files of EqBen-mini and of EqBen's tenth."""

from pathlib import Path

import numpy as np

from tests.support.sets.files import picture, write_json
from vlc_jax.input_pipeline.benchmarks.eqben import FAMILIES, ORIGIN, SUBSET

RGB = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3)


def write(root: Path) -> None:
    for origin in (ORIGIN, SUBSET):
        _write(root / origin.images, root / origin.folder / origin.files[0])


def _write(images: Path, annotations: Path) -> None:
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
    write_json(annotations, rows)
