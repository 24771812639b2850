"""Bindings of a part of training captions, and the sum of all parts, for `vlc-jax bindings`."""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from vlc_jax.input_pipeline.commands import parts
from vlc_jax.input_pipeline.hard_texts import bindings
from vlc_jax.input_pipeline.hard_texts.llm import captions as caption_files
from vlc_jax.input_pipeline.record import Conversation
from vlc_jax.input_pipeline.sources import shards

# bytes of parts that are merged at a time
_AT_ONCE = 1 << 28
_MOST_RANGES = 512  # a file each


class Captions(Protocol):
    """Lists of captions, one per row. Pickles to workers. digest: of their content."""

    digest: str

    def __len__(self) -> int: ...
    def __getitem__(self, row: int) -> Sequence[str]: ...


class _OfFolder:
    def __init__(self, path: Path) -> None:
        self._source = shards.ShardsSource(path=path)
        self.digest = self._source.fingerprint

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, row: int) -> list[str]:
        captions = self._source[row].captions
        return [text for text in captions if not isinstance(text, Conversation)]


class _OfFile:
    def __init__(self, rows: caption_files.Rows) -> None:
        self._rows, self.digest = rows, rows.digest

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> list[str]:
        return self._rows[row][1]


def open_captions(path: Path, column: str) -> Captions:
    """Captions of a prepared folder, a table or a file of lines.

    Raises ValueError for a missing file or column, DataError for unreadable content.
    """
    if (path / shards.MANIFEST).is_file():
        return _OfFolder(path)
    if not path.exists():
        raise ValueError(f"there is no {path}; name a prepared folder or a table of captions")
    return _OfFile(caption_files.open_rows(path, column))


@dataclasses.dataclass(frozen=True)
class Count:
    """Bindings of some rows, as a function of `parts.Parts`: the number of captions, then `count`'s
    array, little endian."""

    captions: Captions
    tagger: str

    def __call__(self, rows: range) -> bytes:
        texts = [text for row in rows for text in self.captions[row]]
        counts = bindings.count(texts, self._tagger)
        return np.array([len(texts), *counts.ravel()], "<i8").tobytes()

    @functools.cached_property
    def _tagger(self) -> Any:
        return bindings.make_tagger(self.tagger)


def read_part(content: bytes) -> tuple[int, np.ndarray]:
    """Number of captions and counts of a part."""
    values = np.frombuffer(content, "<i8")
    return int(values[0]), values[1:].reshape(2, -1)


def merge(contents: Iterable[bytes], size: int, folder: Path, out: Path) -> int:
    """Writes the sum of all parts to the file `out`; returns the number of captions.

    size: of all parts, in bytes. The hashes are divided into ranges, each of which is merged in
    memory, so that this holds a quarter of a gigabyte of a file of any size. Ranges are files in
    `folder` before.
    """
    num_ranges = min(max(1, -(-size // _AT_ONCE)), _MOST_RANGES)
    # hashes are uniform
    starts = np.linspace(-(2.0**63), 2.0**63, num_ranges + 1)[1:-1].astype(np.int64)
    paths = [folder / f"range-{number}{parts.PARTIAL}" for number in range(num_ranges)]
    for path in paths:
        path.write_bytes(b"")
    captions = 0
    for content in contents:
        number, counts = read_part(content)
        captions += number
        edges = [0, *np.searchsorted(counts[0], starts).tolist(), counts.shape[1]]
        for path, first, last in zip(paths, edges[:-1], edges[1:], strict=True):
            with path.open("ab") as file:
                file.write(np.ascontiguousarray(counts[:, first:last].T).tobytes())
    lengths = []
    for path in paths:
        counts = bindings.merged([np.fromfile(path, "<i8").reshape(-1, 2).T])
        path.write_bytes(counts.tobytes())
        lengths.append(counts.shape[1])
    whole = np.lib.format.open_memmap(out, "w+", "<i8", (2, sum(lengths)))
    first = 0
    for path, length in zip(paths, lengths, strict=True):
        whole[:, first : first + length] = np.fromfile(path, "<i8").reshape(2, length)
        first += length
        path.unlink()
    whole.flush()
    return captions
