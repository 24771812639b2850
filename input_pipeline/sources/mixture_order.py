"""Order of a mixture: position of an endless sequence -> source and place in its own order.

Positions are divided into blocks of 4,096. Among the first n blocks of a phase, source k has
floor(4096 n w_k) places, the one of the largest weight the rest; in its block, a place is drawn.
So counts before any position are known without those before it, and differ from the weights' by one
at the end of a block.
"""

import bisect
import functools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Protocol

import numpy as np

_BLOCK = 4096
# So that the source of the largest weight, 1 / MOST at least, has a place left in every block.
MOST = 64
# number of the random stream, as in order.py
_STREAM = 1_001


class Places(Protocol):
    """An endless sequence of indices of records of one source."""

    def __getitem__(self, position: int) -> int: ...


class MixtureOrder:
    """Indices of records of several sources in a row: `order[position]`, in shares that may change.

    orders: of each source.   sizes: their numbers of records.   weights: from which position on ->
    a weight per source, not negative, some above 0; position 0 is among them.
    """

    def __init__(
        self,
        orders: Sequence[Places],
        sizes: Sequence[int],
        weights: Mapping[int, Sequence[Fraction]],
        seed: int,
    ) -> None:
        self._orders, self._sizes, self._seed = orders, sizes, seed
        self._first = np.cumsum([0, *sizes[:-1]]).tolist()
        self._starts = sorted(weights)
        self._shares = [
            [weight / sum(weights[start]) for weight in weights[start]] for start in self._starts
        ]
        # A thread works in one block and never goes back.
        self._block = functools.lru_cache(maxsize=32)(self._make_block)
        # draws of every source before each phase
        self._before = [[0] * len(sizes)]
        for start in self._starts[1:]:
            self._before.append(self.draws(start))

    def __getitem__(self, position: int) -> int:
        phase, block, offset = self._locate(position)
        sources, places = self._block(phase, block)
        source = int(sources[offset])
        return self._first[source] + int(self._orders[source][int(places[offset])])

    def draws(self, position: int) -> list[int]:
        """Number of records of every source before a position."""
        # the position before: at the start of a phase, that of the phase before
        phase, block, offset = self._locate(max(position - 1, 0))
        sources, _ = self._block(phase, block)
        counts = np.bincount(sources[: offset + (position > 0)], minlength=len(self._sizes))
        earlier = zip(self._before[phase], self._counts(phase, block), strict=True)
        return [sum(pair) + count for pair, count in zip(earlier, counts.tolist(), strict=True)]

    def epochs(self, position: int) -> list[float]:
        """Epochs of each source before a position: records drawn over its size."""
        draws = zip(self.draws(position), self._sizes, strict=True)
        return [count / size for count, size in draws]

    def _locate(self, position: int) -> tuple[int, int, int]:
        """Phase, block in it and place in the block."""
        phase = bisect.bisect_right(self._starts, position) - 1
        return phase, *divmod(position - self._starts[phase], _BLOCK)

    def _counts(self, phase: int, blocks: int) -> list[int]:
        """Places of every source in the first blocks of a phase."""
        shares = self._shares[phase]
        # fractions, not floats: exact at any position
        counts = [int(blocks * _BLOCK * share) for share in shares]
        largest = shares.index(max(shares))
        counts[largest] += blocks * _BLOCK - sum(counts)
        return counts

    def _make_block(self, phase: int, block: int) -> tuple[np.ndarray, np.ndarray]:
        """Source of each place of a block, and the place in its own order; int64 (4096,)."""
        first = np.array(self._counts(phase, block))
        counts = np.array(self._counts(phase, block + 1)) - first
        counter = np.array([0, 0, block, self._starts[phase]], np.uint64)
        key = np.array([self._seed, _STREAM], np.uint64)
        generator = np.random.Generator(np.random.Philox(key=key, counter=counter))
        sources = generator.permutation(np.repeat(np.arange(len(counts)), counts))
        places = np.empty(_BLOCK, np.int64)
        for source, count in enumerate(counts):
            start = self._before[phase][source] + first[source]
            places[sources == source] = np.arange(start, start + count)
        return sources, places
