"""Index of a table: arrays computed from all its rows, cached in files for the next opening."""

import contextlib
import hashlib
import json
import logging
import os
import time
import uuid
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.input_pipeline.stores.any_path import AnyPath, StorePath
from vlc_jax.input_pipeline.stores.progress import Progress

# of the files; raised when an array of the same name would hold something else
_VERSION = 2
# bytes; a smaller table is read in a fraction of a second
_SMALL = 1 << 22
# seconds; a file changed more recently may change again within one timestamp
_SETTLED = 2.0
# seconds after which no process is still writing a file
_ABANDONED = 3600.0
_CHUNK = 1 << 20  # bytes hashed at a time


class TableIndex:
    """Arrays of 64-bit integers computed from a table, by name, in files beside it.

    The folder is `.NAME.index` beside the table, or one in $XDG_CACHE_HOME (~/.cache) if that is
    not writable. The files contain the sha256 of the table, which is hashed again if its size,
    modification time or change time (which no program can set back) differs. Only a change under a
    clock that was set back can alter none of these and go unnoticed.

    digest: sha256 of the table.   progress: the progress line of reading the table.
    """

    def __init__(
        self, path: AnyPath, how: str, least: int | None = None, is_hashed: bool = True
    ) -> None:
        """how: everything on which the rows depend besides the bytes, such as the separator.

        least: bytes; a smaller table gets no files. None: _SMALL.   is_hashed: False for a file
        that is too large to be read whole: its size and times stand for the content, and `digest`.
        """
        self._path, self._how, self.progress = path, how, Progress(path)
        self._stamp, opened = _stamp(path), time.time()
        self._is_cached = self._stamp["size"] >= (_SMALL if least is None else least)
        # an object of a store is written once
        changed = max(self._stamp.get("mtime_ns", 0), self._stamp.get("ctime_ns", 0)) / 1e9
        self.digest: str
        if not is_hashed:
            self.digest = json.dumps(self._stamp)
            self._is_cached &= opened - changed > _SETTLED
            return
        stored = self._read_json("stamp") if self._is_cached else {}
        if stored.get("stamp") == self._stamp and isinstance(stored.get("sha256"), str):
            self.digest = stored["sha256"]
            return
        self.digest = sha256(path, self.progress)
        if self._is_cached and opened - changed > _SETTLED:
            self._write("stamp", [_line({"stamp": self._stamp, "sha256": self.digest})])

    def read(self, name: str, most: int) -> np.ndarray | None:
        """A stored array, int64 (values,); None if there is none for the table's content.

        most: largest possible number of values; a longer file is not ours.
        """
        for folder in self._folders() if self._is_cached else ():
            path = folder / self._file_name(name)
            with contextlib.suppress(OSError):
                if path.is_file() and path.stat().st_size <= 8 * most + len(self._how + name) + 999:
                    head, _, values = path.read_bytes().partition(b"\n")
                    if head + b"\n" == _line(self._header(name, values)):
                        return np.frombuffer(values, "<i8")
        return None

    def write(self, name: str, values: np.ndarray) -> None:
        """Stores an array of 64-bit integers, unless the table changed since it was opened."""
        if self._is_cached and _stamp(self._path) == self._stamp:
            content = np.ascontiguousarray(values).view("<i8").tobytes()
            self._write(self._file_name(name), [_line(self._header(name, content)), content])

    def _header(self, name: str, content: bytes) -> dict[str, Any]:
        return {
            "version": _VERSION,
            "table": self.digest,
            "name": f"{self._how} {name}",
            "bytes": len(content),
            "crc32": zlib.crc32(content),
        }

    def _file_name(self, name: str) -> str:
        return hashlib.blake2b(f"{self._how} {name}".encode(), digest_size=8).hexdigest()

    def _folders(self) -> Iterator[Path]:
        if is_path := isinstance(self._path, Path):
            yield self._path.parent / f".{self._path.name}.index"
        # the user has no home
        with contextlib.suppress(RuntimeError):
            cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
            path = str(os.path.realpath(self._path) if is_path else self._path).encode()
            path_hash = hashlib.blake2b(path, digest_size=8).hexdigest()
            yield Path(cache) / "vlc_jax" / "tables" / f"{self._path.name}-{path_hash}"

    def _read_json(self, name: str) -> Mapping[str, Any]:
        for folder in self._folders():
            with contextlib.suppress(OSError, ValueError, RecursionError):
                path = folder / name
                if path.is_file() and path.stat().st_size < 10_000:
                    document = json.loads(path.read_bytes())
                    if isinstance(document, dict) and document.get("stamp") == self._stamp:
                        return document
        return {}

    def _write(self, name: str, parts: list[bytes]) -> None:
        """Writes a file atomically into the first writable folder."""
        errors = []
        for folder in self._folders():
            # a unique name: two processes may write at once
            partial = folder / f"{name}.{uuid.uuid4().hex}.writing"
            try:
                folder.mkdir(parents=True, exist_ok=True)
                _remove_leftovers(folder)
                with partial.open("xb") as file:
                    file.writelines(parts)
                os.replace(partial, folder / name)
                return
            except OSError as error:
                errors.append(str(error))
                with contextlib.suppress(OSError):
                    partial.unlink()
        logging.getLogger(__name__).warning(
            "%s is read whole at every start, since its index cannot be kept: %s",
            self._path,
            "; ".join(errors),
        )


def sha256(path: AnyPath, progress: Progress | None = None) -> str:
    """sha256 of a file's content in hexadecimal digits."""
    progress = progress or Progress(path)
    digest = hashlib.sha256()
    progress.begin()
    with path.open("rb") as file:
        size = max(file.seek(0, os.SEEK_END), 1)
        file.seek(0)
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            progress.show(min(file.tell() / size, 1))
    progress.end()
    return digest.hexdigest()


def _stamp(path: AnyPath) -> dict[str, Any]:
    if isinstance(path, StorePath):
        return path.stamp()._asdict()
    status = path.stat()
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "ctime_ns": status.st_ctime_ns}


def _remove_leftovers(folder: Path) -> None:
    """Removes unfinished files of killed processes."""
    for path in folder.glob("*.writing"):
        # another process may remove it, too
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _ABANDONED:
                path.unlink()


def _line(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode() + b"\n"
