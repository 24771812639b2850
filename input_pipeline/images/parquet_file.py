"""Parquet files by row groups: the footer is read once, then the groups of the rows in use.

A ParquetFile is not thread-safe, and several threads read records: one of them reads at a time.
"""

import errno
import functools
import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.input_pipeline.record import DataError, PackedImage, ReadableFile

# bytes of the texts of a file or row group; the largest published have some megabytes
MAX_BYTES = 2**30
_ROWS = 4_096  # unpacked at a time
# bytes per row of a column whose first cells are looked at: texts or images
_MAX_TEXT, _LOOKED_AT = 10_000, 64
_END = 8  # bytes: the length of the footer, and "PAR1"
_reading = threading.RLock()


def names(file: ReadableFile) -> list[str]:
    """Names of the columns. Raises DataError for a file that is not Parquet."""
    return list(_open(file).schema_arrow.names)


def metadata(file: ReadableFile) -> dict[bytes, bytes]:
    """Metadata of the schema; {} without. Raises DataError for a file that is not Parquet."""
    return dict(_open(file).schema_arrow.metadata or {})


def image_columns(file: ReadableFile) -> list[str]:
    """Columns of bytes, or of structures and lists with them, whose first cells are no texts."""
    fields = _open(file).schema_arrow
    return [field.name for field in fields if _has_bytes(field.type) and not _is_text(file, field)]


def decoded(cell: Any) -> Any:
    """Texts for bytes in UTF-8, also of a list. Raises ValueError for others."""
    if isinstance(cell, list):
        return [decoded(each) for each in cell]
    # zeros fill a cell of fixed size
    return cell.rstrip(b"\0").decode() if isinstance(cell, bytes) else cell


def num_rows(file: ReadableFile) -> int:
    """Number of rows. Raises DataError for a file that is not Parquet."""
    return _open(file).metadata.num_rows


def digest(file: ReadableFile) -> str:
    """sha256 of the size and the footer, which has place, size, lowest and highest value of every
    column of a row group; the rows are not read."""
    with file.open("rb") as opened:
        size = opened.seek(0, os.SEEK_END)
        opened.seek(max(0, size - _END))
        length = int.from_bytes(opened.read(_END)[:4], "little")
        opened.seek(max(0, size - _END - length))
        return hashlib.sha256(f"{size} ".encode() + opened.read(length)).hexdigest()


def row(file: ReadableFile, columns: tuple[str, ...], number: int) -> dict[str, Any]:
    """Cells of a row. Raises DataError for a row that is missing or damaged."""
    with _reading:
        group, in_group = _locate(file, number)
        table = _group(file, columns, group)
        try:
            return {name: table.column(name)[in_group].as_py() for name in columns}
        # fewer rows than the footer says; text that is not UTF-8
        except (IndexError, ValueError) as error:
            raise DataError(f"row {number} of {file}: {_line(error)}") from error


def image_bytes(image: PackedImage) -> bytes:
    """Encoded bytes of an image, as Hugging Face packs data sets. Raises DataError if the cell has
    none. Groups of a column of images are large: a few of them are kept."""
    with _reading:
        group, in_group = _locate(image.file, image.row)
        cells = _images(image.file, image.column, group)
    try:
        value = cells[in_group].as_py()
    except (IndexError, ValueError) as error:
        raise DataError(f"row {image.row} of {image.file}: {_line(error)}") from error
    if image.item is not None:
        is_there = isinstance(value, list) and image.item < len(value)
        value = value[image.item] if is_there else None
    data = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(data, bytes):
        raise DataError(
            f"row {image.row} of {image.file} has no image bytes in column {image.column!r}; "
            f"got {value!r:.80}"
        )
    return data


def read_rows(file: ReadableFile, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """All rows of a file, only the named columns if any are named.

    Raises DataError for a missing column and for a damaged file.
    """
    rows: list[dict[str, Any]] = []
    unpacked = 0
    with _damage(file):
        for part in _parts(file, columns or names(file)):
            unpacked += part.nbytes
            _check_size(file, unpacked)
            rows += part.to_pylist()
    return rows


def batches(file: ReadableFile, columns: Sequence[str]) -> Iterator[list[dict[str, Any] | None]]:
    """All rows in order, some thousand at a time; None for one whose text is damaged.

    Raises DataError for a missing column and for a damaged file.
    """
    with _damage(file):
        for part in _parts(file, columns):
            _check_size(file, part.nbytes)
            try:
                yield part.to_pylist()
            except ValueError:
                yield [_row_of(part, index) for index in range(part.num_rows)]


def _parts(file: ReadableFile, columns: Sequence[str], **groups: list[int]) -> Iterator[Any]:
    known = names(file)
    for column in columns:
        if column not in known:
            raise DataError(f"{file} has no column {column!r}; it has {known}")
    # in parts: 1 KB of Parquet can repeat a text a billion times
    parts = _open(file).iter_batches(_ROWS, columns=list(columns), **groups)
    while True:
        with _reading:
            part = next(parts, None)
        if part is None:
            return
        yield part


def _check_size(file: ReadableFile, unpacked: int) -> None:
    if unpacked > MAX_BYTES:
        raise DataError(f"{file} unpacks to more than {MAX_BYTES:,} bytes of annotations")


@contextmanager
def _damage(file: ReadableFile) -> Iterator[None]:
    import pyarrow

    try:
        yield
    # ValueError: texts and names that are not UTF-8
    except (pyarrow.ArrowException, OSError, ValueError, IndexError) as error:
        _raise_of_store(file, error)
        raise DataError(f"{file} is damaged: {_line(error)}") from error


def _raise_of_store(file: ReadableFile, error: Exception) -> None:
    """Raises an error of an object store again: a record is not bad because its store is away."""
    if not isinstance(file, Path) and getattr(error, "errno", None) == errno.EIO:
        raise error


def _line(error: Exception) -> str:
    """The message in one line, without control characters, which a damaged file puts into it."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(error))
    return " ".join(text.split())[:300]


def _row_of(part: Any, index: int) -> dict[str, Any] | None:
    try:
        return part.slice(index, 1).to_pylist()[0]
    except ValueError:
        return None


def _has_bytes(kind: Any) -> bool:
    children = (kind.field(number) for number in range(kind.num_fields))
    return "binary" in str(kind).partition("<")[0] or any(_has_bytes(c.type) for c in children)


def _is_text(file: ReadableFile, field: Any) -> bool:
    """True for a column of bytes, or of lists of bytes, that begins with texts in UTF-8 without the
    mark, as Impala and old Spark write them."""
    if not _open(file).num_row_groups or "struct" in str(field.type):
        return False
    group = _open(file).metadata.row_group(0)
    columns = map(group.column, range(group.num_columns))
    column = next(each for each in columns if each.path_in_schema.split(".")[0] == field.name)
    # images are larger, and slow to read
    if not group.num_rows or column.total_uncompressed_size > _MAX_TEXT * group.num_rows:
        return False
    try:
        cells = next(_parts(file, [field.name], row_groups=[0])).column(0).drop_null()
        texts = str([decoded(cell) for cell in cells[:_LOOKED_AT].to_pylist()])
    # a damaged file is named when its rows are read
    except (ValueError, OSError, StopIteration):
        return False
    return texts != "[]" and "\\x00" not in texts


# workers of training read all files of a data set in turn
@functools.lru_cache(maxsize=64)
def _open(file: ReadableFile) -> Any:
    # here, because its import is slow
    import pyarrow
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(file if isinstance(file, Path) else file.open("rb"))
    except FileNotFoundError:
        raise DataError(f"{file} does not exist") from None
    # ValueError: names that are not UTF-8
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        _raise_of_store(file, error)
        raise DataError(f"{file} is no Parquet file: {_line(error)}") from error


@functools.lru_cache(maxsize=1024)
def _ends(file: ReadableFile) -> np.ndarray:
    """Index of the row behind the last one of each group, int64 (groups,)."""
    footer = _open(file).metadata
    rows = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
    return np.cumsum(np.array(rows, np.int64))


def _locate(file: ReadableFile, number: int) -> tuple[int, int]:
    """Row group of a row, and the row's index in the group."""
    ends = _ends(file)
    group = int(np.searchsorted(ends, number, side="right"))
    if group == len(ends):
        raise DataError(f"{file} has {num_rows(file):,} rows; there is no row {number:,}")
    return group, number - (int(ends[group - 1]) if group else 0)


# neighbouring rows share a group; a few groups fit in memory
@functools.lru_cache(maxsize=4)
def _images(file: ReadableFile, column: str, group: int) -> Any:
    import pyarrow

    try:
        return _open(file).read_row_group(group, columns=[column]).column(0)
    except (pyarrow.ArrowException, OSError, IndexError) as error:
        _raise_of_store(file, error)
        raise DataError(f"{file} has no images in column {column!r}: {_line(error)}") from error


@functools.lru_cache(maxsize=4)
def _group(file: ReadableFile, columns: tuple[str, ...], group: int) -> Any:
    import pyarrow

    parts, unpacked = [], 0
    with _damage(file):
        for part in _parts(file, columns, row_groups=[group]):
            unpacked += part.nbytes
            _check_size(file, unpacked)
            parts.append(part)
        return pyarrow.Table.from_batches(parts)
