"""Order of training: position of an endless sequence -> index of a record, in shuffled epochs.

A pure function of (seed, position): it has no state between steps, so resuming, hosts and workers
cannot change it.
"""

import functools
from collections.abc import Callable
from typing import Protocol

import numpy as np

from vlc_jax.input_pipeline.record import Grouped, Mixed, Sharded, Source
from vlc_jax.input_pipeline.sources.mixture_order import MixtureOrder

SHUFFLES = ("global", "blocks")
# records: some MB of images, one read from storage instead of 256
BLOCK = 256
# Blocks: 4,096 records from distant parts of the data, hence dissimilar, and few enough for a local
# disk or the page cache while they are read.
WINDOW = 16
# number of the random stream; the streams of examples.py count from 0
_STREAM = 1_000
# Between the seeds of the parts of a mixture; odd, and far from the next seeds of a user.
_APART = 0x9E3779B9


class Order(Protocol):
    """An endless sequence of indices of records."""

    def __getitem__(self, position: int) -> int: ...


def make(source: Source, seed: int, records_per_step: int = 1) -> Order:
    """The order of a source: of a mixture, its parts' by their weights; "blocks" if it is sharded
    and has this shuffle; of whole groups if its records form groups; else "global"."""
    if isinstance(source, Mixed):
        weights = {step * records_per_step: each for step, each in source.weights.items()}
        # seeds of their own: parts of one size would have one order
        orders = [make(part, (seed + n * _APART) % 2**32) for n, part in enumerate(source.parts)]
        return MixtureOrder(orders, [len(part) for part in source.parts], weights, seed)
    # imports jax if it is installed; readers and checks need neither
    import grain

    if isinstance(source, Sharded) and source.shuffle == "blocks":
        return BlockOrder(len(source), seed, source.read_ahead)
    # Grain computes shuffled indices without a table, and `repeat` reshuffles every epoch. The
    # order may change with Grain's version; test_loader.py pins it.
    size = source.group_size if isinstance(source, Grouped) else 1
    order = grain.MapDataset.range(len(source) // size).seed(seed).shuffle().repeat()
    return order if size == 1 else GroupOrder(order, size)


class GroupOrder:
    """Groups of `size` neighbouring records in the shuffled order of groups, each kept together."""

    def __init__(self, groups: Order, size: int) -> None:
        self._groups, self._size = groups, size

    def __getitem__(self, position: int) -> int:
        group, place = divmod(position, self._size)
        return int(self._groups[group]) * self._size + place


class BlockOrder:
    """Shuffled epochs with local reads: `order[position]` is the index of a record.

    Shuffles blocks of 256 neighbours, then the records within each window of 16 blocks. Within an
    epoch, 4,096 consecutive positions touch two windows at most. Records beyond the last whole
    block form a shorter block, always in the epoch's last window: all other windows have one size,
    so a position determines its window.

    read_ahead: called at the start of a window with its records and the next window's.
    """

    def __init__(
        self, count: int, seed: int, read_ahead: Callable[[np.ndarray], None] = lambda _: None
    ) -> None:
        import grain

        self._count, self._seed, self._read_ahead = count, seed, read_ahead
        self._whole = count // BLOCK
        self._blocks = -(-count // BLOCK)
        self._windows = -(-self._blocks // WINDOW)
        self._order = grain.MapDataset.range(max(self._whole, 1)).seed(seed).shuffle().repeat()
        # Each window is drawn once: a thread works in one window and never goes back.
        self._window = functools.lru_cache(maxsize=32)(self._make_window)

    def __getitem__(self, position: int) -> int:
        epoch, rank = divmod(position, self._count)
        window, offset = divmod(rank, WINDOW * BLOCK)
        return int(self._window(epoch, window)[offset])

    def _make_window(self, epoch: int, window: int) -> np.ndarray:
        records = self._records(epoch, window)
        later, following = divmod(window + 1, self._windows)
        self._read_ahead(np.concatenate([records, self._records(epoch + later, following)]))
        # A stream for every window, without state, as in examples.py.
        counter = np.array([0, 0, window, epoch], np.uint64)
        key = np.array([self._seed, _STREAM], np.uint64)
        generator = np.random.Generator(np.random.Philox(key=key, counter=counter))
        return generator.permutation(records)

    def _records(self, epoch: int, window: int) -> np.ndarray:
        """Records of a window, its blocks in shuffled order; int64 (records,)."""
        blocks = range(window * WINDOW, min((window + 1) * WINDOW, self._blocks))
        starts = [
            BLOCK * (self._order[epoch * self._whole + block] if block < self._whole else block)
            for block in blocks
        ]
        ends = [min(start + BLOCK, self._count) for start in starts]
        return np.concatenate(list(map(np.arange, starts, ends)))
