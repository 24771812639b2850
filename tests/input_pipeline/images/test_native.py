"""Sizes of pictures for Qwen3-VL: whole tokens, near the picture's own size and ratio."""

import numpy as np
import pytest

from vlc_jax.input_pipeline.images import native
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.record import DataError


def test_sizes_are_rounded_to_tokens_within_the_limits():
    assert native.best_size(480, 640, 1360) == (480, 640)
    assert native.best_size(375, 500, 1360) == (384, 512)
    assert native.best_size(48, 80, 1360) == (64, 64)  # 1.5 and 2.5 tokens: half to even
    assert native.best_size(13, 20, 1360) == (64, 96)
    tall, wide = native.best_size(3000, 4000, 1360)
    assert 1700 < tall * wide // native.TOKEN**2 <= 1800
    assert native.best_size(480, 640, 160) == (128, 160)  # 25 tokens at most


@pytest.mark.parametrize(("size", "picture"), [(1360, (10, 2001)), (160, (10, 1500))])
def test_too_narrow_pictures_are_refused(size, picture):
    with pytest.raises(DataError, match="too narrow"):
        native.best_size(*picture, size)


def test_a_size_that_only_fills_memory_is_refused():
    assert native.most_tokens(1360) == native.MOST
    with pytest.raises(ValueError, match=r"at most 1,800 image tokens.*got 4096"):
        native.most_tokens(4096)


def test_heights_of_cut_mosaics_hold_their_patches():
    sizes = [(64, 64), (128, 480), (320, 320)]
    transform = ImageTransform(320, "native")
    mosaics = np.stack([transform(np.full((*size, 3), 7, np.uint8)) for size in sizes])
    heights = native.heights(mosaics)
    assert heights == [1 + 16 * rows for rows in (4, 12, 20)]
    for mosaic, height in zip(mosaics, heights, strict=True):
        assert not mosaic[height:].any()
    with pytest.raises(ValueError, match="from 64 on"):
        ImageTransform(48, "native")
