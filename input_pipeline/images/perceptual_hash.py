"""Perceptual hashes of images, and the search for hashes that differ in few bits."""

from collections.abc import Iterator

import numpy as np
from PIL import Image

# of the luminance that is transformed, and of its low frequencies
_SIDE, _LOW, _FINE = 32, 8, 16
# standard deviation of that luminance, in levels, below which the signs are those of noise
_FLAT = 2.0
NONE = 0  # first word of a picture without structure: equal to no other
WORDS = _FINE * _FINE // 64
_BANDS, _BAND_BITS = 4, 16
# largest distance: one of the bands then differs in two bits at most
MOST = 3 * _BANDS - 1
# bits of the fine part in which near hashes may differ, of 192: different pictures differ in about
# half of them, copies that are cut by 2 % in less than 50
_FINE_MOST = 64
_BLOCK = 256  # hashes compared at a time


def phash(picture: Image.Image) -> np.ndarray:
    """Perceptual hash, uint64 (WORDS,): which frequencies of a picture are above their median.

    The luminance is shrunk to 32 x 32 pixels and transformed (DCT-II). The first word is pHash: the
    8 x 8 lowest frequencies, row by row, the first in the highest bit (as `phash` of the library
    ImageHash). The others have the rest of the 16 x 16 lowest. All are NONE for a picture of nearly
    one colour.
    """
    from scipy import fft  # here: it is slow, and every run imports this file

    grey = picture.convert("L").resize((_SIDE, _SIDE), Image.Resampling.LANCZOS)
    levels = np.asarray(grey, np.float64)
    if levels.std() < _FLAT:
        return np.full(WORDS, NONE, np.uint64)
    spectrum = fft.dctn(levels)[:_FINE, :_FINE]
    low = spectrum[:_LOW, :_LOW].ravel()
    fine = np.concatenate([spectrum[:_LOW, _LOW:].ravel(), spectrum[_LOW:].ravel()])
    bits = np.concatenate([low > np.median(low), fine > np.median(fine)])
    return np.packbits(bits).view(">u8").astype(np.uint64)


class NearHashes:
    """The hashes, uint64 (hashes, WORDS), that are near another one.

    The first words of near hashes differ in at most `distance` bits, an even number, and the others
    in at most 64 of 192. Of the four bands of 16 bits of a first word, one then differs in at most
    distance / 4 bits, rounded down (pigeonhole). So each band of a hash is looked up with no, one
    or two of its bits flipped, and only hashes that share such a band are compared. Raises
    ValueError for a distance beyond MOST.
    """

    def __init__(self, hashes: np.ndarray, distance: int) -> None:
        if not 0 <= distance <= MOST:
            raise ValueError(f"a distance is a number of bits from 0 to {MOST}; got {distance}")
        self._hashes, self._distance = hashes, distance
        known = np.flatnonzero(hashes[:, 0] != NONE)
        self._orders, self._starts = [], []
        for band in _bands(hashes[known, 0]):
            order = np.argsort(band, kind="stable")
            self._orders.append(known[order])
            counts = np.bincount(band, minlength=1 << _BAND_BITS)
            self._starts.append(np.concatenate([[0], np.cumsum(counts)]))
        self._flips = np.array([*_flips(distance // _BANDS)])

    def pairs(self, queries: np.ndarray) -> np.ndarray:
        """(query, hash, distance) of all near pairs, int64 (pairs, 3), sorted. queries: uint64
        (queries, WORDS)."""
        known = np.flatnonzero(queries[:, 0] != NONE)
        pairs = [np.zeros((0, 3), np.int64)]
        for first in range(0, len(known), _BLOCK):
            block = known[first : first + _BLOCK]
            pairs += [self._near(queries, block, band) for band in range(_BANDS)]
        # a pair may share several bands
        return np.unique(np.concatenate(pairs), axis=0)

    def _near(self, queries: np.ndarray, block: np.ndarray, band: int) -> np.ndarray:
        keys = (_bands(queries[block, 0])[band][:, None] ^ self._flips).ravel()
        starts = self._starts[band]
        first, counts = starts[keys], starts[keys + 1] - starts[keys]
        # positions first[k] to first[k] + counts[k] - 1 of each key, one after the other
        before = np.cumsum(counts) - counts
        positions = np.arange(counts.sum()) + np.repeat(first - before, counts)
        hashes = self._orders[band][positions]
        query_numbers = np.repeat(np.repeat(block, len(self._flips)), counts)
        pairs = np.stack([query_numbers, hashes], axis=1)
        differing = self._hashes[hashes, 0] ^ queries[query_numbers, 0]
        distances = np.bitwise_count(differing).astype(np.int64)
        is_near = distances <= self._distance
        pairs, distances = pairs[is_near], distances[is_near]
        fine = np.bitwise_count(self._hashes[pairs[:, 1], 1:] ^ queries[pairs[:, 0], 1:])
        is_near = fine.sum(axis=1) <= _FINE_MOST
        return np.concatenate([pairs, distances[:, None]], axis=1)[is_near]


def _bands(hashes: np.ndarray) -> list[np.ndarray]:
    """The bands of hashes, int64 (hashes,) each."""
    shifts = range(0, 64, _BAND_BITS)
    return [(hashes >> np.uint64(s) & np.uint64(0xFFFF)).astype(np.int64) for s in shifts]


def _flips(most: int) -> Iterator[int]:
    """Numbers of 16 bits of which at most `most` (0, 1 or 2) are set."""
    return (bits for bits in range(1 << _BAND_BITS) if bits.bit_count() <= most)
