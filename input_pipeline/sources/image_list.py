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
        names, folder = _below(path), path
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


def _below(folder: Path) -> list[str]:
    """Names of the files with an image suffix, relative to the folder, sorted."""
    suffixes = image_ops.suffixes()
    images = [
        os.path.relpath(os.path.join(parent, name), folder)
        for parent, _, names in os.walk(folder)
        for name in names
        if name.lower().endswith(suffixes) and not name.startswith("._")
    ]
    return sorted(images)
