"""Mosaics of patches: nothing of a picture is lost, and every transform works on the picture."""

import numpy as np
import pytest

from vlc_jax.input_pipeline.images import naflex
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.record import ShuffledImage

TRANSFORM = ImageTransform(32, "naflex", patch_size=8)  # 16 patches at most


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def picture_of(mosaic: np.ndarray, patch: int) -> np.ndarray:
    """The picture of a mosaic, patch by patch."""
    rows, columns = (256 * int(pixel[0]) + int(pixel[1]) for pixel in mosaic[0, 2:4])
    across = mosaic.shape[1] // patch
    picture = np.zeros((rows * patch, columns * patch, 3), np.uint8)
    for index in range(rows * columns):
        row, column = divmod(index, columns)
        top, left = (patch * i for i in divmod(index, across))
        cut = mosaic[1 + top : 1 + top + patch, left : left + patch]
        picture[row * patch :, column * patch :][:patch, :patch] = cut
    return picture


@pytest.mark.parametrize("grid", [(4, 4), (2, 5), (16, 1), (1, 3)])
def test_a_mosaic_has_every_pixel_and_the_grid(grid):
    picture = noise(*(8 * length for length in grid))
    mosaic = naflex.mosaic(picture, 8, 32)
    assert mosaic.shape == TRANSFORM.shape == (33, 32, 3)
    np.testing.assert_array_equal(picture_of(mosaic, 8), picture)
    assert mosaic[1:].astype(int).sum() == picture.astype(int).sum()


def test_a_grid_of_more_than_255_patches_a_side_is_not_cut():
    mosaic = naflex.mosaic(noise(2, 600), 2, 50)
    assert picture_of(mosaic, 2).shape == (2, 600, 3)


def test_a_picture_of_a_fitting_size_is_not_resampled():
    picture = noise(16, 64)
    mosaic = TRANSFORM(picture)
    np.testing.assert_array_equal(picture_of(mosaic, 8), picture)
    np.testing.assert_array_equal(TRANSFORM(mosaic), mosaic)
    photo = noise(*TRANSFORM.shape[:2])
    assert naflex.is_mosaic(TRANSFORM(photo), 32)
    assert not naflex.is_mosaic(photo, 32)


def test_sizes_keep_the_aspect_ratio_and_fill_the_patches():
    for height, width in [(480, 640), (640, 480), (100, 5000), (7, 7), (5000, 3)]:
        rows, columns = (side // 16 for side in naflex.best_size(height, width, 16, 256))
        assert 1 <= rows * columns <= 256
        assert abs(rows - columns * height / width) < 1 or 1 in (rows, columns)
    assert naflex.best_size(480, 640, 16, 256) == (224, 288)
    assert naflex.best_size(640, 640, 16, 256) == (256, 256)


def test_shuffles_and_jitter_are_of_the_picture():
    picture = noise(16, 64)
    shuffled = TRANSFORM(ShuffledImage(picture, "cols_4", (1, 0, 3, 2)))
    quarters = np.split(picture, 4, axis=1)
    expected = np.concatenate([quarters[i] for i in (1, 0, 3, 2)], axis=1)
    np.testing.assert_array_equal(picture_of(shuffled, 8), expected)
    darker = ImageTransform(32, "naflex", patch_size=8, brightness=0.5)
    mosaic = darker(picture, np.random.default_rng(1))
    assert naflex.is_mosaic(mosaic, 32)
    assert picture_of(mosaic, 8).shape == picture.shape


def test_a_tower_without_patches_is_refused():
    with pytest.raises(ValueError, match=r"needs the patch_size .* got none: take another crop"):
        ImageTransform(32, "naflex")


@pytest.mark.parametrize(("size", "patch"), [(33, 8), (2, 1)])
def test_image_sizes_that_are_no_whole_patches_are_refused(size, patch):
    with pytest.raises(ValueError, match="crop naflex needs an image size of whole patches"):
        ImageTransform(size, "naflex", patch_size=patch)
    with pytest.raises(ValueError, match=r"up to 16 whole patches of 8 pixels; got .* 32 x 40"):
        naflex.mosaic(noise(40, 32), 8, 32)
