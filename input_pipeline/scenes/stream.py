"""Reproducible random numbers: the same on every machine, in every Python and every numpy.

They are the bytes of SHAKE-128 (FIPS 202) over a text key, read as 32-bit little-endian words,
independent of any library's generator.
"""

import functools
import hashlib
import statistics
import struct
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

# words hashed at a time: enough for one scene or four captions, nearly always
_WORDS = 96
_FORMAT = struct.Struct(f"<{_WORDS}I")


def random_bytes(key: str, count: int) -> bytes:
    """`count` uniform bytes, a pure function of `key`."""
    return hashlib.shake_128(key.encode()).digest(count)


class Stream:
    """Random stream: an endless sequence of 32-bit words that is a pure function of `key`."""

    def __init__(self, key: str):
        self._key = key
        self._block = 0
        self._refill()

    def _refill(self) -> None:
        words = _FORMAT.unpack(random_bytes(f"{self._key}#{self._block}", _FORMAT.size))
        # the iterator's own method: a word is one call, and a scene takes dozens of words
        self._next = iter(words).__next__
        self._block += 1

    def word(self) -> int:
        """An integer, uniform in [0, 2**32)."""
        try:
            return self._next()
        except StopIteration:
            self._refill()
            return self._next()

    def below(self, n: int) -> int:
        """An integer, uniform in [0, n) up to a bias of n / 2**32."""
        # Multiply and shift: one word for every draw, whereas rejection takes a varying number.
        return self.word() * n >> 32

    def between(self, low: int, high: int) -> int:
        """An integer, uniform in [low, high], both ends included."""
        return low + (self.word() * (high - low + 1) >> 32)

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        # times 2**32, which is exact in floating point, instead of a division per draw
        return self.word() < probability * 4294967296.0

    def choice(self, options: Sequence[T]) -> T:
        """One of `options`, uniformly."""
        return options[self.word() * len(options) >> 32]

    def weighted(self, weights: Sequence[float]) -> int:
        """An index, drawn with the given probabilities (they sum to 1)."""
        left = self.word() / 4294967296.0
        for index, weight in enumerate(weights):
            left -= weight
            if left < 0:
                return index
        # rounding may leave a rest of 1e-16 after the last weight
        return len(weights) - 1

    def sample(self, n: int, count: int) -> list[int]:
        """`count` different integers of range(n), in random order (Fisher-Yates)."""
        pool = list(range(n))
        for i in range(count):
            j = i + (self.word() * (n - i) >> 32)
            pool[i], pool[j] = pool[j], pool[i]
        return pool[:count]


@functools.cache
def normal_table(sigma: float) -> tuple[int, ...]:
    """256 integers: a uniform byte as index gives a normal number with sigma `sigma`, rounded.

    The quantiles of the middles of 256 equal shares: the tails end at 2.9 sigma.
    """
    # a table of our own: normal numbers of numpy may differ between its versions
    normal = statistics.NormalDist()
    return tuple(round(sigma * normal.inv_cdf((i + 0.5) / 256)) for i in range(256))
