"""Entries of shards, read from copies on a local disk that are made on demand."""

import bisect
import collections
import itertools
import logging
import queue
import threading
from typing import Any

import numpy as np

from vlc_jax.input_pipeline.record import ShardError, StageError
from vlc_jax.input_pipeline.sources.order import BLOCK, WINDOW
from vlc_jax.input_pipeline.sources.stage import GIGABYTE, Stage
from vlc_jax.input_pipeline.stores import Folder

_LOG = logging.getLogger(__name__)
# Threads that copy ahead: one stream from an object store uses only a part of the network.
_COPIERS = 4
# files; a process may often open 1,024
_MAX_OPEN = 512
# the values of array_record's own data source
_READER_OPTIONS, _BUFFER = "readahead_buffer_size:0", 32768
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


class StagedShards:
    """Entries of all shards, in order: `shards[i]` is encoded as in the shard. Pickles to workers.

    shards: entries of a manifest. Raises ValueError for a stage that is smaller than the data in
    use at a time: three windows of blocks, or all shards in a global shuffle.
    """

    def __init__(
        self,
        folder: Folder,
        shards: list[dict[str, Any]],
        stage: Stage,
        shuffle: str,
        counts: ReadCounts,
    ) -> None:
        _check_limit(folder, shards, stage, shuffle)
        self._folder, self._shards, self._stage = folder, shards, stage
        self._ends = list(itertools.accumulate(shard["count"] for shard in shards))
        self._counts = counts
        self._reset_process_state()

    def _reset_process_state(self) -> None:
        # Least recently used first.
        self._readers: collections.OrderedDict[int, Any] = collections.OrderedDict()
        self._lock = threading.Lock()
        self._copy_queue: queue.SimpleQueue[int] | None = None

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> bytes:
        """Raises ShardError, StageError, and RuntimeError for a damaged entry."""
        number = bisect.bisect_right(self._ends, index)
        position = index - self._ends[number] + self._shards[number]["count"]
        has_failed = False
        while True:
            try:
                return self._reader(number).read([position])[0]
            except (RuntimeError, ValueError, IndexError) as error:
                # a reader opens its file at each read; others may remove it before any of them
                if not _is_missing(error):
                    if has_failed:
                        raise
                    has_failed, shard = True, self._shards[number]
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
        numbers = np.searchsorted(self._ends, indices, side="right")
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
        shard = self._shards[number]
        copied = self._stage.copy(self._folder, shard, waits=waits)
        self._counts.add(bytes_staged=copied)

    def _reader(self, number: int) -> Any:
        is_hit = self._stage.use(self._shards[number])
        reader = self._opened(number) if is_hit else None
        while reader is None:
            self._copy(number, waits=True)
            reader = self._open(number)
        self._counts.add(**{"stage_hits" if is_hit else "stage_misses": 1})
        return reader

    def _opened(self, number: int) -> Any:
        with self._lock:
            if number in self._readers:
                self._readers.move_to_end(number)
            return self._readers.get(number)

    def _open(self, number: int) -> Any:
        """A reader of a copy; None if it was removed, for other shards, before it was opened."""
        from array_record.python import array_record_module

        shard = self._shards[number]
        try:
            # Entries are read one by one: reading ahead in the file would be wasted.
            reader = array_record_module.ArrayRecordReader(
                str(self._stage.path(shard)), _READER_OPTIONS, file_reader_buffer_size=_BUFFER
            )
        except (RuntimeError, ValueError) as error:
            if not _is_missing(error) and self._stage.use(shard):
                raise
            return None
        with self._lock:
            self._readers[number] = reader
            # A removed file takes room on the disk until it is closed.
            for other in list(self._readers):
                if not self._stage.path(self._shards[other]).exists():
                    del self._readers[other]
            while len(self._readers) > _MAX_OPEN:
                # closed once no thread reads from it
                self._readers.popitem(last=False)
        return reader

    def __getstate__(self) -> dict[str, Any]:
        process_state = ("_readers", "_lock", "_copy_queue")
        return {key: value for key, value in vars(self).items() if key not in process_state}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._reset_process_state()


def _is_missing(error: Exception) -> bool:
    """True for the error of a reader whose file is gone."""
    return "No such file or directory" in str(error)


def _check_limit(folder: Folder, shards: list[dict[str, Any]], stage: Stage, shuffle: str) -> None:
    total = sum(shard["bytes"] for shard in shards)
    if stage.limit >= total:
        return
    if shuffle == "global":
        raise ValueError(
            f"the shards of {folder.name} have {total / GIGABYTE:.3g} GB, and stage_gb is "
            f"{stage.limit / GIGABYTE:g}: a global shuffle reads all of them at a time; use "
            "shuffle='blocks' or a higher stage_gb"
        )
    largest = max(shard["bytes"] for shard in shards)
    needed = _WINDOWS * WINDOW * largest
    if stage.limit < needed:
        raise ValueError(
            f"stage_gb is {stage.limit / GIGABYTE:g}; {_WINDOWS} windows of {WINDOW} blocks, in "
            f"shards of {largest / 1e6:.1f} MB, need {min(needed, total) / GIGABYTE:.3g}; allow "
            f"that, or prepare the data with --shard-size={BLOCK}"
        )
    blocks = max(shard["count"] for shard in shards) // BLOCK
    if blocks > 1:
        _LOG.warning(
            "shards of %d blocks and a stage smaller than the data: a shard is copied up to %d "
            "times in an epoch; prepare the data with --shard-size=%d, or allow stage_gb=%.3g",
            blocks,
            blocks,
            BLOCK,
            total / GIGABYTE,
        )
