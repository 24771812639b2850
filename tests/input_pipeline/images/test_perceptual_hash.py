"""Perceptual hashes: those of ImageHash, found without comparing all pairs."""

import numpy as np
import pytest
from PIL import Image

from vlc_jax.input_pipeline.images import perceptual_hash
from vlc_jax.input_pipeline.images.perceptual_hash import NONE, WORDS, NearHashes, phash


def picture(seed, side=120):
    """Rectangles of random colours."""
    rng = np.random.default_rng(seed)
    pixels = np.full((side, side, 3), rng.integers(0, 256, 3), np.uint8)
    for _ in range(40):
        (top, left), (height, width) = rng.integers(0, side, 2), rng.integers(8, side // 2, 2)
        pixels[top : top + height, left : left + width] = rng.integers(0, 230, 3)
    return Image.fromarray(pixels)


def test_the_first_word_is_the_sign_of_low_frequencies():
    for seed in range(5):
        image = picture(seed)
        small = np.asarray(image.convert("L").resize((32, 32), Image.Resampling.LANCZOS), float)
        cosines = np.cos(np.pi / 64 * np.outer(np.arange(8), 2 * np.arange(32) + 1))
        low = cosines @ small @ cosines.T
        bits = "".join("01"[int(value > np.median(low))] for value in low.flat)
        assert int(phash(image)[0]) == int(bits, 2)


def test_a_picture_of_one_colour_is_near_to_none():
    blank = np.stack([phash(Image.new("RGB", (50, 40), colour)) for colour in ("red", "white")])
    assert (blank == NONE).all()
    assert not len(NearHashes(blank, 11).pairs(blank))


@pytest.mark.parametrize("distance", [0, 3, 7, 11])
def test_bands_find_all_pairs_that_a_comparison_of_all_finds(distance):
    rng = np.random.default_rng(distance)
    queries = rng.integers(1, 2**64, (400, WORDS), dtype=np.uint64)
    hashes = queries[:300].copy()
    for number, flips in enumerate(rng.integers(0, 15, 300)):
        for bit in rng.choice(64, flips, replace=False).tolist():
            hashes[number, 0] ^= np.uint64(1 << bit)
    hashes[:20, 1] ^= np.uint64(2**64 - 1)  # 64 bits of the fine part
    hashes[:10, 2] ^= np.uint64(1)
    differing = np.bitwise_count(queries[:, None] ^ hashes).astype(int)
    expected = (differing[..., 0] <= distance) & (differing[..., 1:].sum(-1) <= 64)
    pairs = NearHashes(hashes, distance).pairs(queries)
    assert pairs[:, :2].tolist() == np.argwhere(expected).tolist()
    assert len(pairs) > 10
    assert (differing[pairs[:, 0], pairs[:, 1], 0] == pairs[:, 2]).all()


def test_a_distance_that_bands_cannot_find_is_refused():
    with pytest.raises(ValueError, match="number of bits from 0 to 11; got 12"):
        NearHashes(np.zeros((0, WORDS), np.uint64), 12)
    assert perceptual_hash.MOST == 11
