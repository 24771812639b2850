"""Files on a disk or in an object store that are read in parts, where they are.

A `Place` is a Path or, for an address such as gs://bucket/00000.tar, a StoredFile. Unlike
`fetch.local` nothing is copied: a worker of a cluster reads the bytes of its records alone.
"""

import dataclasses
import functools
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from vlc_jax.input_pipeline import stores

# bytes; a gap between two parts that is read with them costs less than a second request
_GAP = 1 << 16
# bytes that one request of a file's reader gets from a store
_BLOCK = 1 << 20


@dataclasses.dataclass(frozen=True)
class StoredFile:
    """A file, or a folder of files, in an object store; its names and `open` are those of a Path.

    Every method raises OSError if the store fails or has no such object.
    """

    address: str

    def __str__(self) -> str:
        return self.address

    @property
    def name(self) -> str:
        return PurePosixPath(self.address).name

    @property
    def stem(self) -> str:
        return PurePosixPath(self.address).stem

    def open(self, mode: str = "rb") -> BinaryIO:
        """The file, to be read from any position."""
        assert mode == "rb"
        return self._folder().open(self.name, _BLOCK)

    def stamp(self) -> stores.Object:
        """Its size in bytes, and a text that changes with the content."""
        if (entry := self._folder().stat(self.name)) is None:
            raise FileNotFoundError(f"there is no {self}")
        return entry

    def read(self, offsets_sizes: Sequence[int]) -> list[bytes]:
        """The bytes at (offset, size, offset, size, ...); parts side by side are one request."""
        spans = list(zip(offsets_sizes[::2], offsets_sizes[1::2], strict=True))
        used = [span for span in spans if span[1]]
        if not used:
            return [b"" for _ in spans]
        first, stop = min(used)[0], max(offset + size for offset, size in used)
        folder = self._folder()
        if stop - first > sum(size for _, size in used) + _GAP * len(used):
            return [
                folder.read(self.name, offset, offset + size) if size else b""
                for offset, size in spans
            ]
        data = folder.read(self.name, first, stop)
        return [data[offset - first :][:size] if size else b"" for offset, size in spans]

    def _folder(self) -> stores.Folder:
        return _opened(self.address.rpartition("/")[0])


Place = Path | StoredFile


def of(path: str | os.PathLike[str]) -> Place:
    """The place of a path. Raises ValueError for an address of the hub, whose files are copied."""
    if not stores.is_url(path):
        return Path(path)
    address = str(path).rstrip("/")
    _opened(address)
    return StoredFile(address)


def below(folder: Place, suffix: str) -> list[Place]:
    """Files directly in a folder whose names end with `suffix`, sorted by name; [] for no folder.

    Raises OSError if the store fails.
    """
    if isinstance(folder, Path):
        return [*sorted(folder.glob(f"*{suffix}"))]
    names = sorted(_opened(str(folder)).list())
    names = [name for name in names if name.endswith(suffix) and "/" not in name]
    return [StoredFile(f"{folder}/{name}") for name in names]


def read(place: Place, offsets_sizes: Sequence[int]) -> list[bytes]:
    """The bytes at (offset, size, offset, size, ...). Raises OSError."""
    if isinstance(place, StoredFile):
        return place.read(offsets_sizes)
    descriptor = os.open(place, os.O_RDONLY)
    try:
        return [
            os.pread(descriptor, size, offset)
            for offset, size in zip(offsets_sizes[::2], offsets_sizes[1::2], strict=True)
        ]
    finally:
        os.close(descriptor)


# making one looks up credentials
@functools.lru_cache(64)
def _opened(url: str) -> stores.Folder:
    return stores.folder(url)
