"""Images with class labels, in whichever form a data set was downloaded."""

import functools
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.record import DataError, Record, Source
from vlc_jax.input_pipeline.sources import json_annotations, labelled_parquet, prompt_texts
from vlc_jax.input_pipeline.sources.class_folders import ClassFoldersSource
from vlc_jax.input_pipeline.sources.labelled_tars import LabelledTars
from vlc_jax.input_pipeline.sources.tfds import TfdsSource
from vlc_jax.input_pipeline.stores import fetch

# names that CLIP_benchmark gives these files
CLASS_NAMES, TEMPLATES = "classnames.txt", "zeroshot_classification_templates.txt"
# in folders of TensorFlow Datasets, whose features are named alike in most sets
_IMAGE, _LABEL = "image", "label"
# other names of the split "test", where a set has no such split (ImageNet)
_TEST = ("test", "val", "validation")
_OBJECTNET = "objectnet_to_imagenet_1k.json"


class LabelledSource:
    """Images with one class or several each, of a folder in one of four forms:

      tars           PATH/SPLIT/*.tar, as CLIP_benchmark writes them
      Parquet        PATH/[CONFIG/]SPLIT-*.parquet, as Hugging Face stores data sets
      tfds           dataset_info.json in PATH or at most two folders below, as TensorFlow Datasets
                     prepares array_record files
      class folders  PATH/SPLIT/CLASS/image.jpg, or PATH/CLASS/image.jpg without splits

    Class names are those of PATH/classnames.txt, in the order of the labels or with ids in front,
    else those of the form, with spaces in place of underscores. Templates are those of
    PATH/zeroshot_classification_templates.txt; without the file there are none. In ObjectNet
    (folders `images` and `mappings`) the classes are the 113 of ImageNet.

    split: "test" stands for "val" or "validation" in a set without it.   image, label: columns of
    Parquet files, features of tfds.   `meta` has "label", or "labels" where an image has several.
    Raises ValueError for a folder of no form or without the split, DataError for damaged files.
    """

    def __init__(
        self,
        split: str = "test",
        *,
        path: str | Path,
        image: str | None = None,
        label: str | None = None,
    ) -> None:
        folder = fetch.local(path)
        if not folder.is_dir():
            raise ValueError(f"there is no folder {folder}, the `path` of a data set with labels")
        file = folder / CLASS_NAMES
        names = _read_file(file, functools.partial(prompt_texts.read, option="class_names"))
        self._images, form = _open(folder, split, image, label, len(names))
        known = tuple(self._images.classes)
        if form == "ObjectNet":
            # CLIP_benchmark's names
            known = tuple(name.lower() for name in _objectnet(folder).values())
        names = _read_file(file, lambda path: prompt_texts.class_names(path, known))
        self.classes = names or tuple(name.replace("_", " ") for name in known)
        # then numbers are words: MNIST's are
        self.has_names = bool(names)
        self.templates = _read_file(folder / TEMPLATES, prompt_texts.templates)
        content = hashlib.sha256(json.dumps([self.classes, self.templates]).encode()).hexdigest()
        self.fingerprint = f"labelled/{split}/{self._images.fingerprint}/{content[:16]}"

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> Record:
        record = self._images[index]
        labels: Sequence[int] = record.meta.get("labels", (record.meta.get("label"),))
        templates = self.templates or ("a photo of a {}",)
        return Record(
            id=record.id,
            image=record.image,
            captions=[each.format(self.classes[label]) for label in labels for each in templates],
            group=self.classes[labels[0]] if "label" in record.meta else None,
            meta=record.meta,
        )


def _open(
    folder: Path, split: str, image: str | None, label: str | None, names: int
) -> tuple[Source, str]:
    """The images of a split, and the name of the folder's form. names: the number of given ones."""
    splits = _TEST if split == "test" else (split,)
    for each in splits:
        if any((folder / each).glob("*.tar")):
            if not names:
                raise ValueError(f"{folder} needs {CLASS_NAMES}: tars have no names of classes")
            return LabelledTars(folder / each, names), "tars"
        if files := labelled_parquet.files_of(folder, each):
            parquet = labelled_parquet.LabelledParquet(files, image, label, names)
            return parquet, "Parquet"
    below = ("", "*/", "*/*/")
    if infos := sorted(info for each in below for info in folder.glob(f"{each}dataset_info.json")):
        if len(infos) > 1:
            folders = ", ".join(str(info.parent) for info in infos)
            raise ValueError(f"{folder} holds several prepared data sets: take one of {folders}")
        known = json_annotations.load(infos[0]).get("splits", [])
        set_splits = [part.get("name") for part in known]
        chosen = next((each for each in splits if each in set_splits), split)
        options = {"image": image or _IMAGE, "label": label or _LABEL, "templates": ()}
        return TfdsSource(chosen, directory=infos[0].parent, **options), "tfds"
    if mapping := _objectnet(folder):
        images = next(p for p in (folder, folder / "objectnet-1.0") if (p / "images").is_dir())
        return ClassFoldersSource("images", path=images, classes=[*mapping]), "ObjectNet"
    for each in splits:
        if (folder / each).is_dir():
            return ClassFoldersSource(each, path=folder), "class folders"
    others = sorted(path.name for path in folder.iterdir() if path.is_dir())
    is_whole = split == "all" or (split == "test" and not {"train", *_TEST} & {*others})
    if not is_whole or len(others) < 2:
        raise ValueError(
            f"{folder} has no split {split!r}: no {split}/*.tar, {split}-*.parquet, "
            f"dataset_info.json or folder {split}; its folders: {', '.join(others[:8]) or 'none'}"
        )
    return ClassFoldersSource("all", path=folder), "class folders"


def _objectnet(folder: Path) -> dict[str, str]:
    """Folder -> label of ObjectNet's classes that ImageNet has, sorted; {} for another set."""
    places = (folder, folder / "mappings", folder / "objectnet-1.0" / "mappings")
    place = next((each for each in places if (each / _OBJECTNET).is_file()), None)
    if place is None:
        return {}
    labels = json_annotations.load(place / "folder_to_objectnet_label.json")
    shared = json_annotations.load(place / _OBJECTNET)
    if not isinstance(labels, dict) or not isinstance(shared, dict):
        raise DataError(f"the mappings of {place} are no objects")
    return {name: str(labels[name]) for name in sorted(labels) if labels[name] in shared}


def _read_file(file: Path, read: Callable[[Path], Any]) -> Any:
    """The value of `read` of a file; () without one. Its ValueErrors become DataErrors."""
    try:
        return read(file) if file.is_file() else ()
    except ValueError as error:
        raise DataError(str(error)) from error
