"""NegCLIP's tables: COCO images and captions with hard negative captions and hard images."""

import dataclasses
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vlc_jax.input_pipeline.record import DataError, Record
from vlc_jax.input_pipeline.sources import tables
from vlc_jax.input_pipeline.sources.published import PublishedSource, tail_paths

# Marks that the authors' tokenizer detached from the word before, or after, or from both.
_AFTER_A_WORD = re.compile(r"\s+(n't\b|'(?:s|m|d|ll|re|ve)?(?!\w)|[.,;:!?)\]}]+)")
_BEFORE_A_WORD = re.compile(r"([(\[{])\s+")
_BETWEEN_WORDS = re.compile(r"(?<=\w)\s+([-/=&])\s+(?=\w)")
_QUOTED = re.compile(r"\"\s+([^\"]*\S)\s+\"")


def rejoined(text: str, caption: str) -> str:
    """The text with its marks where the caption has them: "a dog , a man 's hat ." becomes "a dog,
    a man's hat.". A mark stays detached if it is so in the caption ("black - and - white").
    """
    for pattern, joined in (
        (_AFTER_A_WORD, r"\1"),
        (_BEFORE_A_WORD, r"\1"),
        (_BETWEEN_WORDS, r"\1"),
        (_QUOTED, r'"\1"'),
    ):
        if not pattern.search(caption):
            text = pattern.sub(joined, text)
    return text


class NegclipSource(PublishedSource):
    """NegCLIP's tables: a COCO image, one caption, hard negative captions and hard images.

    annotations: `train_neg_clip.tsv` or `valid_neg_clip.tsv`; the columns title, filepath,
      neg_caption (a Python list of texts) and, not in every copy, neg_image (rows of the same file,
      counted from 0).
    images: the folder where filepath ("coco/val2014/COCO_val2014_....jpg") or a tail of it begins.
    Ids are row numbers, counted from 0, as in `hard_images`. The kind of the negatives is
    "negclip". `meta` has `filepath`.
    as_released: leaves the negatives as the file has them, with marks detached from words ("a man
      with a hat ."): 70 % of the negatives end so, and .1 % of the captions, so that a model whose
      tokenizer sees the mark can tell them without the image. Default: `rejoined`.
    """

    _kind = "negclip"
    _only_lists = True
    _expected_file = (
        "train_neg_clip.tsv or valid_neg_clip.tsv with the columns title, filepath, neg_caption "
        "and neg_image (temp_data of github.com/mertyg/vision-language-models-are-bows, MIT)"
    )
    _columns: ClassVar = {
        "image_column": "filepath",
        "caption_column": "title",
        "negatives_column": "neg_caption",
        "meta_columns": ("filepath",),
    }

    def __init__(
        self,
        split: str = "train",
        *,
        annotations: str | Path,
        images: str | Path,
        exclude: str | Path | None = None,
        as_released: bool = False,
    ) -> None:
        self._as_released = as_released
        super().__init__(split, annotations=annotations, images=images, exclude=exclude)
        self.fingerprint += "" if as_released else "/rejoined"

    def _open(self, path: Path, quoting: bool) -> tables.Table:
        rows = self._delimited(path, "\t", quoting, ("title", "filepath", "neg_caption"))
        self.columns.hard_images_column = "neg_image" if "neg_image" in rows.columns() else None
        return rows

    def __getitem__(self, index: int) -> Record:
        record = super().__getitem__(index)
        for other in record.hard_images:
            if not self._is_row(other):
                raise DataError(
                    f"{self._table.name(int(record.id))}: 'neg_image' holds row numbers below "
                    f"{len(self._table):,}; got {other}"
                )
        negatives = record.negatives
        if not self._as_released:
            caption = str(record.captions[0])
            negatives = [[rejoined(text, caption) for text in texts] for texts in negatives]
        kinds = [["negclip"] * len(texts) for texts in negatives]
        return dataclasses.replace(record, negatives=negatives, negative_kinds=kinds)

    def find(self, record_id: str) -> Record:
        if self._is_row(record_id):
            index = int(np.searchsorted(self._index, int(record_id)))
            if index < len(self) and self._index[index] == int(record_id):
                return self[index]
        raise DataError(f"{self._table.path} has no row {record_id!r}, or it is excluded")

    def _is_row(self, record_id: str) -> bool:
        return record_id.isdecimal() and int(record_id) < len(self._table)

    # neg_image holds row numbers; rows of the file have no other id.
    def _record_id(self, row: dict[str, Any], row_index: int) -> str:
        return str(row_index)

    def _candidate_paths(self, image: str) -> list[Path]:
        return tail_paths(self._folder, image)
