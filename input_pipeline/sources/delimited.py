"""Lines of CSV and TSV files: their separator, and rows that an unclosed quotation mark joins."""

import codecs
import collections
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.stores import text_file

SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "vertical bars"}
_SEP = re.compile(r"\"?sep=.?\"?[,;\t]*", re.IGNORECASE)
_IMAGE_NAME = re.compile(r"\.(jpe?g|png|webp|gif|bmp|tiff?)\"?\s*$", re.IGNORECASE)


def separator(path: Path) -> str:
    """The separator of a table's columns: the suffix's, or the only one that its header has."""
    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    header = text_file.first_line(path).rstrip()
    if _SEP.fullmatch(header):
        raise DataError(f"{path}: its first line, {header!r}, is for Excel: delete this line")
    _check_line_ends(path)
    others = [separator for separator in SEPARATORS if separator in header]
    if usual in others or len(others) != 1:
        return usual
    logging.getLogger(__name__).warning(
        "%s: columns of a %s are separated by %s; these are separated by %s and read so",
        path, path.suffix, SEPARATORS[usual], SEPARATORS[others[0]],
    )  # fmt: skip
    return others[0]


def _check_line_ends(path: Path) -> None:
    """Raises DataError for a file of old Macs, whose lines end with "\\r" alone."""
    with text_file.open_utf8(path) as file:
        start = file.read(1 << 16)
    if b"\r" in start and b"\n" not in start:
        raise DataError(
            f'{path}: its lines end with "\\r" alone, from line 1 on: save it with "\\n"'
        )


def holds_rows(lines: Sequence[bytes], columns: int, delimiter: str) -> bool:
    """True if lines behind the first of a row look like rows: as many fields, and of a table
    with commas, which a text may hold, an image's name in a column where the first has one.
    """
    if len(lines) < 2 or columns < 2:
        return False
    first, *others = (line.decode("utf-8", "replace").split(delimiter) for line in lines)
    named = [n for n, field in enumerate(first) if _IMAGE_NAME.search(field)]
    return any(
        len(other) == columns
        and (delimiter == "\t" or any(_IMAGE_NAME.search(other[n]) for n in named))
        for other in others
    )


class CountedLines:
    """Iterator over the lines of a binary file as text.

    position: after the last line.   row_lines: lines since `begin_row`, as bytes.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._waiting: collections.deque[bytes] = collections.deque()
        self.position = 0
        self.row_lines: list[bytes] = []

    def __iter__(self) -> "CountedLines":
        return self

    def __next__(self) -> str:
        line = self._waiting.popleft() if self._waiting else next(self._file)
        self.position += len(line)
        self.row_lines.append(line)
        return line.removeprefix(codecs.BOM_UTF8).decode("utf-8")

    def begin_row(self) -> int:
        """Position of the next line, which begins a row."""
        self.row_lines.clear()
        return self.position

    def give_back(self) -> None:
        """Makes all lines of the row but its first the next ones."""
        further = self.row_lines[1:]
        self._waiting.extendleft(reversed(further))
        self.position -= sum(map(len, further))
