"""A folder of images per class, as ImageNet and torchvision's ImageFolder have them."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError, Record
from vlc_jax.input_pipeline.sources import image_files, image_list, json_annotations, prompt_texts

_SPLITS = {"train", "val", "validation", "test"}


class ClassFoldersSource:
    """Images in PATH/SPLIT/CLASS/image.jpg, or PATH/CLASS/image.jpg for split "all".

    classes: the names of the folders, sorted, by their value if all are numbers (ImageNet-V2);
    `meta["label"]` is the index of an image's class. The option keeps these folders alone.
    templates: captions, with the class name (underscores as spaces) in place of {}.
    Images in folders within a class folder are of that class, in torchvision's order. Files without
    the suffix of an image are left out and counted in the log; hidden ones are left out. Raises
    ValueError for a missing split, splits as classes or fewer than two classes, DataError for a
    class without images.
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
        names = [p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")]
        if classes is not None:
            if missing := sorted({*classes}.difference(names)):
                raise ValueError(f"{folder} has no folder of the class {missing[0]!r}")
            names = [*dict.fromkeys(classes)]
        # as texts, 10 would be before 2, and its label that of 2
        are_numbers = all(name.isascii() and name.isdecimal() for name in names)
        self.classes = tuple(sorted(names, key=int if are_numbers else None))
        if len(self.classes) < 2:
            raise ValueError(f"{folder} has {len(self.classes)} folders of classes; at least two")
        if _SPLITS.issuperset(self.classes):
            raise ValueError(f"{folder} has splits, no classes; set split to one of {self.classes}")
        self.templates, self._folder = prompt_texts.templates(templates), folder
        self._files = []
        others: list[str] = []
        for label, class_name in enumerate(self.classes):
            names, no_images = image_list.below(folder / class_name)
            if not names:
                suffixes = ", ".join(image_ops.suffixes())
                raise DataError(f"{folder / class_name} has no images ({suffixes})")
            self._files += [(label, name) for name in names]
            others += no_images
        reason = f"files have no suffix of an image, such as {others[0] if others else ''},"
        json_annotations.mention(folder, len(others), len(others) + len(self._files), reason)
        names = "\n".join(f"{label}/{name}" for label, name in self._files)
        measured = (
            image_files.size_of(folder / self.classes[label] / name)
            for label, name in self._files[:: image_files.MEASURED]
        )
        sizes = " ".join(map(str, measured))
        content = hashlib.sha256("\n".join([*self.classes, names, sizes, *self.templates]).encode())
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
