"""A folder of images per class, as ImageNet and torchvision's ImageFolder have them."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError, Record
from vlc_jax.input_pipeline.sources import json_annotations


class ClassFoldersSource:
    """Images in PATH/SPLIT/CLASS/image.jpg, or PATH/CLASS/image.jpg for split "all".

    classes: the names of the folders, sorted, by their value if all are numbers (ImageNet-V2);
    `meta["label"]` is the index of an image's class. The option keeps these folders alone.
    templates: captions, with the class name (underscores as spaces) in place of {}.
    Files without the suffix of an image are left out and, unless hidden, counted in the log. Raises
    ValueError for a missing split or fewer than two classes, DataError for a class without images.
    """

    def __init__(
        self,
        split: str = "train",
        *,
        path: str | Path,
        templates: Sequence[str] = ("a photo of a {}",),
        classes: Sequence[str] | None = None,
    ) -> None:
        folder = Path(path) if split == "all" else Path(path) / split
        if not folder.is_dir():
            names = sorted(each.name for each in Path(path).glob("*") if each.is_dir())
            raise ValueError(
                f"there is no folder {folder}; folders of {path}: {', '.join(names[:8]) or 'none'}"
                " (split='all' takes these as classes)"
            )
        names = [each.name for each in folder.iterdir() if each.is_dir()]
        if classes is not None:
            if missing := sorted({*classes}.difference(names)):
                raise ValueError(f"{folder} has no folder of the class {missing[0]!r}")
            names = [*dict.fromkeys(classes)]
        # as texts, 10 would be before 2, and its label that of 2
        are_numbers = all(name.isascii() and name.isdecimal() for name in names)
        self.classes = tuple(sorted(names, key=int if are_numbers else None))
        if len(self.classes) < 2:
            raise ValueError(f"{folder} has {len(self.classes)} folders of classes; at least two")
        self.templates, self._folder = tuple(templates), folder
        self._files = []
        others: list[str] = []
        for label, class_name in enumerate(self.classes):
            names = _images(folder / class_name, others)
            self._files += [(label, name) for name in names]
        reason = f"files have no suffix of an image, such as {others[0] if others else ''},"
        json_annotations.mention(folder, len(others), len(others) + len(self._files), reason)
        names = "\n".join(f"{label}/{name}" for label, name in self._files)
        content = hashlib.sha256("\n".join([*self.classes, names, *self.templates]).encode())
        self.fingerprint = f"class_folders/{split}/{content.hexdigest()[:16]}"

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> Record:
        label, file = self._files[index]
        name = self.classes[label]
        return Record(
            id=f"{name}/{file}",
            image=self._folder / name / file,
            captions=[template.format(name.replace("_", " ")) for template in self.templates],
            group=name,
            meta={"label": label},
        )


def _images(folder: Path, others: list[str]) -> list[str]:
    """Names of the images in a folder, sorted: the order does not depend on the file system.

    Adds other files' names to `others`.
    """
    suffixes = image_ops.suffixes()
    files = sorted(each.name for each in os.scandir(folder))
    files = [name for name in files if not name.startswith("._")]  # macOS writes such files
    names = [name for name in files if name.lower().endswith(suffixes)]
    if not names:
        raise DataError(f"{folder} has no images ({', '.join(suffixes)})")
    others += {*files}.difference(names, [name for name in files if name.startswith(".")])
    return names
