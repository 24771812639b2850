"""Random-access tables on disk: JSONL, CSV and TSV files, JSON lists, COCO captions JSON.

Only the position of each row is kept in memory (16 bytes a row), so that a table of millions of
rows is cheap to hold and quick to pickle to a worker process; a row is parsed when it is asked for.
"""

import csv
import hashlib
import io
import json
import os
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from input_pipeline.record import DataError
from input_pipeline.sources import json_annotations

FORMATS = (".csv", ".json", ".jsonl", ".ndjson", ".tsv")
_CHUNK = 1 << 24  # bytes read at a time while looking for line ends
_BOM = b"\xef\xbb\xbf"  # Excel and some Windows editors begin UTF-8 files with it


class Table:
    """Random-access table: `table[i]` is row i as a dict. Raises DataError for a damaged row.

    `digest` is the sha256 of the file. Parsing is left to the subclasses' `parse`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.digest = sha256(path)
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
        except (ValueError, RecursionError, csv.Error) as error:
            raise DataError(f"{self.name(index)} cannot be read: {error}") from error

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
        if self._file is None:
            descriptor = os.open(self.path, os.O_RDONLY)
            self._file = descriptor
            weakref.finalize(self, os.close, descriptor)
        start = int(self._start[index])
        return os.pread(self._file, int(self._stop[index]) - start, start)  # safe among threads

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_file": None}  # a descriptor means nothing in another process


class JsonLinesTable(Table):
    """One JSON object per line; blank lines do not count."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        ends = _line_ends(path)
        starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
        self._start, self._stop = starts, ends
        short = np.flatnonzero(ends - starts < 8)  # candidates for nothing but white space
        blank = [index for index in short if not self._bytes(index).strip()]
        self._start, self._stop = np.delete(starts, blank), np.delete(ends, blank)

    def parse(self, line: bytes) -> dict[str, Any]:
        row = json.loads(line.removeprefix(_BOM).decode("utf-8"))
        if not isinstance(row, dict):
            raise ValueError(f"a row is a JSON object; got {type(row).__name__}")
        return row


class DelimitedTable(Table):
    """CSV (commas) or TSV (tabs) with a header row; quoted fields may hold line breaks.

    With `quoting` off a quotation mark is an ordinary character (files that do not escape them).
    `header` names the columns of a file without a header row.
    """

    def __init__(
        self, path: Path, delimiter: str, quoting: bool, header: Sequence[str] | None = None
    ) -> None:
        super().__init__(path)
        self._delimiter = delimiter
        self._quoting = csv.QUOTE_MINIMAL if quoting else csv.QUOTE_NONE
        with path.open("rb") as file:
            spans = self._spans(_CountedLines(file))
        self._start, self._stop = spans[:, 0], spans[:, 1]
        if header is not None or not len(spans):
            self._header = list(header or [])
            return
        try:
            self._header = self._fields(self._bytes(0).removeprefix(_BOM))
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"the header of {path} cannot be read: {error}") from error
        self._start, self._stop = spans[1:, 0], spans[1:, 1]

    def _spans(self, lines: "_CountedLines") -> np.ndarray:
        """int64 (rows, 2): first byte of each row, the header's included, and the byte after it."""
        spans: list[tuple[int, int]] = []
        reader = self._reader(lines)
        while True:
            start = lines.position
            try:
                fields = next(reader)
            except StopIteration:
                return np.array(spans, np.int64).reshape(-1, 2)
            except (csv.Error, UnicodeDecodeError):
                fields = ["damaged"]  # keeps its index; reading it raises
            if fields:  # a blank line has none
                spans.append((start, lines.position))

    def parse(self, line: bytes) -> dict[str, Any]:
        fields = self._fields(line)
        if len(fields) != len(self._header):
            raise ValueError(
                f"{len(fields)} fields where the header has {len(self._header)}; a quotation mark "
                "or a separator inside a field?"
            )
        return dict(zip(self._header, fields, strict=True))

    def columns(self, num_rows: int = 100) -> list[str]:
        return list(self._header)

    def _fields(self, line: bytes) -> list[str]:
        return next(self._reader(io.StringIO(line.decode("utf-8"), newline="")))

    def _reader(self, lines) -> Iterator[list[str]]:
        # strict: text behind a closing quotation mark is an error and not a guess.
        return csv.reader(lines, delimiter=self._delimiter, quoting=self._quoting, strict=True)


class MemoryTable(Table):
    """Table of rows from one document, kept as JSON text in memory.

    `numbers` are their positions in the document where some of its entries are left out.
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
    """Several tables, one after the other; `path` and `digest` are those of the first."""

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
        """Row number, counted on from table to table, so that no two rows have the same."""
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


def open_table(path: Path, quoting: bool = True) -> Table:
    """Opens a table, whose format is the suffix of its name.

    Raises ValueError for a missing file or an unknown suffix, DataError for one without rows.
    """
    if not path.is_file():
        raise ValueError(f"no file {path}" + (" (it is a folder)" if path.is_dir() else ""))
    suffix = path.suffix.lower()
    if suffix in (".jsonl", ".ndjson"):
        rows: Table = JsonLinesTable(path)
    elif suffix in (".csv", ".tsv"):
        rows = DelimitedTable(path, "\t" if suffix == ".tsv" else ",", quoting)
    elif suffix == ".json":
        rows = MemoryTable(path, _json_rows(path))
    else:
        raise ValueError(f"{path}: the name of a table ends with one of {', '.join(FORMATS)}")
    if not len(rows):
        raise DataError(f"{path} holds no rows")
    return rows


def _json_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a JSON file: a list of objects as it is, COCO captions as id, image, caption."""
    document = json_annotations.load(path)
    if isinstance(document, list) and all(isinstance(row, dict) for row in document):
        return document
    if not json_annotations.is_coco_captions(document):
        raise DataError(
            f"{path} is {json_annotations.describe(document)}; expected a list of objects or COCO "
            "captions (images, annotations)"
        )
    return json_annotations.coco_rows(path, document)


class _CountedLines:
    """Iterator over the lines of a binary file as text, with the position after the last one."""

    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file
        self.position = 0

    def __iter__(self) -> "_CountedLines":
        return self

    def __next__(self) -> str:
        line = next(self._file)
        self.position += len(line)
        return line.decode("utf-8")


def _line_ends(path: Path) -> np.ndarray:
    """Positions after each line's end, int64 (lines,); the last line may lack an end."""
    ends, position = [], 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            ends.append(np.flatnonzero(np.frombuffer(chunk, np.uint8) == ord("\n")) + position + 1)
            position += len(chunk)
    last = [] if ends and len(ends[-1]) and ends[-1][-1] == position else [position]
    return np.concatenate([*ends, last]).astype(np.int64)


def sha256(path: Path) -> str:
    """sha256 of a file's content in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
