"""Image names of a folder or of a table; no image is opened."""

import os
from pathlib import Path
from typing import NamedTuple

from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources.records import RecordsSource


class ImageList(NamedTuple):
    """Images by name, each once. folder: where the names start."""

    names: list[str]
    folder: Path

    def path(self, name: str) -> Path:
        """The path of an image's file."""
        return self.folder / name


def read(path: Path, column: str = "image", folder: Path | None = None) -> ImageList:
    """All images below a folder, sorted by name, or the images of a table's column, in row order.

    folder: where the names of a table start; default: the table's folder. Raises ValueError for a
    missing path, DataError if there are no images.
    """
    if path.is_dir():
        names, folder = sorted(below(path)[0]), path
    else:
        source = RecordsSource(
            "all",
            path=path,
            image_folder=folder,
            image_column=column,
            caption_column=(),
            meta_columns=column,
            join_rows=False,
        )
        names = [source[index].meta[column] for index in range(len(source))]
        folder = path.parent if folder is None else folder
    if not names:
        raise DataError(f"no image files below {path}: none ends in .jpg, .png or the like")
    return ImageList(list(dict.fromkeys(names)), folder)


def below(folder: Path) -> tuple[list[str], list[str]]:
    """Images below a folder and other files, by name relative to it, without hidden ones.

    Folder by folder in the order of their paths, links followed: torchvision's. A folder that links
    lead to twice counts once.
    """
    images: list[str] = []
    others: list[str] = []
    seen: set[str] = set()
    for parent, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if (real := os.path.realpath(parent)) in seen:
            folders.clear()
            continue
        seen.add(real)
        inner = os.path.relpath(parent, folder).removeprefix(os.curdir)
        for name in files:
            if not name.startswith("."):
                names = images if name.lower().endswith(image_ops.suffixes()) else others
                names.append(os.path.join(inner, name))
    return sorted(images, key=os.path.split), sorted(others, key=os.path.split)
