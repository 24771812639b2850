"""Cache of image or text features by key: in host memory, and in files for later runs."""

import collections
import json
import logging
import os
import tempfile
import time
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.errors import UsageError
from vlc_jax.run import workdir_files

FLUSH_SECONDS = 30.0  # interval of writes: a killed evaluation loses at most this much

Row = Any  # NamedTuple of arrays or None: the features of one image or text


class FeatureMemory:
    """In-memory cache: key -> features of one image or text.

    limit: in bytes, beyond which the least recently used are removed. None: no limit.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit, self._bytes = limit, 0
        self._rows = collections.OrderedDict[bytes, Row]()

    def get(self, key: bytes) -> Row | None:
        """The features; None for a key that is not in the cache."""
        if key in self._rows:
            self._rows.move_to_end(key)
        return self._rows.get(key)

    def put(self, key: bytes, row: Row) -> None:
        """Adds the features of a new key; the caller must not modify them afterwards."""
        self._rows[key] = row
        self._bytes += _bytes_of(row)
        while self._limit is not None and self._bytes > self._limit:
            self._bytes -= _bytes_of(self._rows.popitem(last=False)[1])

    def clear(self) -> None:
        """Removes all features."""
        self._rows.clear()
        self._bytes = 0


class FeatureFiles:
    """Pooled features in files <unique name>.npz of a folder, many rows each.

    Files are written atomically and never changed, so that several runs may share one folder. The
    zip CRC of their arrays is checked on reading; a damaged file is logged and removed, and its
    features are computed again.

    facts: all that the features depend on besides their keys, for people (facts.json).
    is_writer: whether this process may write and remove files.
    """

    def __init__(self, folder: Path, facts: Mapping[str, Any], is_writer: bool) -> None:
        self._folder, self._facts, self._is_writer = folder, facts, is_writer
        self._new: list[tuple[bytes, np.ndarray]] = []
        self._flushed = time.monotonic()

    def read(self) -> Iterator[tuple[bytes, np.ndarray]]:
        """Yields every key with its pooled features, a vector, in the order of the file names."""
        for path in sorted(self._folder.glob("*.npz")):
            try:
                with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
                    keys, pooled = file["keys"], file["pooled"]
                if keys.dtype != np.uint8 or keys.ndim != 2 or pooled.shape[:-1] != keys.shape[:1]:
                    raise ValueError("arrays of other shapes")
            except FileNotFoundError:  # removed by another process, as damaged
                continue
            except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
                logging.warning("%s is damaged (%s): its features are computed again", path, error)
                if self._is_writer:
                    path.unlink(missing_ok=True)
                continue
            yield from zip(map(bytes, keys), pooled, strict=True)

    def put(self, key: bytes, pooled: np.ndarray) -> None:
        """Buffers the features of a new key until `flush`."""
        if self._is_writer:
            self._new.append((key, pooled))

    def flush(self, *, is_due: bool = True) -> None:
        """Writes buffered features; is_due=False: only FLUSH_SECONDS after the last write."""
        if not self._new or not (is_due or time.monotonic() - self._flushed >= FLUSH_SECONDS):
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        facts_file = self._folder / "facts.json"
        if not facts_file.exists():
            workdir_files.replace(facts_file, json.dumps(self._facts, indent=1, default=str) + "\n")
        keys = np.stack([np.frombuffer(key, np.uint8) for key, _ in self._new])
        path = self._folder / f"{uuid.uuid4().hex}.npz"
        writing = path.with_suffix(".writing")
        try:
            with writing.open("xb") as file:
                np.savez(file, keys=keys, pooled=np.stack([pooled for _, pooled in self._new]))
                file.flush()
                os.fsync(file.fileno())  # before the rename: a power cut must not leave half a file
            writing.replace(path)
        finally:
            writing.unlink(missing_ok=True)  # left over if the disk is full
        self._new, self._flushed = [], time.monotonic()


def make_folder(path: Path) -> None:
    """Makes the folder of the files. Raises UsageError if it is not writable."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise UsageError(
            f"config.eval.cache: cannot write to {path}: {error.strerror}; name another folder"
        ) from error


def _bytes_of(row: Row) -> int:
    return sum(array.nbytes for array in row if array is not None)
