"""Records from a table of image names and captions and a folder of images."""

import collections
import difflib
import functools
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.input_pipeline.record import Caption, DataError, Record, check_text, read_caption
from vlc_jax.input_pipeline.sources import (
    cells,
    id_index,
    image_files,
    image_identity,
    json_annotations,
    row_keys,
    tables,
)
from vlc_jax.input_pipeline.sources import holdout as holdouts

# images, spread over the source, that are looked up before a run starts
_CHECKED_IMAGES = 100


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
HELD_OUT = ("validation", "val", "test")  # names of the rows of a holdout


class RecordsSource:
    """Source of your own data: a record per row of a table, or per image of COCO captions.

    path: the table: JSONL, TSV, CSV or JSON, by the suffix of its name (`sources/tables.py`).
    image_folder: where relative image names start; default: the folder of the table. The table is
      your own: its names may be absolute, or lead out of the folder with "..".
    image_column: the image's file name.
    caption_column: the caption, or a JSON list of captions of the image; several columns may be
      named. COCO captions JSON has the columns id, image and caption (all captions of an image).
    id_column: unique names of the records; default: image name and row number.
    negatives_column, positives_column: hard negative / positive captions: a list of strings (for
      every caption) or one list per caption; in CSV and TSV a JSON or Python list literal.
    negative_kinds_column, positive_kinds_column: the generator of each text, by which training
      selects it: one name for all, or lists of the same shape.
    hard_images_column: a list of record ids. group_column: any value to split results by.
    meta_columns: columns that are copied to the record's `meta`.
    split_column: the column of split names; only rows of `split` are taken, and "train+restval"
      takes both.
    holdout: without a split column, this share of the images (by a hash of their names: see
      `sources/holdout.py`) is left out of `split="train"` and is "validation" (or "val", "test").
      split="all" takes every row.
    exclude: a text file of images, one per line, whose rows are left out
      (`sources/image_identity.py`; `vlc-jax leaks` writes one).
    quoting: whether quotation marks in CSV and TSV group a field.

    `digests` maps the path of every file read to its sha256, `image_sizes` the names of some image
    files, spread over the source, to their size in bytes. Raises ValueError for missing files,
    folders, columns and splits, DataError for unusable data.
    """

    _kind = "records"  # prefix of fingerprints
    _folder_option = "image_folder"
    # True if a single text or id must be a list, too
    _only_lists = False
    _split_advice = (
        "select its rows with split_column='...' or holdout=0.05, or name another file "
        "and split='all'"
    )

    def __init__(
        self,
        split: str = "train",
        *,
        path: str | Path,
        image_folder: str | Path | None = None,
        image_column: str = "image",
        caption_column: str | Sequence[str] = "caption",
        id_column: str | None = None,
        negatives_column: str | None = None,
        positives_column: str | None = None,
        negative_kinds_column: str | None = None,
        positive_kinds_column: str | None = None,
        hard_images_column: str | None = None,
        group_column: str | None = None,
        meta_columns: Sequence[str] = (),
        split_column: str | None = None,
        holdout: float = 0.0,
        exclude: str | Path | None = None,
        quoting: bool = True,
    ) -> None:
        if not str(path):
            raise ValueError("this source needs `path`, the table of image names and captions")
        if not 0 <= holdout < 1:
            raise ValueError(f"holdout is a share in [0, 1); got {holdout}")
        self._split, self._split_column, self._holdout = split, split_column, holdout
        self._has_holdout = holdout > 0 and split_column is None
        self._image = image_column
        self._captions = [caption_column] if isinstance(caption_column, str) else [*caption_column]
        self._id = id_column
        self._negatives, self._positives = negatives_column, positives_column
        self._negative_kinds, self._positive_kinds = negative_kinds_column, positive_kinds_column
        self._hard_images, self._group = hard_images_column, group_column
        self._meta = [meta_columns] if isinstance(meta_columns, str) else [*meta_columns]
        self._folder = Path(path).parent if image_folder is None else Path(image_folder)
        # subclasses that open further files add theirs
        self.digests: dict[str, str] = {}
        self._table = self._open(Path(path), quoting)
        self.digests[str(path)] = self._table.digest
        excluded: frozenset[str] = frozenset()
        if exclude:
            excluded = image_identity.read_image_list(Path(exclude))
            self.digests[str(exclude)] = tables.sha256(Path(exclude))
        if not self._folder.is_dir():
            raise ValueError(f"no image folder {self._folder}; set {self._folder_option}")
        self._check_columns()
        self._index = self._select(excluded)
        self.fingerprint = self._fingerprint()
        self.image_sizes = image_files.sizes(
            self._checked_images(), self._candidate_paths, self._folder_option
        )

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, index: int) -> Record:
        """Raises DataError, naming the row, for a row that does not make a record."""
        row_index = int(self._index[index])
        row, name = self._table[row_index], self._table.name(row_index)
        captions = self._read_captions(row, name)
        cell = cells.Cells(row, name, self._only_lists)
        count = len(captions)
        negatives, negative_kinds = cell.hard_texts(self._negatives, self._negative_kinds, count)
        positives, positive_kinds = cell.hard_texts(self._positives, self._positive_kinds, count)
        return Record(
            id=self._record_id(row, row_index),
            image=self._locate(self._image_name(row, name)) if self._has_image(row) else None,
            captions=captions,
            negatives=negatives,
            positives=positives,
            negative_kinds=negative_kinds,
            positive_kinds=positive_kinds,
            hard_images=[str(other) for other in cell.as_list(self._hard_images)],
            group=None if self._group is None else row.get(self._group),
            meta={column: row.get(column) for column in self._meta},
        )

    def find(self, record_id: str) -> Record:
        """Raises DataError if there is no such record, or if it cannot be read."""
        for index in self._id_index[record_id]:
            record = self[index]
            if record.id == record_id:
                return record
        raise DataError(f"{self._table.path} has no record {record_id!r} in split {self._split!r}")

    @functools.cached_property
    def _id_index(self) -> id_index.IdIndex:
        # Built at the first lookup, which reads every row once.
        (keys,) = row_keys.read(self._table, self._texts("id")).values()
        return id_index.IdIndex(keys[self._index])

    def _open(self, path: Path, quoting: bool) -> tables.Table:
        """Opens the table and sets the columns that depend on the file."""
        rows = tables.open_table(path, quoting)
        if self._id is None and isinstance(rows, tables.MemoryTable):
            self._id = "id" if "id" in rows.columns() else None
        return rows

    def _candidate_paths(self, image: str) -> list[Path]:
        """Possible paths of a named image, the likeliest first."""
        return [self._folder / image]

    def _locate(self, image: str) -> Path:
        """The first candidate path that exists; the likeliest if none does."""
        # No stat of a single candidate: opening it reports a missing file, and storage may be slow.
        first, *others = self._candidate_paths(image)
        if not others or os.path.exists(first):
            return first
        # os.path: Path.exists raises for paths that are too long
        return next((path for path in others if os.path.exists(path)), first)

    def _read_captions(self, row: dict[str, Any], name: str) -> list[Caption]:
        captions: list[str] = []
        for column in self._captions:
            if column not in row:
                raise DataError(f"{name} has no {column!r}; it has {list(row)}")
            value = row[column]
            if value is None:
                raise DataError(f"{name}: its {column!r} is null, or an empty cell")
            captions += value if isinstance(value, list) else [value]
        if not all(isinstance(caption, str) for caption in captions):
            raise DataError(f"{name}: a caption is text; got {captions}")
        return [read_caption(caption) for caption in captions]

    def _has_image(self, row: dict[str, Any]) -> bool:
        """False for the row of a text-only record."""
        del row
        return True

    def _image_name(self, row: dict[str, Any], name: str) -> str:
        image = row.get(self._image)
        if not isinstance(image, str) or not image.strip() or "\0" in image:
            raise DataError(f"{name}: {self._image!r} is the name of a file; got {image!r}")
        if "://" in image:
            raise DataError(f"{name}: {image} is a URL; download the images first")
        return image

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

    def _check_columns(self) -> None:
        known = self._table.columns()
        named = {"image_column": [self._image], "caption_column": self._captions}
        for option in (
            "id",
            "negatives",
            "positives",
            "negative_kinds",
            "positive_kinds",
            "hard_images",
            "group",
            "split_column",
        ):
            column = getattr(self, f"_{option}")
            named[option if option == "split_column" else f"{option}_column"] = [column]
        named["meta_columns"] = self._meta
        for option, columns in named.items():
            for column in columns:
                if column is not None and column not in known:
                    usual = [name for name in USUAL_NAMES.get(option, ()) if name in known]
                    near = usual or difflib.get_close_matches(column, known, 1, cutoff=0.5)
                    hint = f"; did you mean {option}={near[0]!r}?" if near else ""
                    if len(known) == 1 and ";" in known[0]:
                        hint = "; columns of a .csv are separated by commas, not by ';'"
                    raise ValueError(
                        f"{self._table.path} has no column {column!r} ({option}); "
                        f"columns: {known}{hint}"
                    )

    def _select(self, excluded: frozenset[str]) -> np.ndarray:
        """Indices of the rows of the split, int64 (records,). Checks that ids are unique."""
        everything = self._split == "all"
        if not (everything or self._split == "train" or self._split_column or self._has_holdout):
            raise ValueError(f"split {self._split!r} of {self._table.path}: {self._split_advice}")
        chosen = np.ones(len(self._table), bool)
        is_held_out = self._split in HELD_OUT or self._split in ("train", "all")
        if self._has_holdout and not is_held_out:
            raise ValueError(
                f"split {self._split!r} of {self._table.path}: a holdout makes 'train' and "
                f"{HELD_OUT[0]!r} (or {', '.join(map(repr, HELD_OUT[1:]))}, the same rows); 'all' "
                "takes every row"
            )
        by_split = not everything and (self._split_column is not None or self._has_holdout)
        # Keys need a pass over all rows: only if the choice of rows depends on their content.
        key_names = ["split" if self._split_column is not None else "image"] if by_split else []
        key_names += ["identity"] if excluded else []
        key_names += ["id"] if self._id is not None or (key_names and self._hard_images) else []
        texts = self._texts(*key_names)
        keys = dict(zip(key_names, row_keys.read(self._table, texts).values(), strict=True))
        if by_split:
            chosen = self._belongs(keys[key_names[0]])
        left_out = 0
        if excluded:
            is_excluded = chosen & np.isin(keys["identity"], row_keys.hashes([*excluded]))
            chosen &= ~is_excluded
            left_out = int(is_excluded.sum())
        if left_out and not chosen.any():
            raise ValueError(f"{self._table.path}: `exclude` leaves no row of {self._split!r}")
        if by_split:
            self._check_split(chosen, keys[key_names[0]])
        if self._id is not None:
            self._check_unique(keys["id"], chosen)
        json_annotations.mention(self._table.path, left_out, len(self._table), "rows are excluded")
        return np.flatnonzero(chosen)

    def _identity(self, row: dict[str, Any]) -> str:
        return image_identity.image_identity(str(row.get(self._image)))

    def images_per_split(self) -> dict[str, int]:
        """Numbers of different images, by the split column or the holdout."""
        (keys,) = row_keys.read(self._table, self._texts("image")).values()
        if self._split_column is None:
            held = holdouts.held_out(keys, self._holdout) & self._has_holdout
            splits = np.where(held, HELD_OUT[0], "train")
        else:
            splits = np.array(
                [str((row or {}).get(self._split_column)) for row in self._table.rows()]
            )
        readable = keys != row_keys.UNREADABLE
        names = np.unique(splits[readable])
        return {str(s): len(np.unique(keys[readable & (splits == s)])) for s in names}

    def _texts(self, *key_names: str) -> dict[str, row_keys.Text]:
        """Functions row -> text to hash, by cache keys that name everything the text depends on."""
        image, split = self._image, self._split_column
        texts: dict[str, tuple[str, row_keys.Text]] = {
            "image": (f"{image!r}", lambda row, _: str(row.get(image))),
            "split": (f"{split!r}", lambda row, _: str(row.get(split))),
            "identity": (f"{self._kind} {image!r}", lambda row, _: self._identity(row)),
            "id": (f"{self._kind} {image!r} {self._id!r}", self._record_id),
        }
        return {f"{name} {texts[name][0]}": texts[name][1] for name in key_names}

    def _belongs(self, keys: np.ndarray) -> np.ndarray:
        """Mask of the rows of the split, by the keys of their images or of the split's column."""
        if self._split_column is not None:
            chosen = np.isin(keys, row_keys.hashes([self._split, *self._split.split("+")]))
        else:
            # By image, not by row: all captions of an image are on the same side.
            chosen = holdouts.held_out(keys, self._holdout) != (self._split == "train")
        # An unreadable row stays with the training rows, which count it as a bad record.
        chosen[keys == row_keys.UNREADABLE] = "train" in self._split.split("+")
        return chosen

    def _check_split(self, chosen: np.ndarray, keys: np.ndarray) -> None:
        # A split may itself be named "a+b"; otherwise "a+b" means two splits.
        is_one = row_keys.contains(keys, self._split)
        parts = [self._split] if is_one else self._split.split("+")
        is_divided = self._split_column is not None and (keys != row_keys.UNREADABLE).any()
        if chosen.any() and (not is_divided or all(row_keys.contains(keys, p) for p in parts)):
            return
        rows = filter(None, self._table.rows()) if is_divided else ()
        splits = collections.Counter(str(row.get(self._split_column)) for row in rows)
        counts = ", ".join(f"{name} ({count:,})" for name, count in splits.items())
        absent = "+".join(p for p in self._split.split("+") if p not in splits) or self._split
        raise ValueError(
            f"{self._table.path} has no row of split {absent!r}"
            + (f"; splits: {counts}; 'all' takes every row" if splits else "")
        )

    def _check_unique(self, keys: np.ndarray, chosen: np.ndarray) -> None:
        rows = np.flatnonzero(chosen & (keys != row_keys.UNREADABLE))
        index = row_keys.first_repeated(keys, rows)
        if index is not None:
            record_id = self._table[index][self._id]
            raise DataError(
                f"{self._table.name(index)}: the id {record_id!r} occurs twice; ids must be "
                "unique: choose another id_column or leave it out"
            )

    def _fingerprint(self, *further: Any) -> str:
        """further: options of a subclass that determine its records."""
        options = [
            self._image, self._captions, self._id, self._negatives, self._positives,
            self._hard_images, self._group, self._meta, self._split, self._split_column,
            self._holdout, self._negative_kinds, self._positive_kinds, *further,
        ]  # fmt: skip
        if self._has_holdout and holdouts.is_exact(len(self._table)):
            # runs from before the exact rule held out other rows
            options.append("exact")
        text = f"{sorted(self.digests.values())} {json.dumps(options)}"
        return f"{self._kind}/{hashlib.sha256(text.encode()).hexdigest()[:32]}"

    def _checked_images(self) -> Iterator[str | DataError | None]:
        """Names of images spread over the source; None for text-only, an error for damaged rows."""
        for row_index in self._index[:: max(1, len(self) // _CHECKED_IMAGES)]:
            try:
                row, name = self._table[int(row_index)], self._table.name(int(row_index))
                yield self._image_name(row, name) if self._has_image(row) else None
            except DataError as error:
                yield error
