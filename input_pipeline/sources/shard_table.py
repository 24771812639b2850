"""The shards of a prepared folder, in columns: what a manifest of any length takes in memory."""

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.input_pipeline.record import DataError, path_below

_DIGEST = 32  # bytes of a sha256
_MOST = 2**48  # records or bytes of a shard; a larger number is damage


class ShardTable(Sequence[Mapping[str, Any]]):
    """Shards of a manifest: `table[k]` is the entry of shard k, as in the manifest.

    counts, sizes: records and bytes of every shard, int64 (shards,).   ends: of every shard, the
    index of the record behind its last one, int64 (shards,).   A shard takes 300 bytes at most,
    pickled or not.
    """

    def __init__(self, numbers: np.ndarray, names: np.ndarray, digests: np.ndarray) -> None:
        """numbers: counts, sizes and sizes of the lists of ids, int64 (3, shards).   names: of
        shards and of lists of ids, bytes (2, shards).   digests: sha256 of both, uint8 (2, shards,
        32)."""
        self._numbers, self._names, self._digests = numbers, names, digests
        self.counts, self.sizes = numbers[:2]
        self.ends = np.cumsum(self.counts)

    @classmethod
    def of(cls, folder: Path, entries: Sequence[Any]) -> "ShardTable":
        """Raises DataError unless the entries have the fields that readers take, and name files of
        the folder."""
        for number, entry in enumerate(entries):
            _check(folder, number, entry)
        ids = [entry["ids"] for entry in entries]
        counts = [entry["count"] for entry in entries]
        sizes = [[file["bytes"] for file in files] for files in (entries, ids)]
        names = [[file["name"].encode() for file in files] for files in (entries, ids)]
        digests = bytes.fromhex(
            "".join(file["sha256"] for files in (entries, ids) for file in files)
        )
        return cls(
            np.array([counts, *sizes], np.int64),
            np.array(names, np.bytes_).reshape(2, -1),
            np.frombuffer(digests, np.uint8).reshape(2, -1, _DIGEST),
        )

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, number: Any) -> dict[str, Any]:
        count, *sizes = self._numbers[:, number].tolist()
        entry, ids = (
            {"name": name.decode(), "bytes": size, "sha256": digest.tobytes().hex()}
            for name, size, digest in zip(
                self._names[:, number].tolist(), sizes, self._digests[:, number], strict=True
            )
        )
        return {**entry, "count": count, "ids": ids}

    @property
    def total(self) -> int:
        """Number of records."""
        return int(self.ends[-1]) if len(self) else 0

    def locate(self, index: int) -> tuple[int, int]:
        """Shard of a record, and its position there. Raises ValueError beyond the last record."""
        if not 0 <= index < self.total:
            raise ValueError(f"record {index} of {self.total:,}")
        number = int(np.searchsorted(self.ends, index, side="right"))
        return number, int(index - self.ends[number] + self.counts[number])

    @functools.cached_property
    def content(self) -> str:
        """Hash of the shards' sha256: the same shards have the same, however they are called."""
        digests = [digest.tobytes().hex() for digest in self._digests[0]]
        return hashlib.sha256(json.dumps(digests).encode()).hexdigest()[:32]

    def arrays(self) -> dict[str, np.ndarray]:
        """The arguments that make this table."""
        return {"numbers": self._numbers, "names": self._names, "digests": self._digests}


def _check(folder: Path, number: int, entry: Any) -> None:
    match entry:
        case {
            "name": str(name),
            "count": int(count),
            "bytes": int(size),
            "sha256": str(sha256),
            "ids": {"name": str(ids), "bytes": int(size_of_ids), "sha256": str(of_ids)},
        }:
            for value in (count, size, size_of_ids):
                if not 0 <= value < _MOST:
                    raise DataError(f"shard {number} has {value} records or bytes")
            for file in (name, ids):
                path_below(folder, file)
            for digest in (sha256, of_ids):
                if len(digest) != 2 * _DIGEST or not set(digest) <= {*"0123456789abcdef"}:
                    raise DataError(f"the sha256 of shard {number} is {digest!r:.80}")
        case _:
            raise DataError(f"shard {number} lacks name, count, bytes, sha256 or ids")
