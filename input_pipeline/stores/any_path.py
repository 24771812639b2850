"""Files on a disk or in an object store, where they are: read in parts, written whole.

`AnyPath` is a Path or, for an address such as gs://bucket/00000.tar, a StorePath, which has the
methods of a Path that are needed here. Unlike `fetch.local` nothing is copied: a worker of a
cluster reads the bytes of its records alone.
"""

import dataclasses
import errno
import fnmatch
import functools
import io
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from vlc_jax.input_pipeline import stores

# bytes; a gap between two parts that is read with them costs less than a second request
_GAP = 1 << 16
# bytes that one request of a file's reader gets from a store
_BLOCK = 1 << 20
_LARGEST = 1 << 28  # bytes of a JSON file; one of skipped records may have millions
# objects whose sizes are looked up one by one, and not in a listing
_FEW = 8


@dataclasses.dataclass(frozen=True, order=True)
class StorePath:
    """An object, or a folder of objects, in an object store; its methods are those of a Path.

    An object that is written appears whole. Methods raise OSError if the store fails.
    """

    address: str

    def __str__(self) -> str:
        return self.address

    def __truediv__(self, name: str) -> "StorePath":
        return StorePath(f"{self.address}/{name}")

    @property
    def name(self) -> str:
        return PurePosixPath(self.address).name

    @property
    def stem(self) -> str:
        return PurePosixPath(self.address).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.address).suffix

    @property
    def parent(self) -> "StorePath":
        return StorePath(self.address.rpartition("/")[0])

    def with_suffix(self, suffix: str) -> "StorePath":
        return self.parent / f"{self.stem}{suffix}"

    def absolute(self) -> "StorePath":
        return self

    def exists(self) -> bool:
        """False for a folder."""
        return self._folder.stat(self.name) is not None

    is_file = exists

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Nothing: a store has no folders without objects."""

    def iterdir(self) -> Iterator["StorePath"]:
        """The objects directly in this folder, sorted by name."""
        names = sorted(name for name in _opened(self.address).list() if "/" not in name)
        return (self / name for name in names)

    def glob(self, pattern: str) -> Iterator["StorePath"]:
        prefix = pattern.partition("*")[0]
        names = sorted(name for name in _opened(self.address).list(prefix) if "/" not in name)
        return (self / name for name in fnmatch.filter(names, pattern))

    def sizes(self, names: Iterable[str]) -> dict[str, int]:
        """Sizes in bytes of those of the objects in this folder that exist."""
        names = [*names]
        if len(names) > _FEW:
            objects = _opened(self.address).list()
            return {name: objects[name].size for name in names if name in objects}
        known = {name: _opened(self.address).stat(name) for name in names}
        return {name: entry.size for name, entry in known.items() if entry is not None}

    def open(self, mode: str = "rb") -> BinaryIO:
        """The object, to be read from any position."""
        assert mode == "rb"
        return io.BufferedReader(_Reader(self, self.stamp().size), _BLOCK)

    def stamp(self) -> stores.Object:
        """Its size in bytes, and a text that changes with the content."""
        if (entry := self._folder.stat(self.name)) is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such object", str(self))
        return entry

    def read_bytes(self) -> bytes:
        return self._folder.read(self.name)

    def read_text(self, encoding: str) -> str:
        return self.read_bytes().decode(encoding)

    def read_parts(self, offsets_sizes: Sequence[int]) -> list[bytes]:
        """The bytes at (offset, size, offset, size, ...); parts side by side are one request."""
        spans = list(zip(offsets_sizes[::2], offsets_sizes[1::2], strict=True))
        used = [span for span in spans if span[1]]
        if not used:
            return [b"" for _ in spans]
        first, stop = min(used)[0], max(offset + size for offset, size in used)
        if stop - first > sum(size for _, size in used) + _GAP * len(used):
            return [self.between(offset, offset + size) if size else b"" for offset, size in spans]
        data = self.between(first, stop)
        return [data[offset - first :][:size] if size else b"" for offset, size in spans]

    def between(self, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop`."""
        return self._folder.read(self.name, start, stop)

    def write_bytes(self, data: bytes) -> None:
        self._folder.write(self.name, data)

    def touch(self) -> None:
        self.write_bytes(b"")

    def unlink(self, missing_ok: bool = False) -> None:
        self._folder.remove(self.name)

    def upload(self, path: Path) -> None:
        """Writes the object from a file."""
        self._folder.upload(path, self.name)

    def download(self, path: Path) -> None:
        self._folder.download(self.name, path)

    @property
    def _folder(self) -> stores.Folder:
        return _opened(self.address.rpartition("/")[0])


class _Reader(io.RawIOBase):
    """Reads an object by ranges."""

    def __init__(self, path: StorePath, size: int) -> None:
        self._path, self._size, self._position = path, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        stop = min(self._position + len(buffer), self._size)
        if stop <= self._position:
            return 0
        data = self._path.between(self._position, stop)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


AnyPath = Path | StorePath


def of(path: str | os.PathLike[str]) -> AnyPath:
    """A Path, or a StorePath for an address. Raises ValueError for one of the hub, whose files are
    copied."""
    if not stores.is_url(path):
        return Path(path)
    address = str(path).rstrip("/")
    _opened(address)
    return StorePath(address)


def read(path: AnyPath, offsets_sizes: Sequence[int]) -> list[bytes]:
    """The bytes at (offset, size, offset, size, ...). Raises OSError."""
    if isinstance(path, StorePath):
        return path.read_parts(offsets_sizes)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return [
            os.pread(descriptor, size, offset)
            for offset, size in zip(offsets_sizes[::2], offsets_sizes[1::2], strict=True)
        ]
    finally:
        os.close(descriptor)


@contextmanager
def drafts(targets: Sequence[AnyPath], end: str = ".partial") -> Iterator[list[Path]]:
    """Files on this machine to be `put` at their targets; removed at the end.

    end: of their names, which are beside those of targets on a disk; a unique one if several
    processes write them.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [
            target.with_name(f"{target.name}{end}")
            if isinstance(target, Path)
            else Path(folder) / target.name
            for target in targets
        ]
        try:
            yield paths
        finally:
            for path in paths:
                path.unlink(missing_ok=True)


def put(draft: Path, path: AnyPath) -> None:
    """Gives a file on this machine its path, at once; on a disk by a rename. Raises OSError."""
    if isinstance(path, StorePath):
        path.upload(draft)
    else:
        os.replace(draft, path)


def opened(path: AnyPath) -> BinaryIO:
    """The file, to be read from any position. Raises OSError unless it is a regular one."""
    return path.open("rb") if isinstance(path, StorePath) else stores.open_regular(path)


def read_json(path: AnyPath) -> Any:
    """The value in a JSON file. Raises OSError for one that is missing, large or no regular file,
    ValueError for any other content, or one that is nested deeply."""
    data = path.read_bytes() if isinstance(path, StorePath) else stores.read_file(path, _LARGEST)
    return stores.parse_json(data)


def write_json(path: AnyPath, document: Any, end: str = ".partial", **options: Any) -> None:
    """Writes a JSON file at once. end: see `stores.replacing`.   options: of json.dumps."""
    if isinstance(path, StorePath):
        path.write_bytes(json.dumps(document, **options).encode())
        return
    with stores.replacing(path, end) as file:
        json.dump(document, file, **options)


# making one looks up credentials
@functools.lru_cache(64)
def _opened(url: str) -> stores.Folder:
    return stores.folder(url)
