"""Record ids -> their places in a source, in 16 bytes an id."""

from collections.abc import Iterable

import numpy as np

from input_pipeline import batch


class IdIndex:
    """`places[id]`: where in a source a record of this id may be, by 64 bits of its hash.

    Two ids may share their hash, so whoever asks looks at the record's own id.
    """

    def __init__(self, hashes: np.ndarray) -> None:
        """hashes: uint64 (records,), `batch.hash_id` of each id."""
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def __getitem__(self, record_id: str) -> list[int]:
        wanted = batch.hash_id(record_id)
        first = np.searchsorted(self._hashes, wanted, "left")
        last = np.searchsorted(self._hashes, wanted, "right")
        return [int(place) for place in self._order[first:last]]


def hash_ids(record_ids: Iterable[str]) -> np.ndarray:
    """uint64 (records,)."""
    return np.fromiter((batch.hash_id(record_id) for record_id in record_ids), np.uint64)
