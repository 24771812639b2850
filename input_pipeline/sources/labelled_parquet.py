"""Parquet files of images and labels, as Hugging Face stores data sets."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.input_pipeline.images import parquet_file
from vlc_jax.input_pipeline.record import DataError, PackedImage, Record

_LABEL = "label"  # of several class labels the one that counts: CIFAR-100 has coarse ones, too


class _Columns(NamedTuple):
    """Columns of the image and the label; names of the classes, () if the files have none."""

    image: str
    label: str
    classes: tuple[str, ...]


class LabelledParquet:
    """A record per row of Parquet files, in their order (`files_of`). No row stays in memory:
    a record reads its row group.

    image, label: columns; None: by the data set's features, which the file names: its only image,
    and its only class label or the one called "label". A label is a number, or a list of them
    (`meta["labels"]`). `classes` are the names of the features, () if there are none; then
    num_classes is their number.

    Raises ValueError for files in several folders and for columns that are not named, DataError for
    damaged files, missing columns and labels out of range.
    """

    def __init__(
        self, files: list[Path], image: str | None, label: str | None, num_classes: int
    ) -> None:
        columns = _columns(files[0], image, label)
        self.classes, self._image = columns.classes, columns.image
        limit = len(columns.classes) or num_classes
        if not limit:
            raise ValueError(
                f"{files[0]} names no classes in the column {columns.label!r}: write a name per "
                "line into classnames.txt in `path`"
            )
        self._files, self._label, self._limit = files, columns.label, limit
        self._ends = np.cumsum([parquet_file.num_rows(file) for file in files])
        contents = [(file.name, file.stat().st_size) for file in files]
        # the JSON of [contents, labels, classes], whose labels are not all in memory
        digest, end = hashlib.sha256(f"[{json.dumps(contents)}, [".encode()), ""
        kinds = set[type]()
        for file in files:
            if _columns(file, image, label) != columns:
                raise DataError(f"{file} has other columns or classes than {files[0]}")
            for labels in _labels(file, columns.label, limit):
                kinds |= set(map(type, labels))
                digest.update(f"{end}{json.dumps(labels)[1:-1]}".encode())
                end = ", "
        if len(kinds) != 1:
            raise DataError(f"{files[0].parent} has no rows, or labels and lists of them")
        digest.update(f"], {json.dumps(self.classes)}]".encode())
        self.fingerprint = digest.hexdigest()[:16]

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Record:
        if not -len(self) <= index < len(self):
            raise IndexError(f"record {index} of {len(self)}")
        number = int(np.searchsorted(self._ends, index % len(self), side="right"))
        file, row = self._files[number], index % len(self) - int(self._ends[number])
        row += parquet_file.num_rows(file)
        value = parquet_file.row(file, (self._label,), row)[self._label]
        label = _label(file, row, value, self._limit)
        meta = {"label": label} if isinstance(label, int) else {"labels": label}
        return Record(f"{file.stem}/{row}", PackedImage(file, row, self._image), (), meta=meta)


def files_of(folder: Path, split: str) -> list[Path]:
    """The Parquet files of a split, in the folder or one below it, sorted by name. Raises
    ValueError if they lie in several folders."""
    # no deeper: a folder per class of a million images is slow to list
    patterns = [f"{below}{split}{end}.parquet" for below in ("", "*/") for end in ("", "-*")]
    files = sorted(path for pattern in patterns for path in folder.glob(pattern))
    parents = sorted({str(path.parent) for path in files})
    if len(parents) > 1:
        raise ValueError(
            f"{folder} has files of the split {split!r} in {', '.join(parents)}: take one as path"
        )
    return files


def _columns(file: Path, image: str | None, label: str | None) -> _Columns:
    features = _features(file)

    def only(option: str, kind: str) -> str:
        names = [name for name, feature in features.items() if _is_of_kind(feature, kind)]
        if _LABEL in names and kind == "ClassLabel":
            names = [_LABEL]
        if len(names) != 1:
            raise ValueError(
                f"set {option}, the column of the {option}: {file} names {names or 'none'} of its "
                f"columns {parquet_file.names(file)} as {kind}"
            )
        return names[0]

    image, label = image or only("image", "Image"), label or only(_LABEL, "ClassLabel")
    feature = features.get(label, {})
    feature = feature.get("feature", feature) if isinstance(feature, dict) else {}
    names = feature.get("names") if isinstance(feature, dict) else None
    return _Columns(image, label, tuple(map(str, names)) if isinstance(names, list) else ())


def _features(file: Path) -> dict[str, Any]:
    """The data set's features in the metadata that Hugging Face's library writes; {} without."""
    try:
        document = json.loads(parquet_file.metadata(file).get(b"huggingface", b"{}"))
        features = document.get("info", {}).get("features", {})
    except (ValueError, AttributeError, RecursionError) as error:
        raise DataError(f"{file} has damaged metadata (huggingface): {error}") from error
    return features if isinstance(features, dict) else {}


def _is_of_kind(feature: Any, kind: str) -> bool:
    """True for a feature of that kind, or for a list of such."""
    if not isinstance(feature, dict):
        return False
    return feature.get("_type") == kind or _is_of_kind(feature.get("feature"), kind)


def _labels(file: Path, column: str, limit: int) -> Iterator[list[int | tuple[int, ...]]]:
    """The labels of a file, some thousand at a time."""
    first = 0
    for rows in parquet_file.batches(file, [column]):
        if None in rows:
            raise DataError(f"{file} is damaged: a label of its row {first + rows.index(None)}")
        values = [row[column] for row in rows if row is not None]
        yield [_label(file, first + n, value, limit) for n, value in enumerate(values)]
        first += len(rows)


def _label(file: Path, row: int, value: Any, limit: int) -> int | tuple[int, ...]:
    """A label or several below `limit`."""
    labels = value if isinstance(value, list) else [value]
    for label in labels:
        if not isinstance(label, int) or isinstance(label, bool) or not 0 <= label < limit:
            raise DataError(
                f"row {row} of {file}: a label is the number of a class, 0 ... {limit - 1}; got "
                f"{label!r:.80} (-1 marks a split without labels)"
            )
    return tuple(labels) if isinstance(value, list) else value
