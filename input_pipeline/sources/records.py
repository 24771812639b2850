"""Records from a table of image names and captions and a folder of images."""

import collections
import functools
import hashlib
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.record import DataError, Record
from vlc_jax.input_pipeline.sources import holdout as holdouts
from vlc_jax.input_pipeline.sources import (
    id_index,
    image_files,
    image_identity,
    joined_rows,
    json_annotations,
    row_keys,
    row_records,
    tables,
)
from vlc_jax.input_pipeline.stores import any_path
from vlc_jax.input_pipeline.stores.any_path import AnyPath, StorePath

# images, spread over the source, that are looked up before a run starts
_CHECKED_IMAGES = 100
HELD_OUT = ("validation", "val", "test")  # names of the rows of a holdout


class RecordsSource(row_records.RowRecords):
    """Source of your own data: a record per image of a table, or of COCO captions.

    path: the table: JSONL, TSV, CSV, JSON or Parquet, by the suffix of its name
      (`sources/tables.py`), or a folder of Parquet files.
    image_folder: where relative image names start; default: the folder of the table. The table is
      your own: its names may be absolute, or lead out of the folder with "..".
    join_rows: whether the rows of one image are one record, with the captions and hard texts of all
      of them and the id of the first; else each row is a record.
    columns: fields of `row_records.Columns`, which names the columns.
    holdout: without a split column, this share of the images (by a hash of their names: see
      `sources/holdout.py`) is left out of `split="train"` and is "validation" (or "val", "test").
      split="all" takes every row.
    exclude: a text file of images, one per line, whose rows are left out
      (`sources/image_identity.py`; `vlc-jax leaks` writes one).
    quoting: whether quotation marks in CSV and TSV group a field.

    `digests` maps the path of every file read to its sha256, `image_sizes` the names of some image
    files, spread over the source, to their size in bytes. `rows` is the number of rows that the
    records are made of. Raises ValueError for missing files,
    folders, columns and splits, DataError for unusable data.
    """

    _kind = "records"  # prefix of fingerprints
    _folder_option = "image_folder (of finetune: images)"
    # False if every row of the file is a record by its definition
    _joins_rows = True
    _split_advice = (
        "select its rows with split_column='...' or holdout=0.05, or name another file "
        "and split='all'"
    )

    @lookup.options_of(row_records.Columns)
    def __init__(
        self,
        split: str = "train",
        *,
        path: str | Path,
        image_folder: str | Path | None = None,
        holdout: float = 0.0,
        exclude: str | Path | None = None,
        quoting: bool = True,
        join_rows: bool = True,
        **columns: Any,
    ) -> None:
        if not str(path):
            raise ValueError("this source needs `path`, the table of image names and captions")
        if not 0 <= holdout < 1:
            raise ValueError(f"holdout is a share in [0, 1); got {holdout}")
        self._split, self._holdout = split, holdout
        super().__init__(
            _folder(any_path.of(path)) if image_folder is None else Path(image_folder),
            row_records.Columns(**columns),
        )
        self._has_holdout = holdout > 0 and self.columns.split_column is None
        self.finds_more = self.columns.negative_image_column is not None
        # subclasses that open further files add theirs
        self.digests: dict[str, str] = {}
        self._table = self._open(any_path.of(path), quoting)
        if isinstance(self._table.path, StorePath) and not self._is_packed:
            raise ValueError(
                f"{path}: of a table in an object store images are read that are inside, as bytes; "
                f"the column {self.columns.image_column!r} has names"
            )
        self.digests[str(path)] = self._table.digest
        excluded: frozenset[str] = frozenset()
        if exclude:
            excluded = image_identity.read_image_list(Path(exclude))
            self.digests[str(exclude)] = tables.sha256(Path(exclude))
        if not self._folder.is_dir():
            raise ValueError(f"no image folder {self._folder}; set {self._folder_option}")
        self.columns.check(self._table)
        # rows of the records; position of each record's first row, None: each row is a record
        self._index: np.ndarray | range
        self._first: np.ndarray | None = None
        # whether rows spell the path of one image in several ways
        self._is_respelled = False
        is_joined = join_rows and self._joins_rows and not (self._is_packed or self.finds_more)
        self._select(excluded, is_joined)
        self.rows = len(self._index)
        self.fingerprint = self._fingerprint()
        self.image_sizes = image_files.sizes(
            self._checked_images(), self._candidate_paths, self._folder_option
        )

    def __len__(self) -> int:
        return len(self._index if self._first is None else self._first[1:])

    def __getitem__(self, index: int) -> Record:
        """Raises DataError, naming the row, for a row that does not make a record."""
        if self._first is None:
            return self._record(int(self._index[index]))
        if not -len(self) <= index < len(self):
            raise IndexError(f"record {index} of {len(self)}")
        first, stop = self._first[index % len(self) :][:2]
        rows = self._index[first:stop].tolist()
        fields = joined_rows.join([*map(self._fields, rows)], self._table.name(rows[0]))
        names = dict.fromkeys(map(self._first_id, fields["hard_images"]))
        names.pop(fields["id"], None)
        return Record(**fields | {"hard_images": [*names]})

    def find(self, record_id: str) -> Record:
        """The record of a row's id. Raises DataError if there is none, or if it cannot be read."""
        is_negative = self.finds_more and record_id.endswith(row_records.NEGATIVE)
        main = record_id.removesuffix(row_records.NEGATIVE) if is_negative else record_id
        position = self._position(main)
        if position is None:
            raise DataError(
                f"{self._table.path} has no record {record_id!r} in split {self._split!r}"
            )
        if is_negative:
            return self._record_of_negative(int(self._index[position]))
        return self[position]

    def _position(self, record_id: str) -> int | None:
        """Position of the record with a row of this id."""
        for position in self._id_index[record_id]:
            row_index = int(self._index[position])
            if self._record_id(self._table[row_index], row_index) == record_id:
                if self._first is None:
                    return position
                return int(np.searchsorted(self._first, position, side="right")) - 1
        return None

    def _first_id(self, record_id: str) -> str:
        """The id of the record with a row of this id; an unknown id unchanged."""
        position = self._position(record_id)
        if position is None:
            return record_id
        row_index = int(self._index[self._first[position]])
        return self._record_id(self._table[row_index], row_index)

    @functools.cached_property
    def _id_index(self) -> id_index.IdIndex:
        # Built at the first lookup, which reads every row once.
        (keys,) = row_keys.read(self._table, self._texts("id")).values()
        return id_index.IdIndex(keys[self._index])

    def _open(self, path: AnyPath, quoting: bool) -> tables.Table:
        """Opens the table and sets the columns that depend on the file."""
        rows = tables.open_table(path, quoting)
        if self.columns.id_column is None and isinstance(rows, tables.MemoryTable):
            self.columns.id_column = "id" if "id" in rows.columns() else None
        return rows

    def _select(self, excluded: frozenset[str], join_rows: bool) -> None:
        """Sets the indices of the rows of the split, int64 (rows,), those of a record side by side,
        and the positions of its first rows. Checks that ids are unique.
        """
        everything = self._split == "all"
        has_splits = self.columns.split_column is not None or self._has_holdout
        if not (everything or self._split == "train" or has_splits):
            raise ValueError(f"split {self._split!r} of {self._table.path}: {self._split_advice}")
        chosen = np.ones(len(self._table), bool)
        is_held_out = self._split in HELD_OUT or self._split in ("train", "all")
        if self._has_holdout and not is_held_out:
            raise ValueError(
                f"split {self._split!r} of {self._table.path}: a holdout makes 'train' and "
                f"{HELD_OUT[0]!r} (or {', '.join(map(repr, HELD_OUT[1:]))}, the same rows); 'all' "
                "takes every row"
            )
        by_split = not everything and has_splits
        # Keys need a pass over all rows: only if the choice of rows depends on their content.
        divides = "split" if self.columns.split_column is not None else "image"
        key_names = [divides] if by_split else []
        key_names += ["image"] if (join_rows or excluded) and "image" not in key_names else []
        key_names += ["identity"] if excluded else []
        has_ids = self.columns.id_column is not None
        key_names += ["id"] if has_ids or (key_names and self.columns.hard_images_column) else []
        check = functools.partial(joined_rows.check_images, self._table)
        checks = dict.fromkeys(self._texts("image") if join_rows else (), check)
        keys = self._keys(*key_names, checks=checks)
        if join_rows:
            check(keys["image"])  # spellings of one image count together
        if by_split:
            chosen = self._belongs(keys[divides])
            if join_rows:
                self._warn_of_shared(joined_rows.num_shared(keys["image"], chosen))
        left_out = 0
        if excluded:
            is_named = np.isin(keys["identity"], row_keys.hashes([*excluded]))
            is_excluded = chosen & np.isin(keys["image"], keys["image"][is_named])
            chosen &= ~is_excluded
            left_out = int(is_excluded.sum())
        if left_out and not chosen.any():
            raise ValueError(f"{self._table.path}: `exclude` leaves no row of {self._split!r}")
        if by_split:
            self._check_split(chosen, keys[divides])
        json_annotations.mention(self._table.path, left_out, len(self._table), "rows are excluded")
        # all rows need no list of them
        self._index = np.flatnonzero(chosen) if key_names else range(len(chosen))
        if join_rows:
            index, first = joined_rows.order(keys["image"], self._index)
            if len(first) <= len(index):
                self._index, self._first = index, first
                logging.getLogger(__name__).info(
                    "%s: %d rows of %s are %d records, one per image",
                    self._table.path, len(index), self._split, len(self),
                )  # fmt: skip
        if has_ids:
            self._check_unique(keys["id"])

    def _identity(self, row: dict[str, Any]) -> str:
        return image_identity.image_identity(str(row.get(self.columns.image_column)))

    def images_per_split(self) -> dict[str, int]:
        """Numbers of different images, by the split column or the holdout."""
        keys = self._keys("image")["image"]
        if self.columns.split_column is None:
            held = holdouts.held_out(keys, self._holdout) & self._has_holdout
            splits = np.where(held, HELD_OUT[0], "train")
        else:
            splits = np.array(
                [str((row or {}).get(self.columns.split_column)) for row in self._table.rows()]
            )
        readable = keys != row_keys.UNREADABLE
        names = np.unique(splits[readable])
        counts = {str(s): len(np.unique(keys[readable & (splits == s)])) for s in names}
        self._warn_of_shared(sum(counts.values()) - len(np.unique(keys[readable])))
        return counts

    def _warn_of_shared(self, images: int) -> None:
        if images:
            logging.getLogger(__name__).warning(
                "%s: %d images are in more than one split; were rows divided instead of images?",
                self._table.path, images,
            )  # fmt: skip

    def _keys(
        self, *key_names: str, checks: dict[str, row_keys.Check] | None = None
    ) -> dict[str, np.ndarray]:
        """Keys of all rows by name; rows of one image have one key, however they spell its path."""
        is_named = "image" in key_names and not self._is_packed
        names = [*key_names, "file"] if is_named else key_names
        read = row_keys.read(self._table, self._texts(*names), checks).values()
        keys = dict(zip(names, read, strict=True))
        if is_named:
            images = joined_rows.one_spelling(keys["image"], keys.pop("file"))
            self._is_respelled = bool((images != keys["image"]).any())
            keys["image"] = images
        return keys

    def _texts(self, *key_names: str) -> dict[str, row_keys.Text]:
        """Functions row -> text to hash, by cache keys that name everything the text depends on."""
        image, split = self.columns.image_column, self.columns.split_column
        folder = os.path.abspath(self._folder)
        file_key = image_files.FileKeys(folder, not holdouts.is_exact(len(self._table)))
        texts: dict[str, tuple[str, row_keys.Text]] = {
            "image": (f"{image!r}", lambda row, _: str(row.get(image))),
            "file": (f"{image!r} {folder}", lambda row, _: file_key(str(row.get(image)))),
            "split": (f"{split!r}", lambda row, _: str(row.get(split))),
            "identity": (f"{self._kind} {image!r}", lambda row, _: self._identity(row)),
            "id": (f"{self._kind} {image!r} {self.columns.id_column!r}", self._record_id),
        }
        return {f"{name} {texts[name][0]}": texts[name][1] for name in key_names}

    def _belongs(self, keys: np.ndarray) -> np.ndarray:
        """Mask of the rows of the split, by the keys of their images or of the split's column."""
        if self.columns.split_column is not None:
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
        is_divided = self.columns.split_column is not None and (keys != row_keys.UNREADABLE).any()
        if chosen.any() and (not is_divided or all(row_keys.contains(keys, p) for p in parts)):
            return
        rows = filter(None, self._table.rows()) if is_divided else ()
        splits = collections.Counter(str(row.get(self.columns.split_column)) for row in rows)
        counts = ", ".join(f"{name} ({count:,})" for name, count in splits.items())
        absent = "+".join(p for p in self._split.split("+") if p not in splits) or self._split
        raise ValueError(
            f"{self._table.path} has no row of split {absent!r}"
            + (f"; splits: {counts}; 'all' takes every row" if splits else "")
        )

    def _check_unique(self, keys: np.ndarray) -> None:
        rows = self._index
        if self._first is not None:
            rows = joined_rows.with_different_keys(keys, rows, self._first)
        index = row_keys.first_repeated(keys, rows[keys[rows] != row_keys.UNREADABLE])
        if index is not None:
            record_id = self._table[index][self.columns.id_column]
            raise DataError(
                f"{self._table.name(index)}: the id {record_id!r} occurs twice; ids must be "
                "unique: choose another id_column or leave it out"
            )

    @property
    def _is_packed(self) -> bool:
        return self.columns.image_column in self._table.packed

    def _fingerprint(self, *further: Any) -> str:
        """further: options of a subclass that determine its records."""
        columns = self.columns
        options = [
            columns.image_column, columns.caption_column, columns.id_column,
            columns.negatives_column, columns.positives_column, columns.hard_images_column,
            columns.group_column, columns.meta_columns, self._split, self.columns.split_column,
            self._holdout, columns.negative_kinds_column, columns.positive_kinds_column, *further,
        ]  # fmt: skip
        if self._has_holdout and holdouts.is_exact(len(self._table)):
            # in a larger table the hash of each row alone decides
            options.append("exact")
        if self._first is not None:
            # several rows are one record
            options.append("joined")
        if self._is_respelled:
            # several spellings are one image
            options.append("files")
        if self.columns.caption_weights:
            options.append(self.columns.caption_weights)
        if self.columns.negative_image_column:
            options.append(["negative_image", self.columns.negative_image_column])
        text = f"{sorted(self.digests.values())} {json.dumps(options)}"
        return f"{self._kind}/{hashlib.sha256(text.encode()).hexdigest()[:32]}"

    def image_paths(self, count: int) -> set[Path]:
        """Image files of about `count` rows spread over the source; none if the table holds the
        images."""
        names = self._checked_images(count)
        return {self._locate(name) for name in names if isinstance(name, str)}

    def _checked_images(self, count: int = _CHECKED_IMAGES) -> Iterator[str | DataError | None]:
        """Names of images spread over the source; None for text-only, an error for damaged rows."""
        for row_index in self._index[:: max(1, len(self._index) // count)]:
            try:
                row, name = self._table[int(row_index)], self._table.name(int(row_index))
                is_file = self._has_image(row) and not self._is_packed
                yield self._image_name(row, name) if is_file else None
            except DataError as error:
                yield error


def _folder(path: AnyPath) -> Path:
    """Folder in which image names of a table start; one in an object store has no such names."""
    if isinstance(path, StorePath):
        return Path()
    return path if path.is_dir() else path.parent
