"""Images inside Parquet files, as Hugging Face packs data sets."""

import functools
import threading
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.record import DataError, PackedImage

# of the texts of a file; the largest published have some megabytes
MAX_BYTES = 2**30
_ROWS = 4_096  # unpacked at a time
# ParquetFile is not thread-safe, and several threads decode images.
_reading = threading.Lock()


def read_packed(image: PackedImage) -> bytes:
    """Encoded bytes of an image. Raises DataError if the cell has none."""
    with _reading:
        group, group_row = _locate(image.file, image.row)
        column = _group(image.file, image.column, group)
    try:
        value = column[group_row].as_py()
    except (IndexError, ValueError) as error:  # fewer rows than said; text that is not UTF-8
        raise DataError(f"row {image.row} of {image.file}: {error}") from error
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


def read_rows(file: Path, columns: tuple[str, ...] | None = None) -> list[dict[str, Any]]:
    """Rows of a Parquet file, only the named columns if any are named.

    Raises DataError for a missing column and for a file that is not Parquet.
    """
    import pyarrow

    parquet = _open(file)
    try:
        names = parquet.schema_arrow.names
        for column in columns or ():
            if column not in names:
                raise DataError(f"{file} has no column {column!r}; it has {names}")
        rows: list[dict[str, Any]] = []
        unpacked = 0
        # in parts: 1 KB of Parquet can repeat a text a billion times
        for part in parquet.iter_batches(_ROWS, columns=list(columns or names)):
            unpacked += part.nbytes
            if unpacked > MAX_BYTES:
                raise DataError(f"{file} unpacks to more than {MAX_BYTES:,} bytes of annotations")
            rows += part.to_pylist()
        return rows
    # ValueError: texts and names that are not UTF-8
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{file} is damaged: {error}") from error


def columns(file: Path) -> list[str]:
    """Names of the columns. Raises DataError for a file that is not Parquet."""
    return list(_open(file).schema_arrow.names)


def metadata(file: Path) -> dict[bytes, bytes]:
    """Metadata of the schema; {} without. Raises DataError for a file that is not Parquet."""
    return dict(_open(file).schema_arrow.metadata or {})


@functools.lru_cache(maxsize=8)
def _open(file: Path) -> Any:
    # here, because its import is slow
    import pyarrow
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(file)
    except FileNotFoundError:
        raise DataError(f"{file} does not exist") from None
    # ValueError: names that are not UTF-8
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{file} is no Parquet file: {error}") from error


def _locate(file: Path, row: int) -> tuple[int, int]:
    """Row group of a row, and the row's index in the group."""
    metadata, left = _open(file).metadata, row
    for group in range(metadata.num_row_groups):
        if left < (rows := metadata.row_group(group).num_rows):
            return group, left
        left -= rows
    raise DataError(f"{file} has {metadata.num_rows:,} rows; there is no row {row:,}")


# neighbouring rows share a group; a few groups fit in memory
@functools.lru_cache(maxsize=4)
def _group(file: Path, column: str, group: int) -> Any:
    import pyarrow

    try:
        return _open(file).read_row_group(group, columns=[column]).column(0)
    except (pyarrow.ArrowException, OSError, IndexError) as error:
        raise DataError(f"{file} has no images in column {column!r}: {error}") from error
