"""The record of a row: its columns, and the paths of its image."""

import dataclasses
import difflib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.record import (
    Caption,
    DataError,
    PackedImage,
    Record,
    check_text,
    read_caption,
)
from vlc_jax.input_pipeline.sources import cells, tables

# Column names of published tables, suggested if the default column is missing.
USUAL_NAMES = {
    "image_column": (
        "filepath",
        "file_path",
        "path",
        "image_path",
        "file_name",
        "filename",
        "file",
        "image_name",
        "img",
        "picture",
    ),
    "caption_column": ("title", "text", "captions", "sentence", "description", "txt"),
}
NEGATIVE = "~negative"  # after the id of a row: the record of its negative image


class RowRecords:
    """The record of each row of a table; `RecordsSource` chooses and joins rows.

    folder: where image names start.   The columns are those of `RecordsSource`. Subclasses set
    `_table`, override the reading of a column where a data set has a form of its own, and may set a
    column that depends on the file.
    """

    _table: tables.Table
    # True if a single text or id must be a list, too
    _only_lists = False

    def __init__(
        self,
        folder: Path,
        *,
        image_column: str,
        caption_column: str | Sequence[str],
        id_column: str | None,
        negatives_column: str | None,
        positives_column: str | None,
        negative_kinds_column: str | None,
        positive_kinds_column: str | None,
        hard_images_column: str | None,
        group_column: str | None,
        meta_columns: Sequence[str],
        caption_weights: Sequence[float] | None = None,
        negative_image_column: str | None = None,
    ) -> None:
        self._folder = folder
        self._negative_image = negative_image_column
        self._image = image_column
        self._captions = [caption_column] if isinstance(caption_column, str) else [*caption_column]
        self._id = id_column
        self._negatives, self._positives = negatives_column, positives_column
        self._negative_kinds, self._positive_kinds = negative_kinds_column, positive_kinds_column
        self._hard_images, self._group = hard_images_column, group_column
        self._caption_weights = lookup.weights("caption_weights", caption_weights or ())
        if self._caption_weights and len(self._caption_weights) != len(self._captions):
            raise ValueError(
                f"caption_weights: a number for each caption column, {self._captions}; got "
                f"{self._caption_weights}"
            )
        self._meta = [meta_columns] if isinstance(meta_columns, str) else [*meta_columns]

    def _record(self, row_index: int) -> Record:
        """The record of one row."""
        row, name = self._table[row_index], self._table.name(row_index)
        captions = self._read_captions(row, name)
        cell = cells.Cells(row, name, self._only_lists)
        count = len(captions)
        negatives, negative_kinds = cell.hard_texts(self._negatives, self._negative_kinds, count)
        positives, positive_kinds = cell.hard_texts(self._positives, self._positive_kinds, count)
        return Record(
            id=self._record_id(row, row_index),
            image=self._image_of(row, name) if self._has_image(row) else None,
            captions=captions,
            negatives=negatives,
            positives=positives,
            negative_kinds=negative_kinds,
            positive_kinds=positive_kinds,
            hard_images=self._hard_ids(cell, row, row_index),
            group=None if self._group is None else row.get(self._group),
            meta={column: row.get(column) for column in self._meta},
            caption_weights=self._weights(row, name),
        )

    def _image_of(self, row: dict[str, Any], name: str) -> Path | PackedImage:
        cell = row.get(self._image)
        return cell if isinstance(cell, PackedImage) else self._locate(self._image_name(row, name))

    def _record_of_negative(self, row_index: int) -> Record:
        """The record of a row's negative image: the hard negative is its caption, and the caption
        its hard negative."""
        record, name = self._record(row_index), self._table.name(row_index)
        if [len(texts) for texts in (record.captions, *record.negatives)] != [1, 1]:
            raise DataError(
                f"{name}: a negative image is of one caption with one hard negative; got "
                f"{list(record.captions)} with {list(record.negatives)}"
            )
        row = self._table[row_index]
        cell = row.get(self._negative_image)
        is_packed = isinstance(cell, PackedImage)
        image = cell if is_packed else self._locate(_file_name(row, self._negative_image, name))
        return dataclasses.replace(
            record,
            id=record.id + NEGATIVE,
            image=image,
            captions=record.negatives[0],
            negatives=[[str(record.captions[0])]],
            positives=(),
            positive_kinds=(),
            hard_images=[record.id],
            meta={},
        )

    def _candidate_paths(self, image: str) -> list[Path]:
        """Possible paths of a named image, the likeliest first."""
        # a table from Windows
        names = [image.replace("\\", "/"), image] if "\\" in image else [image]
        return [self._folder / name for name in names]

    def _locate(self, image: str) -> Path:
        """The first candidate path that exists; the likeliest if none does."""
        # No stat of a single candidate: opening it reports a missing file, and storage may be slow.
        first, *others = self._candidate_paths(image)
        if not others or os.path.exists(first):
            return first
        # os.path: Path.exists raises for paths that are too long
        return next((path for path in others if os.path.exists(path)), first)

    def _read_captions(self, row: dict[str, Any], name: str) -> list[Caption]:
        captions = [text for column in self._captions for text in self._texts_of(row, column, name)]
        if not all(isinstance(caption, str) for caption in captions):
            raise DataError(f"{name}: a caption is text; got {captions}")
        return [read_caption(caption) for caption in captions]

    def _texts_of(self, row: dict[str, Any], column: str, name: str) -> list[str]:
        if column not in row:
            raise DataError(f"{name} has no {column!r}; it has {list(row)}")
        value = cells.read_captions(row[column], column, name)
        if isinstance(value, PackedImage):
            raise DataError(f"{name}: {column!r} holds bytes that are no text; store it as text")
        if value is None:
            raise DataError(f"{name}: its {column!r} is null, or an empty cell")
        return value if isinstance(value, list) else [value]

    def _weights(self, row: dict[str, Any], name: str) -> list[float]:
        """A weight per caption: equal parts of their column's."""
        weights: list[float] = []
        for column, weight in zip(self._captions, self._caption_weights, strict=False):
            count = len(self._texts_of(row, column, name))
            weights += [weight / count] * count
        return weights

    def _has_image(self, row: dict[str, Any]) -> bool:
        """False for the row of a text-only record."""
        del row
        return True

    def _hard_ids(self, cell: cells.Cells, row: dict[str, Any], row_index: int) -> list[str]:
        if self._negative_image is not None:
            return [self._record_id(row, row_index) + NEGATIVE]
        return [str(other) for other in cell.as_list(self._hard_images)]

    def _image_name(self, row: dict[str, Any], name: str) -> str:
        return _file_name(row, self._image, name)

    def _record_id(self, row: dict[str, Any], row_index: int) -> str:
        if self._id is None:
            return f"{row.get(self._image)}#{self._table.number(row_index)}"
        if row.get(self._id) in (None, ""):
            raise DataError(f"{self._table.name(row_index)} has no {self._id!r}, its id")
        try:
            check_text(record_id := str(row[self._id]), "an id")
        except DataError as error:
            raise DataError(f"{self._table.name(row_index)}: {error}") from None
        return record_id

    def _check_columns(self, **further: str | None) -> None:
        """Raises ValueError for a column that the table lacks. further: option -> its column."""
        known = self._table.columns()
        named = {"image_column": [self._image], "caption_column": self._captions}
        for option in (
            "id",
            "negatives",
            "positives",
            "negative_kinds",
            "positive_kinds",
            "hard_images",
            "negative_image",
            "group",
        ):
            named[f"{option}_column"] = [getattr(self, f"_{option}")]
        named |= {option: [column] for option, column in further.items()}
        named["meta_columns"] = self._meta
        for option, columns in named.items():
            for column in columns:
                if column is not None and column not in known:
                    usual = [name for name in USUAL_NAMES.get(option, ()) if name in known]
                    near = usual or difflib.get_close_matches(column, known, 1, cutoff=0.5)
                    hint = f"; did you mean {option}={near[0]!r}?" if near else ""
                    if not known:
                        self._table[0]  # raises the reason why it cannot be read
                    raise ValueError(
                        f"{self._table.path} has no column {column!r} ({option}); "
                        f"columns: {known}{hint}"
                    )


def _file_name(row: dict[str, Any], column: str, name: str) -> str:
    image = row.get(column)
    if not isinstance(image, str) or not image.strip() or "\0" in image:
        raise DataError(f"{name}: {column!r} is the name of a file; got {image!r}")
    if "://" in image:
        raise DataError(f"{name}: {image} is a URL; download the images first")
    return image
