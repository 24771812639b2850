"""GGUF, the file format of llama.cpp: metadata, and names and places of arrays.

Little-endian, version 2 or 3 (ggml-org/ggml, docs/gguf.md):

    "GGUF", version, number of arrays, number of metadata
    metadata: key, type, value
    arrays: name, number of axes, axes from the innermost, type, offset
    padding to a multiple of general.alignment, then the arrays
"""

import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_STRING, _ARRAY = 8, 9
_SCALARS = dict(zip((*range(8), 10, 11, 12), "BbHhIif?Qqd", strict=True))  # type -> struct's letter
_MAX_ITEMS = 10_000_000  # of a list, or of arrays; vocabularies have at most 260,000
_MAX_AXES = 4  # of ggml


class Stored(NamedTuple):
    """An array in a file. shape: outermost axis first.   kind: number of ggml's type.

    offset: of its first byte in the file.
    """

    shape: tuple[int, ...]
    kind: int
    offset: int


class Header(NamedTuple):
    """metadata: key -> number, text, list of texts, or numpy array.   arrays: by name."""

    metadata: dict[str, Any]
    arrays: dict[str, Stored]


def read_header(path: str | Path) -> Header:
    """The header of a file. Raises ValueError for a missing, damaged or other file."""
    path = Path(path)
    if not path.is_file():  # opening a pipe would wait for its writer
        raise ValueError(f"no file {path}")
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise ValueError("it does not start with GGUF")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return _Reader(content).header()
    except (OSError, ValueError, OverflowError) as error:
        raise ValueError(f"{path} is damaged, or no GGUF: {error}") from error


class _Reader:
    """Reads values one after the other."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content, self._at = content, 4

    def header(self) -> Header:
        if (version := self._scalar("I")) not in (2, 3):
            raise ValueError(f"its version is {version:#x}; 2 and 3 are known, little-endian")
        count, keys = self._count(), self._count()
        metadata: dict[str, Any] = {}
        for _ in range(keys):
            key = self._string()
            metadata[key] = self._value(self._scalar("I"))
        arrays: dict[str, Stored] = {}
        for _ in range(count):
            name = self._string()
            if (axes := self._scalar("I")) > _MAX_AXES or name in arrays:
                raise ValueError(f"array {name[:50]!r} appears twice, or has {axes} axes")
            shape = tuple(self._scalar("Q") for _ in range(axes))[::-1]
            arrays[name] = Stored(shape, self._scalar("I"), self._scalar("Q"))
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"general.alignment is {alignment!r}")
        start = -(-self._at // alignment) * alignment
        places = {k: x._replace(offset=start + x.offset) for k, x in arrays.items()}
        return Header(metadata, places)

    def _take(self, size: int) -> bytes:
        """The next bytes; a length in the file is checked before memory is taken."""
        if size > len(self._content) - self._at:
            raise ValueError(f"it ends within {size} bytes at {self._at}")
        self._at += size
        return self._content[self._at - size : self._at]

    def _scalar(self, letter: str) -> Any:
        return struct.unpack(f"<{letter}", self._take(struct.calcsize(f"<{letter}")))[0]

    def _count(self) -> int:
        if (count := self._scalar("Q")) > _MAX_ITEMS:
            raise ValueError(f"a list has at most {_MAX_ITEMS:,} items; got {count:,}")
        return count

    def _string(self) -> str:
        return self._take(self._scalar("Q")).decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind in _SCALARS:
            return self._scalar(_SCALARS[kind])
        if kind != _ARRAY:
            raise ValueError(f"type {kind} of a value is unknown")
        kind, count = self._scalar("I"), self._count()
        if kind == _STRING:
            return [self._string() for _ in range(count)]
        if kind not in _SCALARS:
            raise ValueError(f"type {kind} of a list's items is unknown")
        dtype = np.dtype(_SCALARS[kind]).newbyteorder("<")
        return np.frombuffer(self._take(count * dtype.itemsize), dtype)
