"""Entries of shards, read from copies on a local disk that are made on demand."""

import collections
import logging
import queue
import threading
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.input_pipeline.record import ShardError, StageError, path_below
from vlc_jax.input_pipeline.sources.order import BLOCK, WINDOW
from vlc_jax.input_pipeline.sources.shard_files import ShardFiles
from vlc_jax.input_pipeline.sources.shard_table import ShardTable
from vlc_jax.input_pipeline.sources.stage import GIGABYTE, Stage
from vlc_jax.input_pipeline.stores.any_path import AnyPath

_LOG = logging.getLogger(__name__)
# Threads that copy ahead: one stream from an object store uses only a part of the network.
_COPIERS = 4
# The current window, the next one, which is being fetched, and the previous one, which slower
# threads and other processes still read.
_WINDOWS = 3


class ReadCounts:
    """Thread-safe counts of reads; they start at 0 in every worker process.

    bytes_read: bytes of the records. stage_hits, stage_misses: records whose shard had a local
    copy, and records that waited for one. bytes_staged: bytes of the copied shards.
    """

    def __init__(self) -> None:
        self._counts: collections.Counter[str] = collections.Counter()
        self._lock = threading.Lock()

    def add(self, **counts: int) -> None:
        with self._lock:
            self._counts.update(counts)

    def take(self) -> dict[str, int]:
        """The counts since the last call."""
        with self._lock:
            taken, self._counts = dict(+self._counts), collections.Counter()  # `+` drops zeros
        return taken

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return ReadCounts, ()


class StagedShards(ShardFiles):
    """ShardFiles of copies of the shards of a folder.

    Raises ValueError for a stage that is smaller than the data in use at a time: three windows of
    blocks, or all shards in a global shuffle.
    """

    def __init__(
        self, folder: AnyPath, shards: ShardTable, stage: Stage, shuffle: str, counts: ReadCounts
    ) -> None:
        _check_limit(folder, shards, stage, shuffle)
        self._folder, self._stage, self._counts = folder, stage, counts
        super().__init__(stage.folder, shards)

    def _reset_process_state(self) -> None:
        super()._reset_process_state()
        self._copy_queue: queue.SimpleQueue[int] | None = None

    def __getitem__(self, index: int) -> bytes:
        """Raises ShardError, StageError, and RuntimeError for a damaged entry."""
        number, position = self._shards.locate(index)
        has_failed = False
        while True:
            try:
                return self._reader(number).read([position])[0]
            except (RuntimeError, ValueError, IndexError) as error:
                # a reader opens its file at each read; others may remove it before any of them
                if not _is_missing(error):
                    if has_failed:
                        raise
                    has_failed, shard = True, self._entry(number)
                    if self._stage.remove_damaged(shard):
                        _LOG.warning("a damaged copy is made again: %s", self._stage.path(shard))
                # a right copy may be another thread's, made after this one's reader was opened
                with self._lock:
                    self._readers.pop(number, None)

    def read_ahead(self, indices: np.ndarray) -> None:
        """Starts to copy the shards of these records, in their order; returns at once."""
        with self._lock:
            if self._copy_queue is None:
                self._copy_queue = queue.SimpleQueue()
                for _ in range(_COPIERS):
                    # Daemons: they do not delay the end of the process, and may be killed any time.
                    threading.Thread(target=self._copy_queued, daemon=True).start()
        numbers = np.searchsorted(self._shards.ends, indices, side="right")
        for number in dict.fromkeys(numbers.tolist()):
            self._copy_queue.put(number)

    def _copy_queued(self) -> None:
        while True:
            try:
                self._copy(self._copy_queue.get(), waits=False)
            except (ShardError, StageError):
                # raised again where the record is read
                continue

    def _copy(self, number: int, *, waits: bool) -> None:
        shard = self._entry(number)
        path_below(Path(), shard["name"])
        copied = self._stage.copy(self._folder, shard, waits=waits)
        self._counts.add(bytes_staged=copied)

    def _reader(self, number: int) -> Any:
        is_hit = self._stage.use(self._entry(number))
        reader = self._opened(number) if is_hit else None
        while reader is None:
            self._copy(number, waits=True)
            reader = self._open_copy(number)
        self._counts.add(**{"stage_hits" if is_hit else "stage_misses": 1})
        return reader

    def _open_copy(self, number: int) -> Any:
        """A reader of a copy; None if it was removed, for other shards, before it was opened."""
        shard = self._entry(number)
        try:
            reader = self._open(number, self._stage.path(shard))
        except (RuntimeError, ValueError) as error:
            if not _is_missing(error) and self._stage.use(shard):
                raise
            return None
        with self._lock:
            # A removed file takes room on the disk until it is closed.
            for other in list(self._readers):
                if not self._stage.path(self._entry(other)).exists():
                    del self._readers[other]
        return reader


def _is_missing(error: Exception) -> bool:
    """True for the error of a reader whose file is gone."""
    return "No such file or directory" in str(error)


def _check_limit(folder: AnyPath, shards: ShardTable, stage: Stage, shuffle: str) -> None:
    total = int(shards.sizes.sum())
    if stage.limit >= total:
        return
    if shuffle == "global":
        raise ValueError(
            f"the shards of {folder} have {total / GIGABYTE:.3g} GB, and stage_gb is "
            f"{stage.limit / GIGABYTE:g}: a global shuffle reads all of them at a time; use "
            "shuffle='blocks' or a higher stage_gb"
        )
    largest = int(shards.sizes.max())
    needed = _WINDOWS * WINDOW * largest
    if stage.limit < needed:
        raise ValueError(
            f"stage_gb is {stage.limit / GIGABYTE:g}; {_WINDOWS} windows of {WINDOW} blocks, in "
            f"shards of {largest / 1e6:.1f} MB, need {min(needed, total) / GIGABYTE:.3g}; allow "
            f"that, or prepare the data with --shard-size={BLOCK}"
        )
    blocks = int(shards.counts.max()) // BLOCK
    if blocks > 1:
        _LOG.warning(
            "shards of %d blocks and a stage smaller than the data: a shard is copied up to %d "
            "times in an epoch; prepare the data with --shard-size=%d, or allow stage_gb=%.3g",
            blocks,
            blocks,
            BLOCK,
            total / GIGABYTE,
        )
