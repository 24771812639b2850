"""Parquet files of images and labels, as Hugging Face stores data sets."""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from vlc_jax.input_pipeline.images import packed_images
from vlc_jax.input_pipeline.record import DataError, PackedImage, Record

_LABEL = "label"  # of several class labels the one that counts: CIFAR-100 has coarse ones, too


class _Columns(NamedTuple):
    """Columns of the image and the label; names of the classes, () if the files have none."""

    image: str
    label: str
    classes: tuple[str, ...]


class LabelledParquet:
    """A record per row of Parquet files, in their order (`files_of`).

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
        self._rows: list[tuple[Path, int, int | tuple[int, ...]]] = []
        for file in files:
            if _columns(file, image, label) != columns:
                raise DataError(f"{file} has other columns or classes than {files[0]}")
            rows = packed_images.read_rows(file, (columns.label,))
            labels = [_label(file, n, row[columns.label], limit) for n, row in enumerate(rows)]
            self._rows += [(file, n, value) for n, value in enumerate(labels)]
        if not self._rows or len({type(row[2]) for row in self._rows}) != 1:
            raise DataError(f"{files[0].parent} has no rows, or labels and lists of them")
        contents = [(file.name, file.stat().st_size) for file in files]
        labels = [label for _, _, label in self._rows]
        digest = hashlib.sha256(json.dumps([contents, labels, self.classes]).encode())
        self.fingerprint = digest.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Record:
        file, row, label = self._rows[index]
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
                f"columns {packed_images.columns(file)} as {kind}"
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
        document = json.loads(packed_images.metadata(file).get(b"huggingface", b"{}"))
        features = document.get("info", {}).get("features", {})
    except (ValueError, AttributeError, RecursionError) as error:
        raise DataError(f"{file} has damaged metadata (huggingface): {error}") from error
    return features if isinstance(features, dict) else {}


def _is_of_kind(feature: Any, kind: str) -> bool:
    """True for a feature of that kind, or for a list of such."""
    if not isinstance(feature, dict):
        return False
    return feature.get("_type") == kind or _is_of_kind(feature.get("feature"), kind)


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
