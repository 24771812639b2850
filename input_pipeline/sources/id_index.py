"""Index from record ids to positions in a source, in 16 bytes an id."""

from collections.abc import Iterable

import numpy as np

from vlc_jax.input_pipeline import batch


class IdIndex:
    """Index by 64-bit hashes: `index[id]` lists the possible positions of the record.

    Two ids may share a hash, so the caller compares the id of the record at each position.
    """

    def __init__(self, hashes: np.ndarray) -> None:
        """hashes: uint64 (records,), `batch.hash_id` of each id."""
        # Stable: positions of equal hashes stay in order.
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def __getitem__(self, record_id: str) -> list[int]:
        key = batch.hash_id(record_id)
        first = np.searchsorted(self._hashes, key, "left")
        last = np.searchsorted(self._hashes, key, "right")
        return [int(position) for position in self._order[first:last]]


def hash_ids(record_ids: Iterable[str]) -> np.ndarray:
    """64-bit hashes of record ids, uint64 (records,)."""
    return np.fromiter((batch.hash_id(record_id) for record_id in record_ids), np.uint64)
