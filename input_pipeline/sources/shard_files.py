"""Entries of shards, read where they are; few files are open at a time."""

import collections
import functools
import threading
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.record import ShardError, path_below
from vlc_jax.input_pipeline.sources.shard_table import ShardTable

# files; a process may often open 1,024, and a reader keeps the offsets of its entries
_MAX_OPEN = 512
# Opening reads the end of a file with the offsets of its records, of which 4,096 take about 50 kB
# and a last block 64: array_record itself reads 1 MiB, for every record of a shuffled billion.
_READER_OPTIONS = "readahead_buffer_size:0,footer_prefetch_bytes:131072"
_BUFFER = 32768  # the value of array_record's own data source


class ShardFiles:
    """Entries of all shards, in order: `files[i]` is encoded as in the shard. Pickles to workers.

    A shard is opened when one of its entries is read: opening a folder reads none of them. Raises
    ShardError for a shard that is missing or contradicts the table, and RuntimeError or ValueError
    for a damaged entry.
    """

    def __init__(self, folder: Path, shards: ShardTable) -> None:
        self._local, self._shards = folder, shards
        self._reset_process_state()

    def _reset_process_state(self) -> None:
        # Least recently used first.
        self._readers: collections.OrderedDict[int, Any] = collections.OrderedDict()
        self._lock = threading.Lock()
        # making an entry takes longer than looking for its file
        self._entry = functools.lru_cache(2 * _MAX_OPEN)(self._shards.__getitem__)

    def __len__(self) -> int:
        return self._shards.total

    def __getitem__(self, index: int) -> bytes:
        number, position = self._shards.locate(index)
        return (self._opened(number) or self._checked(number)).read([position])[0]

    def _checked(self, number: int) -> Any:
        """A reader of a shard whose size and count are those of the table."""
        shard = self._entry(number)
        path = path_below(self._local, shard["name"])
        expected = f"{shard['count']} records in {shard['bytes']} bytes"
        try:
            size = path.stat().st_size
            reader = self._open(number, path)
            count = reader.num_records()
        except (OSError, RuntimeError, ValueError) as error:
            raise ShardError(
                f"shard {path} cannot be opened, the manifest says {expected}: {error}"
            ) from error
        if (count, size) != (shard["count"], shard["bytes"]):
            raise ShardError(
                f"shard {path} has {count} records in {size} bytes, the manifest says {expected}; "
                f"find the damage with vlc-jax check {path.parent}"
            )
        return reader

    def _opened(self, number: int) -> Any:
        with self._lock:
            if number in self._readers:
                self._readers.move_to_end(number)
            return self._readers.get(number)

    def _open(self, number: int, path: Path) -> Any:
        from array_record.python import array_record_module

        # Entries are read one by one: reading ahead in the file would be wasted.
        reader = array_record_module.ArrayRecordReader(
            str(path), _READER_OPTIONS, file_reader_buffer_size=_BUFFER
        )
        with self._lock:
            self._readers[number] = reader
            while len(self._readers) > _MAX_OPEN:
                # closed once no thread reads from it
                self._readers.popitem(last=False)
        return reader

    def __getstate__(self) -> dict[str, Any]:
        process_state = ("_readers", "_lock", "_entry", "_copy_queue")
        return {key: value for key, value in vars(self).items() if key not in process_state}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._reset_process_state()
