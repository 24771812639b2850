"""Datasets by name: the annotation files as their authors publish them, and a folder of images."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from input_pipeline.record import DataError, Record
from input_pipeline.sources import aligned, tables
from input_pipeline.sources import annotations as documents
from input_pipeline.sources.records import RecordsSource

_KARPATHY = "in caption_datasets.zip of https://cs.stanford.edu/people/karpathy/deepimagesent"


class NamedSource(RecordsSource):
    """A table whose columns are known; subclasses say what its file is and how it is opened.

    annotations: the published file. images: the folder in which its image names start. exclude: as
    `RecordsSource` takes it. Raises ValueError for a missing file or folder and for a file of
    another dataset, DataError for damage.
    """

    _folder_option = "images"
    _split_advice = "the file is not divided; take 'train' or 'all', which are the whole file"
    _wanted: ClassVar[str]  # the annotation file and where it comes from

    def __init__(
        self, split: str, annotations: str | Path, images: str | Path, **columns: Any
    ) -> None:
        for option, value in (("annotations", annotations), ("images", images)):
            if not str(value):
                raise ValueError(f"source {self._kind!r} needs `{option}`; {self._advice()}")
        self._check_file(Path(annotations))
        super().__init__(split, path=annotations, image_folder=images, **columns)

    def _check_file(self, path: Path) -> None:
        if not path.is_file():
            found = "a folder" if path.is_dir() else "no file"
            raise ValueError(f"{path} is {found}; {self._advice()}")

    def _advice(self) -> str:
        return f"annotations is {self._wanted}; images is the folder where its image names start"

    def _load(self, path: Path) -> Any:
        try:
            return documents.load(path)
        except ValueError as error:
            raise ValueError(f"{error}; {self._advice()}") from error

    def _other(self, path: Path, found: str) -> ValueError:
        return ValueError(f"{path} is {found}; {self._advice()}")


class CocoSource(NamedSource):
    """COCO images with all their captions, by Karpathy's split or the official one.

    annotations: `dataset_coco.json` (splits train, restval, val, test; 82,783, 30,504, 5,000 and
      5,000 images) or `captions_{train,val}{2014,2017}.json` (one split each, train or val).
    images: the folder of train2014, val2014, train2017 or val2017, or one that holds the files.
    train_split: in a config, what training reads; the literature trains on "train+restval".
    negatives, positives: kind -> a file with a line for every annotation of captions_*.json, in
      their order: a JSON string, "None" where a caption has no such text. For training only:
      other splits do not have them.
    Ids are COCO's. `meta` keeps `image` (folder and file name) and `split`.
    """

    _kind = "coco"
    _wanted = (
        f"Karpathy's dataset_coco.json ({_KARPATHY}) or captions_train2014.json, "
        "captions_val2017.json, ... (https://cocodataset.org/#download, CC BY 4.0)"
    )

    def __init__(
        self,
        split: str = "train",
        *,
        annotations: str | Path,
        images: str | Path,
        train_split: str = "train",
        negatives: Mapping[str, str | Path | None] | None = None,
        positives: Mapping[str, str | Path | None] | None = None,
        exclude: str | Path | None = None,
    ) -> None:
        self._files: dict[str, dict[str, str | Path]] = {}
        columns = {}
        for side, files in (("negatives", negatives), ("positives", positives)):
            given = {kind: path for kind, path in (files or {}).items() if path}
            if given and split in ("train", "all"):
                self._files[side] = given
                columns |= {f"{side}_column": side, f"{side[:-1]}_kinds_column": f"{side}_kinds"}
        super().__init__(
            train_split if split == "train" else split,
            annotations,
            images,
            id_column="id",
            split_column="split",
            meta_columns=("image", "split"),
            exclude=exclude,
            **columns,
        )

    def _open(self, path: Path, quoting: bool) -> tables.Rows:
        document = self._load(path)
        if documents.is_karpathy(document) and document.get("dataset", "coco") == "coco":
            if self._files:
                raise ValueError(
                    f"{path} is Karpathy's split, whose captions have no order that files of "
                    "negatives or positives could follow; annotations must be captions_*.json"
                )
            return tables.PackedRows(path, documents.karpathy_rows(path, document))
        if not documents.is_coco_captions(document):
            raise self._other(path, documents.describe(document))
        rows = documents.coco_rows(path, document)
        folders = documents.coco_folders(path, document)
        strange = next((row for row in rows if row["id"] not in folders), None)
        if strange is not None:
            raise self._other(
                path,
                f"in the form of COCO captions, but {strange['image']!r} is no image of "
                "train2014, val2014, train2017 or val2017 (input_pipeline.prepare --source "
                "records reads such files)",
            )
        for row in rows:
            folder = folders[row["id"]]
            row["image"] = f"{folder}/{Path(row['image']).name}"
            row["split"] = folder[:-4]
        for side, files in self._files.items():
            self.digests |= aligned.attach(rows, document["annotations"], side, files)
        return tables.PackedRows(path, rows)

    def _places(self, image: str) -> list[Path]:
        return below(self._folder, image)


class Flickr30kSource(NamedSource):
    """Flickr30k: images with their five captions.

    annotations: Karpathy's `dataset_flickr30k.json` (splits train, val, test; 29,000, 1,014 and
      1,000 images), or the dataset's own `results_20130124.token` or `results.csv` (31,783 images
      without splits: split="all").
    images: the folder flickr30k-images. Ids are file names without suffix.
    """

    _kind = "flickr30k"
    _wanted = (
        f"Karpathy's dataset_flickr30k.json ({_KARPATHY}), or results_20130124.token or "
        "results.csv of the dataset (https://shannon.cs.illinois.edu/DenotationGraph, by a form, "
        "for research)"
    )
    # name.jpg#0<TAB>caption, or name.jpg| 0| caption; results.csv lacks one of its separators.
    _LINE = re.compile(r"([^|#\t]+\.jpg)\s*[#|]\s*\d+\s*[|\s]\s*(.*)")

    def __init__(
        self,
        split: str = "train",
        *,
        annotations: str | Path,
        images: str | Path,
        exclude: str | Path | None = None,
    ) -> None:
        super().__init__(
            split, annotations, images, id_column="id", split_column="split", exclude=exclude
        )

    def _open(self, path: Path, quoting: bool) -> tables.Rows:
        if path.suffix.lower() in (".token", ".csv", ".txt"):
            return tables.PackedRows(path, self._token_rows(path))
        document = self._load(path)
        if not documents.is_karpathy(document) or document.get("dataset") != "flickr30k":
            raise self._other(path, documents.describe(document))
        return tables.PackedRows(path, documents.karpathy_rows(path, document))

    def _token_rows(self, path: Path) -> list[dict[str, Any]]:
        captions: dict[str, list[str]] = {}
        lines = path.read_text("utf-8-sig", errors="replace").splitlines()
        for number, line in enumerate(lines, start=1):
            if not line.strip() or (number == 1 and line.startswith("image_name|")):
                continue
            match = self._LINE.fullmatch(line.strip())
            if match is None:
                found = f"a text whose line {number} is {line[:80]!r}, no NAME.jpg#0 CAPTION"
                raise self._other(path, found)
            captions.setdefault(match[1], []).append(match[2])
        if self._split != "all":
            raise ValueError(
                f"{path} is not divided into splits; take 'all', or Karpathy's "
                f"dataset_flickr30k.json for {self._split!r}"
            )
        return [
            {"id": Path(name).stem, "image": name, "caption": texts, "split": "all"}
            for name, texts in captions.items()
        ]


class NegclipSource(NamedSource):
    """The tables of NegCLIP: a COCO image, one caption, hard negative captions and hard images.

    annotations: `train_neg_clip.tsv` or `valid_neg_clip.tsv`; the columns title, filepath,
      neg_caption (a Python list of texts) and, not in every copy, neg_image (rows of the same file,
      counted from 0).
    images: the folder where filepath ("coco/val2014/COCO_val2014_....jpg") or a tail of it begins.
    Ids are row numbers, counted from 0, as `hard_images` needs them. The kind of the negatives is
    "negclip". `meta` keeps `filepath`.
    """

    _kind = "negclip"
    _only_lists = True
    _wanted = (
        "train_neg_clip.tsv or valid_neg_clip.tsv with the columns title, filepath, neg_caption "
        "and neg_image (temp_data of github.com/mertyg/vision-language-models-are-bows, MIT)"
    )

    def __init__(
        self,
        split: str = "train",
        *,
        annotations: str | Path,
        images: str | Path,
        exclude: str | Path | None = None,
    ) -> None:
        super().__init__(
            split,
            annotations,
            images,
            image_column="filepath",
            caption_column="title",
            negatives_column="neg_caption",
            meta_columns=("filepath",),
            exclude=exclude,
        )

    def _open(self, path: Path, quoting: bool) -> tables.Rows:
        rows = tables.Delimited(path, "\t", quoting)
        seen = rows.columns()
        missing = [name for name in ("title", "filepath", "neg_caption") if name not in seen]
        if missing:
            shown = [name[:40] for name in seen[:8]]
            raise self._other(path, f"a table without the columns {missing}; it has {shown}")
        if not len(rows):
            raise DataError(f"{path} holds no rows")
        self._hard_images = "neg_image" if "neg_image" in seen else None
        return rows

    def __getitem__(self, index: int) -> Record:
        record = super().__getitem__(index)
        for other in record.hard_images:
            if not self._is_row(other):
                raise DataError(
                    f"{self._rows.name(int(record.id))}: 'neg_image' holds row numbers below "
                    f"{len(self._rows):,}; got {other}"
                )
        kinds = [["negclip"] * len(texts) for texts in record.negatives]
        return dataclasses.replace(record, negative_kinds=kinds)

    def find(self, record_id: str) -> Record:
        if self._is_row(record_id):
            index = int(np.searchsorted(self._index, int(record_id)))
            if index < len(self) and self._index[index] == int(record_id):
                return self[index]
        raise DataError(f"{self._rows.path} has no row {record_id!r}, or it is excluded")

    def _is_row(self, record_id: str) -> bool:
        return record_id.isdecimal() and int(record_id) < len(self._rows)

    def _record_id(self, row: dict[str, Any], row_index: int) -> str:
        return str(row_index)

    def _places(self, image: str) -> list[Path]:
        return below(self._folder, image)


def below(folder: Path, image: str) -> list[Path]:
    """The name in the folder, then its tails: coco/val2014/a.jpg, val2014/a.jpg, a.jpg."""
    parts: Sequence[str] = Path(image).parts
    return [folder.joinpath(*parts[start:]) for start in range(len(parts))]
