"""CREPE's tables: regions of Visual Genome with captions and hard negatives."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import Crop, DataError, Record
from vlc_jax.input_pipeline.sources import tables
from vlc_jax.input_pipeline.sources.image_identity import image_identity
from vlc_jax.input_pipeline.sources.published import PublishedSource

BOX = ("x", "y", "width", "height")
# pixels; a crop of more would not fit in memory
_MAX_SIDE = 65_536


class CrepeSource(PublishedSource):
    """CREPE's tables: regions of Visual Genome, their captions and hard negatives.

    annotations: a .csv with the columns image_id, caption, hard_negs (a Python list of texts) and,
      for regions, x, y, width and height in pixels.
    images: the folder of VG_100K and VG_100K_2, or one that holds IMAGE_ID.jpg.
    negatives: the column of the hard negatives.
    The image of a record is its region; beyond the border it is black.
    """

    _kind = "crepe"
    _only_lists = True
    _expected_file = (
        "a .csv with the columns image_id, caption and hard_negs, such as CREPE's "
        "prod_vg_hard_negs_swap_complexity_4.csv (github.com/RAIVNLab/CREPE)"
    )

    def __init__(
        self,
        split: str = "train",
        *,
        annotations: str | Path,
        images: str | Path,
        negatives: str = "hard_negs",
        exclude: str | Path | None = None,
    ) -> None:
        self._columns = {"image_column": "image_id", "negatives_column": negatives}
        super().__init__(split, annotations=annotations, images=images, exclude=exclude)

    def _open(self, path: Path, quoting: bool) -> tables.Table:
        needed = ("image_id", "caption", self._columns["negatives_column"])
        rows = self._delimited(path, ",", quoting, needed)
        self._has_box = any(name in rows.columns() for name in BOX)
        # a table with a part of the box is damaged, not one of whole images
        return self._delimited(path, ",", quoting, BOX) if self._has_box else rows

    def __getitem__(self, index: int) -> Record:
        record = super().__getitem__(index)
        if not self._has_box:
            return record
        row_index = int(self._index[index])
        region = box(self._table[row_index], self._table.name(row_index))
        return dataclasses.replace(record, image=image_ops.decode(Crop(record.image, region)))

    def _image_name(self, row: dict[str, Any], name: str) -> str:
        return f"{super()._image_name(row, name).removesuffix('.jpg')}.jpg"

    def _identity(self, row: dict[str, Any]) -> str:
        return image_identity(f"VG_100K/{str(row.get('image_id')).removesuffix('.jpg')}.jpg")

    def _candidate_paths(self, image: str) -> list[Path]:
        return [self._folder / part / image for part in ("VG_100K", "VG_100K_2", "")]


def box(row: dict[str, Any], name: str, columns: Sequence[str] = BOX) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of a row's region. Raises DataError for wrong columns.

    name: of the row, for messages.   columns: of left, top, width and height.
    """
    values = []
    for column in columns:
        try:
            # by float: pandas writes integers as 12.0 in a column that lacks some
            value = int(float(row[column]))
        except (TypeError, ValueError, OverflowError):
            raise DataError(f"{name}: {column!r} is a number; got {row[column]!r:.80}") from None
        least = 1 if column in columns[2:] else -_MAX_SIDE
        if not least <= value <= _MAX_SIDE:
            raise DataError(f"{name}: {column!r} is a number of pixels; got {row[column]!r:.80}")
        values.append(value)
    left, top, width, height = values
    return left, top, left + width, top + height
