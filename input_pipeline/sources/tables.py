"""Random-access tables on disk: JSONL, CSV and TSV files, JSON lists, COCO captions JSON, Parquet.

Only the position of each row is in memory (16 bytes a row), so that a table of millions of rows is
small and quick to pickle to a worker process; a row is parsed when it is read. An index caches the
positions (`sources/table_index.py`). Of a table in UTF-16 they are positions in a temporary copy in
UTF-8 (`text_file.open_utf8`).
"""

import codecs
import collections
import csv
import json
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import delimited, json_annotations
from vlc_jax.input_pipeline.sources.table_index import TableIndex, sha256
from vlc_jax.input_pipeline.stores import text_file
from vlc_jax.input_pipeline.stores.any_path import AnyPath, StorePath

FORMATS = (".csv", ".json", ".jsonl", ".ndjson", ".parquet", ".tsv")
# bytes read at a time while looking for line ends
_CHUNK = 1 << 24
# rows read at a time in a pass over all, and between two updates of the progress
_BLOCK = 1 << 12
# Excel and some Windows editors begin UTF-8 files with it
_BOM = codecs.BOM_UTF8
_DAMAGE = (ValueError, RecursionError, csv.Error)  # errors of a row that cannot be parsed


class Table:
    """Random-access table: `table[i]` is row i as a dict. Raises DataError for a damaged row.

    `digest` is the sha256 of the file. Subclasses implement `parse`. `index` caches arrays computed
    from all rows; None: no cache.
    """

    index: TableIndex | None = None
    # columns whose cells are images
    packed: frozenset[str] = frozenset()

    path: AnyPath

    def __init__(self, path: Path, index: TableIndex | None = None) -> None:
        self.path, self.index = path, index
        self.digest = sha256(path) if index is None else index.digest
        self._file: int | None = None

    _start: np.ndarray  # int64 (rows,): first byte of each row
    _stop: np.ndarray  # int64 (rows,): the byte after its last

    def __len__(self) -> int:
        return len(self._start)

    def __getitem__(self, index: int) -> dict[str, Any]:
        try:
            return self.parse(self._bytes(index))
        except UnicodeDecodeError as error:
            raise DataError(f"{self.name(index)} is not UTF-8: {error.reason}") from error
        except _DAMAGE as error:
            raise DataError(f"{self.name(index)} cannot be read: {error}") from error

    def rows(self) -> Iterator[dict[str, Any] | None]:
        """All rows in order, None for a damaged one; several times as fast as indexing."""
        for index in range(len(self)):
            try:
                yield self[index]
            except DataError:
                yield None

    def parse(self, line: bytes) -> dict[str, Any]:
        raise NotImplementedError

    def number(self, index: int) -> int:
        """Number of a row in the file, counted from 1 without the header."""
        return index + 1

    def name(self, index: int) -> str:
        """Name of a row in messages."""
        return f"row {self.number(index)} of {self.path}"

    def columns(self, num_rows: int = 100) -> list[str]:
        """Columns of the first rows, in order of appearance."""
        names: dict[str, None] = {}
        for index in range(min(num_rows, len(self))):
            try:
                names |= dict.fromkeys(self[index])
            except DataError:
                continue
        return list(names)

    def _bytes(self, index: int) -> bytes:
        start = int(self._start[index])
        return self._pread(start, int(self._stop[index]))

    def _pread(self, start: int, stop: int) -> bytes:
        return os.pread(self._descriptor(), stop - start, start)  # safe among threads

    def _descriptor(self) -> int:
        """Descriptor of the table in UTF-8, in whose bytes all positions are."""
        if self._file is None:
            with text_file.open_utf8(self.path) as file:
                descriptor = os.dup(file.fileno())
            self._file = descriptor
            weakref.finalize(self, os.close, descriptor)
        return self._file

    def _opened(self) -> BinaryIO:
        """The table in UTF-8, from its first byte."""
        file = open(self._descriptor(), "rb", closefd=False)  # noqa: SIM115
        file.seek(0)
        return file

    def _lines(self) -> Iterator[bytes]:
        """The bytes of every row in order, read in large blocks."""
        assert self.index is not None
        progress, first = self.index.progress, 0
        progress.begin()
        while first < len(self):
            origin = int(self._start[first])
            # a row may be longer
            last = int(np.searchsorted(self._stop, origin + _CHUNK))
            last = min(max(last, first + 1), first + _BLOCK, len(self))
            starts, stops = self._start[first:last].tolist(), self._stop[first:last].tolist()
            block = self._pread(origin, stops[-1])
            for start, stop in zip(starts, stops, strict=True):
                yield block[start - origin : stop - origin]
            first = last
            progress.show(first / len(self), first)
        progress.end()

    def _positions(self, find: Callable[[], np.ndarray]) -> np.ndarray:
        """First byte and end of each row, int64 (rows, 2), from the index or else from `find`."""
        assert self.index is not None
        if (stored := self.index.read("rows")) is not None:
            return stored["positions"]
        positions = find()
        self.index.write("rows", positions=positions)
        return positions

    def __getstate__(self) -> dict[str, Any]:
        # a descriptor means nothing in another process
        return self.__dict__ | {"_file": None}


class JsonLinesTable(Table):
    """One JSON object per line; blank lines do not count."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, TableIndex(path, "jsonl"))
        self._start, self._stop = self._positions(self._spans).T

    def _spans(self) -> np.ndarray:
        with self._opened() as file:
            ends = _line_ends(file)
        starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
        # candidates for nothing but white space
        short = np.flatnonzero(ends - starts < 8)
        blank = [i for i in short if not self._pread(int(starts[i]), int(ends[i])).strip()]
        return np.delete(np.stack([starts, ends], axis=1), blank, axis=0)

    def rows(self) -> Iterator[dict[str, Any] | None]:
        for line in self._lines():
            try:
                yield self.parse(line)
            except _DAMAGE:
                yield None

    def parse(self, line: bytes) -> dict[str, Any]:
        text = line.removeprefix(_BOM).decode("utf-8").strip()
        try:
            row = json_annotations.parse(text)
        except json.JSONDecodeError as error:
            if text.endswith("},"):
                raise ValueError(
                    "a comma behind the object, which JSON lines do not have"
                ) from error
            raise
        if isinstance(row, list):
            raise ValueError(
                "a row is one JSON object; got a list: the name of a list ends in .json"
            )
        if not isinstance(row, dict):
            raise ValueError(f"a row is one JSON object; got {type(row).__name__}")
        return row


class DelimitedTable(Table):
    """CSV (commas) or TSV (tabs) with a header row; quoted fields may hold line breaks.

    With `quoting` off a quotation mark is an ordinary character (files that do not escape them).
    `header` names the columns of a file without a header row. A quotation mark that is not closed
    in its row damages this row only: lines that are rows of their own are not taken into a field.
    """

    def __init__(
        self, path: Path, delimiter: str, quoting: bool, header: Sequence[str] | None = None
    ) -> None:
        quotes = "quotes" if quoting else "no quotes"
        named = "" if header is None else f" {list(header)}"
        super().__init__(path, TableIndex(path, f"{delimiter!r} {quotes}{named}"))
        self._delimiter = delimiter
        self._quoting = csv.QUOTE_MINIMAL if quoting else csv.QUOTE_NONE
        self._header = list(header or [])
        spans = self._positions(self._spans)
        self._start, self._stop = spans[:, 0], spans[:, 1]
        if header is not None or not len(spans):
            return
        try:
            self._header = self._fields(self._bytes(0))
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"the header of {path} cannot be read: {error}") from error
        # unnamed columns are nobody's
        for name, times in collections.Counter(filter(None, self._header)).items():
            if times > 1:
                raise DataError(
                    f"{path} has {times} columns {name!r}; names are unique: rename the others"
                )
        self._start, self._stop = spans[1:, 0], spans[1:, 1]

    def _spans(self) -> np.ndarray:
        """int64 (rows, 2): first byte of each row, the header's included, and the byte after it."""
        with self._opened() as file:
            return self._spans_of(delimited.CountedLines(file), os.fstat(file.fileno()).st_size)

    def _spans_of(self, lines: delimited.CountedLines, size: int) -> np.ndarray:
        assert self.index is not None
        spans: list[tuple[int, int]] = []
        reader, progress = self._reader(lines), self.index.progress
        columns = len(self._header)
        progress.begin()
        while True:
            start = lines.begin_row()
            try:
                fields = next(reader)
                is_torn = delimited.holds_rows(lines.row_lines, columns, self._delimiter)
            except StopIteration:
                progress.end()
                return np.array(spans, np.int64).reshape(-1, 2)
            except (csv.Error, UnicodeDecodeError):
                # it still counts as a row; reading it raises
                fields, is_torn = ["damaged"], True
            if is_torn:
                # an unclosed quotation mark would take the next rows with it
                lines.give_back()
            # a blank line has none
            if fields:
                columns = columns or len(fields)
                spans.append((start, lines.position))
                if not len(spans) % _BLOCK:
                    progress.show(lines.position / size, len(spans))

    def rows(self) -> Iterator[dict[str, Any] | None]:
        taken: list[bytes] = []

        def text(line: bytes) -> str:
            taken.append(line)
            return line.removeprefix(_BOM).decode()

        # map, unlike a generator, continues after a line that is not UTF-8
        reader = self._reader(map(text, self._lines()))
        while True:
            taken.clear()
            try:
                row = self._row(next(reader))
            except StopIteration:
                return
            except _DAMAGE:
                row = None
            # behind an unclosed quotation mark the reader went on into the next rows
            yield from [row] if len(taken) == 1 else map(self._parsed, taken)

    def _parsed(self, line: bytes) -> dict[str, Any] | None:
        try:
            return self.parse(line)
        except _DAMAGE:
            return None

    def parse(self, line: bytes) -> dict[str, Any]:
        return self._row(self._fields(line))

    def _row(self, fields: list[str]) -> dict[str, Any]:
        if len(fields) != len(self._header):
            raise ValueError(
                f"{len(fields)} fields where the header has {len(self._header)}; a quotation mark "
                "or a separator inside a field?"
            )
        return dict(zip(self._header, fields, strict=True))

    def columns(self, num_rows: int = 100) -> list[str]:
        return list(self._header)

    def _fields(self, line: bytes) -> list[str]:
        try:
            return next(self._reader([line.removeprefix(_BOM).decode("utf-8")]))
        except csv.Error as error:
            if not self._quoting == csv.QUOTE_MINIMAL or b'"' not in line:
                raise
            raise csv.Error(
                f"{error}; a quotation mark that is not closed in its field? With the option "
                "quoting=False quotation marks are ordinary characters"
            ) from error

    def _reader(self, lines: Iterable[str]) -> Iterator[list[str]]:
        # strict: text behind a closing quotation mark is an error and not a guess.
        return csv.reader(lines, delimiter=self._delimiter, quoting=self._quoting, strict=True)


class MemoryTable(Table):
    """Table of the rows of one document, as JSON text in memory.

    numbers: positions of the rows in the document, counted from 1, if it has other entries.
    """

    def __init__(
        self, path: Path, rows: list[dict[str, Any]], numbers: Sequence[int] | None = None
    ) -> None:
        super().__init__(path)
        self._numbers = None if numbers is None else np.array(numbers, np.int64)
        lines = [json.dumps(row).encode() for row in rows]
        self._stop = np.cumsum([len(line) for line in lines], dtype=np.int64)
        self._start = self._stop - np.array([len(line) for line in lines], np.int64)
        self._text = b"".join(lines)

    def parse(self, line: bytes) -> dict[str, Any]:
        return json.loads(line)

    def number(self, index: int) -> int:
        return index + 1 if self._numbers is None else int(self._numbers[index])

    def _bytes(self, index: int) -> bytes:
        return self._text[self._start[index] : self._stop[index]]


class JoinedTable(Table):
    """Several tables, one after the other, with `path` and `digest` of the first."""

    def __init__(self, parts: Sequence[Table]) -> None:
        self._parts = list(parts)
        self.path, self.digest = parts[0].path, parts[0].digest
        self._stops = np.cumsum([len(part) for part in parts])
        last = [part.number(len(part) - 1) for part in parts]
        self._numbers = np.cumsum([0, *last])

    def __len__(self) -> int:
        return int(self._stops[-1])

    def __getitem__(self, index: int) -> dict[str, Any]:
        part, row = self._part_and_row(index)
        return self._parts[part][row]

    def number(self, index: int) -> int:
        """Row number, continued from table to table, so that it is unique."""
        part, row = self._part_and_row(index)
        return int(self._numbers[part]) + self._parts[part].number(row)

    def name(self, index: int) -> str:
        part, row = self._part_and_row(index)
        return self._parts[part].name(row)

    def columns(self, num_rows: int = 100) -> list[str]:
        return list(dict.fromkeys(name for part in self._parts for name in part.columns(num_rows)))

    def _part_and_row(self, index: int) -> tuple[int, int]:
        part = int(np.searchsorted(self._stops, index, side="right"))
        return part, index - (int(self._stops[part - 1]) if part else 0)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__


def open_table(path: AnyPath, quoting: bool = True) -> Table:
    """Opens a table in the format of its suffix; a folder of Parquet files is one table.

    Raises ValueError for a missing file or an unknown suffix, DataError for a table without rows.
    """
    # here: it is a table
    from vlc_jax.input_pipeline.sources import parquet_table

    suffix = path.suffix.lower()
    if not path.is_file():
        if not any(path.glob(f"*{parquet_table.SUFFIX}")):
            is_folder = isinstance(path, Path) and path.is_dir()
            raise ValueError(f"no file {path}" + (" (it is a folder)" if is_folder else ""))
        suffix = parquet_table.SUFFIX
    if suffix == parquet_table.SUFFIX:
        rows: Table = parquet_table.ParquetTable(path)
    elif isinstance(path, StorePath):
        raise ValueError(f"{path}: of tables in an object store only Parquet is read there")
    elif suffix in (".jsonl", ".ndjson"):
        rows = JsonLinesTable(path)
    elif suffix in (".csv", ".tsv"):
        rows = DelimitedTable(path, delimited.separator(path), quoting)
    elif suffix == ".json":
        rows = MemoryTable(path, _json_rows(path))
    else:
        raise ValueError(f"{path}: the name of a table ends with one of {', '.join(FORMATS)}")
    if not len(rows):
        raise DataError(f"{path} holds no rows")
    return rows


def _json_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a JSON file: a list of objects unchanged, COCO captions as id, image, caption."""
    document = json_annotations.load(path)
    if isinstance(document, list) and all(isinstance(row, dict) for row in document):
        return document
    if not json_annotations.is_coco_captions(document):
        raise DataError(
            f"{path} is {json_annotations.describe(document)}; expected a list of objects or COCO "
            "captions (images, annotations)"
        )
    return json_annotations.coco_rows(path, document)


def _line_ends(file: BinaryIO) -> np.ndarray:
    """Positions after each line's end, int64 (lines,); the last line may lack an end."""
    ends, position = [], 0
    while chunk := file.read(_CHUNK):
        ends.append(np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")) + position + 1)
        position += len(chunk)
    last = [] if ends and len(ends[-1]) and ends[-1][-1] == position else [position]
    return np.concatenate([*ends, last]).astype(np.int64)
