"""CLIP_benchmark's data sets in miniature."""

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.support import miniature
from tests.support.sets.files import picture_bytes

NAMES = ("tabby cat", "dog", "17")


def npy(vector: Sequence[float]) -> bytes:
    """A vector as numpy saves it."""
    file = io.BytesIO()
    np.save(file, np.array(vector))
    return file.getvalue()


def write_tars(
    folder: Path,
    labels: Sequence[bytes],
    suffix: str = "cls",
    names: Sequence[str] = NAMES,
    per_tar: int = 3,
    split: str = "test",
) -> None:
    """Tars of images and these labels, and the files of names and templates, as its export writes
    them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "classnames.txt").write_text("\n".join(names) + "\n")
    templates = "a photo of a {c}.\nthe {c}.\n"
    (folder / "zeroshot_classification_templates.txt").write_text(templates)
    (folder / split).mkdir(exist_ok=True)
    tars = [labels[n : n + per_tar] for n in range(0, len(labels), per_tar)]
    for number, part in enumerate(tars):
        with tarfile.open(folder / split / f"{number}.tar", "w") as tar:
            for n, label in enumerate(part):
                key = f"s{per_tar * number + n:07d}"
                miniature.add(tar, f"{key}.{suffix}", label)
                miniature.add(tar, f"{key}.webp", picture_bytes(f"{per_tar * number + n}"))
    (folder / split / "nshards.txt").write_text(f"{len(tars)}\n")
