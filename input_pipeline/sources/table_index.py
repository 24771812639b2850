"""Index of a table: arrays computed from all its rows, cached in files for the next opening."""

import hashlib
import json
import logging
import os
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.input_pipeline.stores import any_path, zips
from vlc_jax.input_pipeline.stores.any_path import AnyPath, StorePath
from vlc_jax.input_pipeline.stores.progress import Progress

# bytes; a smaller table is read in a fraction of a second
_SMALL = 1 << 22
# seconds; a file changed more recently may change again within one timestamp
_SETTLED = 2.0
_CHUNK = 1 << 20  # bytes hashed at a time


class TableIndex:
    """Arrays computed from a table, by name, in .npz files of a cache, a folder per table.

    The cache is below $XDG_CACHE_HOME (~/.cache). The files contain the sha256 of the table, which
    is hashed again if its size, modification time or change time (which no program can set back)
    differs. Only a change under a clock that was set back can alter none of these and go unnoticed.

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
        is_settled = opened - changed > _SETTLED
        stamp = json.dumps(self._stamp)
        if not is_hashed:
            self.digest = stamp
            self._is_cached &= is_settled
            return
        stored = self._load("stamp", stamp)
        self.digest = sha256(path, self.progress) if stored is None else str(stored["sha256"])
        if stored is None and is_settled and self._is_cached:
            self._save("stamp", stamp, sha256=np.array(self.digest))

    def read(self, name: str) -> dict[str, np.ndarray] | None:
        """Stored arrays; None if there are none for the table's content."""
        return self._load(f"{self._how} {name}", self.digest)

    def write(self, name: str, **arrays: np.ndarray) -> None:
        """Stores arrays, unless the table changed since it was opened."""
        if self._is_cached and _stamp(self._path) == self._stamp:
            self._save(f"{self._how} {name}", self.digest, **arrays)

    def _file(self, name: str) -> Path:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        is_path = isinstance(self._path, Path)
        place = _hash(str(os.path.realpath(self._path) if is_path else self._path))
        folder = Path(cache) / "vlc_jax" / "tables" / f"{self._path.name[:100]}-{place}"
        return folder / f"{_hash(name)}.npz"

    def _load(self, name: str, content: str) -> dict[str, np.ndarray] | None:
        if not self._is_cached:
            return None
        try:
            with self._file(name).open("rb") as file, np.load(file) as stored:
                arrays = dict(stored)
            return arrays if str(arrays.pop("of")) == f"{name} {content}" else None
        except zips.DAMAGE:
            return None

    def _save(self, name: str, content: str, **arrays: np.ndarray) -> None:
        try:
            file = self._file(name)
            file.parent.mkdir(parents=True, exist_ok=True)
            # a unique name: two processes may write at once
            with any_path.drafts([file], f".{uuid.uuid4().hex}.writing") as (draft,):
                with draft.open("xb") as opened:
                    np.savez(opened, of=np.array(f"{name} {content}"), **arrays)
                any_path.put(draft, file)
        # RuntimeError: the user has no home
        except (OSError, RuntimeError) as error:
            logging.getLogger(__name__).warning(
                "%s is read whole at every start, since its index cannot be kept: %s",
                self._path,
                error,
            )


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


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
