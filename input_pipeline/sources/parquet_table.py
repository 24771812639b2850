"""Parquet files as a table: one file, or those of a folder, with or without images inside."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.input_pipeline.images import parquet_file
from vlc_jax.input_pipeline.record import DataError, PackedImage
from vlc_jax.input_pipeline.sources import tables
from vlc_jax.input_pipeline.sources.table_index import TableIndex
from vlc_jax.input_pipeline.stores import any_path

SUFFIX = ".parquet"
_JSON_TYPES = (str, int, float, list, dict, type(None))


class ParquetTable(tables.Table):
    """Rows of Parquet files, in the order of their names; a row reads its row group.

    In memory are the footers of the files and a few row groups, and no row. A cell of bytes, or of
    Hugging Face's {bytes, path}, is a PackedImage: its bytes are read with the picture. `packed`
    are the names of such columns. A cell of another type than JSON has, such as a date, is its
    text. `digest` is of the sizes and footers, which have place, size, lowest and highest value of
    every column of a row group. Raises ValueError for a folder without such files, DataError for
    damaged files, files of different columns, and a damaged row.
    """

    def __init__(self, path: any_path.AnyPath) -> None:
        self.path = path
        is_file = str(path).lower().endswith(SUFFIX)
        found = [path] if is_file else sorted(path.glob(f"*{SUFFIX}"))
        self._files = [file for file in found if is_file or not file.name.startswith(".")]
        if not self._files:
            raise ValueError(f"{path} holds no {SUFFIX} files")
        self._columns = parquet_file.names(self._files[0])
        for file in self._files:
            if parquet_file.names(file) != self._columns:
                raise DataError(f"{file} has other columns than {self._files[0]}")
        if len({*self._columns}) < len(self._columns):
            raise DataError(f"{path} has a column twice: {self._columns}; rename the others")
        self.packed = frozenset(parquet_file.image_columns(self._files[0]))
        self._texts = tuple(name for name in self._columns if name not in self.packed)
        self._ends = np.cumsum([0, *map(parquet_file.num_rows, self._files)])
        digests = [parquet_file.digest(file) for file in self._files]
        joined = hashlib.sha256(" ".join(digests).encode()).hexdigest()
        self.digest = digests[0] if is_file else joined
        # the files of a folder change without a trace in it: their digest is in the name
        if is_file or isinstance(path, Path):
            self.index = TableIndex(path, f"parquet {self.digest}", is_hashed=False)
        self._file = None

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> dict[str, Any]:
        file, row = self._locate(index)
        return self._row(file, row, parquet_file.row(file, self._texts, row))

    def rows(self) -> Iterator[dict[str, Any] | None]:
        for file in self._files:
            row = 0
            for part in parquet_file.batches(file, self._texts):
                for cells in part:
                    try:
                        yield None if cells is None else self._row(file, row, cells)
                    except DataError:
                        yield None
                    row += 1

    def name(self, index: int) -> str:
        file, row = self._locate(index)
        return f"row {row + 1} of {file}"

    def columns(self, num_rows: int = 100) -> list[str]:
        return list(self._columns)

    def _locate(self, index: int) -> tuple[any_path.AnyPath, int]:
        number = int(np.searchsorted(self._ends, index, side="right")) - 1
        if not 0 <= number < len(self._files):
            raise IndexError(f"row {index} of {len(self)}")
        return self._files[number], index - int(self._ends[number])

    def _row(self, file: any_path.AnyPath, row: int, cells: dict[str, Any]) -> dict[str, Any]:
        packed = {name: PackedImage(file, row, name) for name in self.packed}
        try:
            values = {name: parquet_file.decoded(value) for name, value in cells.items()}
        except ValueError as error:
            raise DataError(f"row {row + 1} of {file} is not UTF-8: {error}") from error
        texts = {
            name: value if isinstance(value, _JSON_TYPES) else str(value)
            for name, value in values.items()
        }
        return {name: (texts | packed)[name] for name in self._columns}
