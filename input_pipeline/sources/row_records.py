"""The record of a row: its columns, and the paths of its image."""

import dataclasses
import difflib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.record import (
    COLUMNS,
    Caption,
    DataError,
    PackedImage,
    Record,
    check_text,
    read_caption,
)
from vlc_jax.input_pipeline.sources import cells, tables

NEGATIVE = "~negative"  # after the id of a row: the record of its negative image


@dataclasses.dataclass
class Columns:
    """Columns of a table: options of `RecordsSource`, and what else belongs to one.

    image_column: the image's file name; of Parquet also the image itself, as bytes or as Hugging
      Face's {bytes, path}. Then a row is a record.
    caption_column: the caption, or a list of captions of the image; several columns may be named.
      COCO captions JSON has the columns id, image and caption (all captions of an image).
    caption_weights: of each column of `caption_column`: how often training draws a caption of it.
    id_column: names of the rows, unique or one for all rows of an image; default: image name and
      row number.
    negatives_column, positives_column: hard negative / positive captions: a list of strings (for
      every caption) or one list per caption; in CSV and TSV a JSON or Python list literal.
    negative_kinds_column, positive_kinds_column: the generator of each text, by which training
      selects it: one name for all, or lists of the same shape.
    hard_images_column: a list of ids. group_column: any value to split results by, one for all
      rows of an image.
    negative_image_column: an image of the row's one hard negative, which becomes its hard image:
      with the negative as caption and the caption as hard negative. It is found by its id and is
      no record itself; each row is a record.
    split_column: names of splits; only rows of the source's `split` are taken, and "train+restval"
      takes both.
    meta_columns: columns that are copied to the record's `meta`, as a list where rows of its image
      differ.
    """

    image_column: str = "image"
    caption_column: str | Sequence[str] = "caption"
    id_column: str | None = None
    negatives_column: str | None = None
    positives_column: str | None = None
    negative_kinds_column: str | None = None
    positive_kinds_column: str | None = None
    hard_images_column: str | None = None
    negative_image_column: str | None = None
    group_column: str | None = None
    split_column: str | None = None
    meta_columns: Sequence[str] = ()
    caption_weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        for option in ("caption_column", "meta_columns"):
            names = getattr(self, option)
            setattr(self, option, [names] if isinstance(names, str) else [*names])
        self.caption_weights = lookup.weights("caption_weights", self.caption_weights or ())
        if self.caption_weights and len(self.caption_weights) != len(self.caption_column):
            raise ValueError(
                f"caption_weights: a number for each caption column, {self.caption_column}; got "
                f"{self.caption_weights}"
            )
        if self.negative_image_column is not None and self.hard_images_column is not None:
            raise ValueError(
                "hard images are those of hard_images_column or of negative_image_column; got "
                f"{self.hard_images_column!r} and {self.negative_image_column!r}: leave one out"
            )

    def check(self, table: tables.Table) -> None:
        """Raises ValueError for a column that the table lacks."""
        known = table.columns()
        named = dataclasses.asdict(self)
        del named["caption_weights"]
        for option, columns in named.items():
            for column in [columns] if isinstance(columns, str) else columns or ():
                if column not in known:
                    names = COLUMNS.get(option.removesuffix("_column"), ())
                    usual = [name for name in names if name in known]
                    near = usual or difflib.get_close_matches(column, known, 1, cutoff=0.5)
                    hint = f"; did you mean {option}={near[0]!r}?" if near else ""
                    if not known:
                        table[0]  # raises the reason why it cannot be read
                    raise ValueError(
                        f"{table.path} has no column {column!r} ({option}); columns: {known}{hint}"
                    )


class RowRecords:
    """The record of each row of a table; `RecordsSource` chooses and joins rows.

    folder: where image names start.   Subclasses set `_table`, override the reading of a column
    where a data set has a form of its own, and may set a column that depends on the file.
    """

    _table: tables.Table
    # True if a single text or id must be a list, too
    _only_lists = False

    def __init__(self, folder: Path, columns: Columns) -> None:
        self._folder, self.columns = folder, columns

    def _record(self, row_index: int) -> Record:
        """The record of one row."""
        return Record(**self._fields(row_index))

    def _fields(self, row_index: int) -> dict[str, Any]:
        """Fields of the record of one row."""
        row, name = self._table[row_index], self._table.name(row_index)
        captions = self._read_captions(row, name)
        cell, columns = cells.Cells(row, name, self._only_lists), self.columns
        (negatives, negative_kinds), (positives, positive_kinds) = (
            cell.hard_texts(texts, kinds, len(captions))
            for texts, kinds in (
                (columns.negatives_column, columns.negative_kinds_column),
                (columns.positives_column, columns.positive_kinds_column),
            )
        )
        return {
            "id": self._record_id(row, row_index),
            "image": self._image_of(row, name) if self._has_image(row) else None,
            "captions": captions,
            "negatives": negatives,
            "positives": positives,
            "negative_kinds": negative_kinds,
            "positive_kinds": positive_kinds,
            "hard_images": self._hard_ids(cell, row, row_index),
            "group": None if columns.group_column is None else row.get(columns.group_column),
            "meta": {column: row.get(column) for column in columns.meta_columns},
            "caption_weights": self._weights(row, name),
        }

    def _image_of(self, row: dict[str, Any], name: str) -> Path | PackedImage:
        cell = row.get(self.columns.image_column)
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
        row, column = self._table[row_index], self.columns.negative_image_column
        cell = row.get(column)
        is_packed = isinstance(cell, PackedImage)
        image = cell if is_packed else self._locate(_file_name(row, column, name))
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
        columns = self.columns.caption_column
        captions = [text for column in columns for text in self._texts_of(row, column, name)]
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
        columns = self.columns
        for column, weight in zip(columns.caption_column, columns.caption_weights, strict=False):
            count = len(self._texts_of(row, column, name))
            weights += [weight / count] * count
        return weights

    def _has_image(self, row: dict[str, Any]) -> bool:
        """False for the row of a text-only record."""
        del row
        return True

    def _hard_ids(self, cell: cells.Cells, row: dict[str, Any], row_index: int) -> list[str]:
        if self.columns.negative_image_column is not None:
            return [self._record_id(row, row_index) + NEGATIVE]
        return [str(other) for other in cell.as_list(self.columns.hard_images_column)]

    def _image_name(self, row: dict[str, Any], name: str) -> str:
        return _file_name(row, self.columns.image_column, name)

    def _record_id(self, row: dict[str, Any], row_index: int) -> str:
        column = self.columns.id_column
        if column is None:
            return f"{row.get(self.columns.image_column)}#{self._table.number(row_index)}"
        if row.get(column) in (None, ""):
            raise DataError(f"{self._table.name(row_index)} has no {column!r}, its id")
        try:
            check_text(record_id := str(row[column]), "an id")
        except DataError as error:
            raise DataError(f"{self._table.name(row_index)}: {error}") from None
        return record_id


def _file_name(row: dict[str, Any], column: str, name: str) -> str:
    image = row.get(column)
    if not isinstance(image, str) or not image.strip() or "\0" in image:
        raise DataError(f"{name}: {column!r} is the name of a file; got {image!r}")
    if "://" in image:
        raise DataError(f"{name}: {image} is a URL; download the images first")
    return image
