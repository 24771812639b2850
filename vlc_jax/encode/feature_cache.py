"""Cache of image or text features by key: in host memory, and in files for later runs."""

import collections
import contextlib
import hashlib
import itertools
import json
import logging
import os
import shutil
import tempfile
import time
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from vlc_jax.devices import sharding
from vlc_jax.encode.interrupt import NEVER, Interrupt
from vlc_jax.errors import UsageError
from vlc_jax.models.parameters import fingerprint
from vlc_jax.run import workdir_files
from vlc_jax.types import ImageFeatures, TextFeatures

# To read and decode images, which releases the GIL.
THREADS = 8
# Bytes of host memory per tower for token features; pooled ones are small.
MEMORY = 2 * 2**30
# Interval of writes: a killed evaluation loses at most this much.
FLUSH_SECONDS = 30.0
# Bytes of files per tower in a workdir, which hold the features of an unfinished evaluation.
DISK = 4 * 2**30

Row = Any  # NamedTuple of arrays or None: the features of one image or text
# Items -> (indices of items, their features) of one batch after another, as `BatchEncoder.batches`.
Compute = Callable[[Sequence[Any]], Iterator[tuple[Sequence[int], Any]]]


class FeatureFiles:
    """Pooled features in files <unique name>.npz of a folder, many rows each.

    Files are written atomically and never changed, so that several runs may share one folder. The
    zip CRC of their arrays is checked on reading; a damaged file is logged and removed, and its
    features are computed again.

    facts: all that the features depend on besides their keys, for people (facts.json).
    is_writer: whether this process may write and remove files.
    limit: bytes of all files, beyond which the oldest are removed; None: no limit.
    """

    def __init__(
        self, folder: Path, facts: Mapping[str, Any], is_writer: bool, limit: int | None = None
    ) -> None:
        self._folder, self._facts, self._is_writer = folder, facts, is_writer
        self._limit = limit
        self._new: list[tuple[bytes, np.ndarray]] = []
        self._flushed = time.monotonic()

    def read(self) -> Iterator[tuple[bytes, np.ndarray]]:
        """Yields every key with its pooled features, a vector, in the order of the file names."""
        for path in filter(Path.is_file, sorted(self._folder.glob("*.npz"))):
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
        workdir_files.without_link(self._folder).mkdir(parents=True, exist_ok=True)
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
                # before the rename: a power cut must not leave half a file
                os.fsync(file.fileno())
            writing.replace(path)
        finally:
            # left over if the disk is full
            writing.unlink(missing_ok=True)
        self._new, self._flushed = [], time.monotonic()
        if self._limit is not None:
            self._evict(self._limit)

    def _evict(self, limit: int) -> None:
        """Removes the oldest files until all together have at most `limit` bytes."""
        files = sorted(self._folder.glob("*.npz"), key=lambda path: path.stat().st_mtime_ns)
        total = sum(path.stat().st_size for path in files)
        for path in files:
            if total <= limit:
                return
            total -= path.stat().st_size
            path.unlink()


class Kept(NamedTuple):
    """Place and life of a cache's files.

    folder: of the files; None: no files.
    is_writer: whether this process writes the files.
    is_lasting: whether the files outlive an evaluation. Otherwise they are of one set of
      parameters, have at most DISK bytes, and `FeatureCache.forget` removes them.
    """

    folder: Path | None = None
    is_writer: bool = True
    is_lasting: bool = True


class FeatureCache:
    """Cache of one tower's features, by key of the image or text, for one set of parameters.

    Args:
      name: of the tower in the parameters.
      key: item -> its key.
      facts: all that features depend on besides parameters and key.
      is_pooled: whether features are one vector each. Otherwise they have tokens: the cache is
        limited to MEMORY bytes and has no files.
      kept: place and life of the files.
      interrupt: able to stop the computation of keys, which reads images.
      expect: called by `prepare` with the number of items that it computes.
    """

    def __init__(
        self,
        name: str,
        key: Callable[[Any], bytes],
        facts: Mapping[str, Any],
        *,
        is_pooled: bool,
        kept: Kept,
        interrupt: Interrupt = NEVER,
        expect: Callable[[int], None] = lambda number: None,
    ):
        self._name, self._key, self._facts, self._expect = name, key, facts, expect
        self._kept, self._interrupt = kept, interrupt
        self.is_bounded = not is_pooled
        self.folder = kept.folder if is_pooled else None
        # the least recently used first
        self._memory, self._bytes = collections.OrderedDict[bytes, Row](), 0
        self._files: FeatureFiles | None = None
        self._weights = ""  # fingerprint of the parameters of the features in memory
        # id(item) -> (item, key), of the last `prepare`; the reference keeps the id from reuse
        self._known: dict[int, tuple[Any, bytes]] = {}

    @property
    def facts(self) -> dict[str, Any]:
        """Facts that the features in memory depend on."""
        return {"weights": self._weights, **self._facts}

    def use(self, variables: Any) -> None:
        """Clears the cache if it is of other parameters than these."""
        # the head, too: its projections may be part of a tower's features
        params = {key: variables["params"].get(key) for key in (self._name, "head")}
        weights = fingerprint([params, variables.get("batch_stats")])
        if weights != self._weights:
            self._memory.clear()
            self._bytes = 0
            # no files if opening them fails: the earlier ones are of other parameters
            self._weights, self._files = weights, None
            self._files = self._open()

    def features(self, items: Sequence[Any], compute: Compute) -> Any:
        """Features of all items, in their order."""
        keys = self._keys(items)
        rows = self._rows(keys, items, compute)
        return jax.tree.map(lambda *arrays: np.stack(arrays), *(rows[key] for key in keys))

    def prepare(self, items: Sequence[Any], compute: Compute) -> None:
        """Computes the features that are not in the cache."""
        self._known = {}
        keys = self._keys(items)
        self._known = {id(item): (item, key) for item, key in zip(items, keys, strict=True)}
        self._expect(len({key for key in keys if key not in self._memory}))
        self._rows(keys, items, compute)

    def save(self) -> None:
        """Writes the features that are not in a file yet, of a stopped evaluation."""
        if self._files:
            self._flush(is_due=True)

    def forget(self) -> None:
        """Removes the files of a finished evaluation, unless they outlive it."""
        if self._files and not self._kept.is_lasting:
            self._files = None
            self._remove(self.folder.glob(f"{self._name}-*"))
            with contextlib.suppress(OSError):  # the other tower's files, or no folder
                self.folder.rmdir()

    def _keys(self, items: Sequence[Any]) -> list[bytes]:
        if all(id(item) in self._known for item in items):
            return [self._known[id(item)][1] for item in items]

        def some(items: Sequence[Any]) -> list[bytes]:
            return [self._key(item) for item in items]

        def all_keys() -> list[bytes]:
            # THREADS tasks, since a task per item costs more than a memoised key
            size = -(-len(items) // THREADS)
            with ThreadPoolExecutor(max_workers=THREADS) as pool:
                parts = pool.map(some, (items[i : i + size] for i in range(0, len(items), size)))
                return list(itertools.chain.from_iterable(parts))

        return self._interrupt.call(all_keys) if items else []

    def _rows(
        self, keys: Sequence[bytes], items: Sequence[Any], compute: Compute
    ) -> dict[bytes, Row]:
        # All processes see the same keys in the same order, hence have the same features in memory
        # and encode the same batches.
        rows = {key: self._get(key) for key in keys}
        missing = {k: item for k, item in zip(keys, items, strict=True) if rows[k] is None}
        missing_keys = list(missing)
        if not missing:
            return rows
        try:
            for indices, features in compute(list(missing.values())):
                for row, index in enumerate(indices):
                    key = missing_keys[index]
                    # a copy: a view would keep the features of the whole batch in memory
                    rows[key] = jax.tree.map(lambda x, row=row: x[row].copy(), features)
                    self._put(key, rows[key])
                    if self._files:
                        self._files.put(key, rows[key].pooled)
                if self._files:
                    self._flush(is_due=False)
        finally:
            # also the features of a stopped evaluation
            if self._files and self._kept.is_lasting:
                self._flush(is_due=True)
        return rows

    def _flush(self, is_due: bool) -> None:
        try:
            self._files.flush(is_due=is_due)
        except OSError as error:
            if self._kept.is_lasting:
                raise
            # results matter more: an evaluation that is not stopped needs no files
            logging.warning("features of this evaluation are not kept: %s", error)
            self._files = None

    def _get(self, key: bytes) -> Row | None:
        if key in self._memory:
            self._memory.move_to_end(key)
        return self._memory.get(key)

    def _put(self, key: bytes, row: Row) -> None:
        self._memory[key] = row
        self._bytes += _bytes_of(row)
        while self.is_bounded and self._bytes > MEMORY:
            self._bytes -= _bytes_of(self._memory.popitem(last=False)[1])

    def _open(self) -> FeatureFiles | None:
        """Opens the files of the parameters in use and reads them; None without a folder."""
        if self.folder is None:
            return None
        digest = hashlib.sha256(json.dumps(self.facts, sort_keys=True, default=str).encode())
        folder = self.folder / f"{self._name}-{digest.hexdigest()[:16]}"
        if not self._kept.is_lasting and self.folder.exists():
            self._remove(other for other in self.folder.glob(f"{self._name}-*") if other != folder)
        limit = None if self._kept.is_lasting else DISK
        files = FeatureFiles(folder, self.facts, self._kept.is_writer, limit)
        vectors = dict(files.read())
        keys = hashlib.sha256(b"".join(sorted(vectors))).digest()
        # unless all processes read the same keys, their batches differ and they wait for each other
        if sharding.same_everywhere(keys):
            kind = {"image": ImageFeatures, "text": TextFeatures}[self._name]
            for key, pooled in vectors.items():
                self._put(key, kind(pooled))
        return files

    def _remove(self, folders: Iterable[Path]) -> None:
        for folder in [*folders] if self._kept.is_writer else ():
            shutil.rmtree(folder, ignore_errors=True)


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
