"""The geometry and colours of crops, jitter and perturbation."""

import colorsys

import numpy as np
import pytest
from PIL import Image

from tests.input_pipeline.images.test_image import encode, smooth
from vlc_jax.input_pipeline.images import image_ops, perturbation, transforms
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.record import DataError


@pytest.mark.parametrize("shape", [(375, 500), (500, 375), (300, 300), (301, 257), (40, 90)])
def test_centre_crop_equals_resizing_and_cropping_afterwards(shape):
    pixels = smooth(*shape)
    picture = Image.fromarray(pixels)
    height, width = shape
    size = 64
    if width <= height:
        whole = picture.resize((size, int(size * height / width)), Image.Resampling.BICUBIC)
    else:
        whole = picture.resize((int(size * width / height), size), Image.Resampling.BICUBIC)
    top, left = (whole.height - size) // 2, (whole.width - size) // 2
    expected = np.asarray(whole)[top : top + size, left : left + size]
    np.testing.assert_array_equal(ImageTransform(size)(pixels), expected)


def test_squashing_keeps_everything_and_not_the_aspect_ratio():
    pixels = smooth(90, 30)
    got = ImageTransform(48, crop="none")(pixels)
    expected = Image.fromarray(pixels).resize((48, 48), Image.Resampling.BICUBIC)
    np.testing.assert_array_equal(got, np.asarray(expected))


@pytest.mark.parametrize("shape", [(30, 91), (91, 30)])
def test_padding_keeps_all_in_a_square_of_the_mean_colour(shape):
    pixels = smooth(*shape)
    square = np.empty((91, 91, 3), np.uint8)
    square[:] = (122, 116, 104)
    rows, columns = ((slice(None), slice(30, 60)), (slice(30, 60), slice(None)))[shape[0] == 30]
    square[rows, columns] = pixels
    np.testing.assert_array_equal(ImageTransform(91, crop="pad")(pixels), square)
    expected = Image.fromarray(square).resize((48, 48), Image.Resampling.BICUBIC)
    np.testing.assert_array_equal(ImageTransform(48, crop="pad")(pixels), np.asarray(expected))


def test_bilinear_pixels_are_pillows():
    pixels = smooth(90, 60)
    picture = Image.fromarray(pixels)
    squashed = picture.resize((48, 48), Image.Resampling.BILINEAR)
    whole = picture.resize((48, 72), Image.Resampling.BILINEAR)
    for crop, expected in (("none", squashed), ("centre", whole.crop((0, 12, 48, 60)))):
        transform = ImageTransform(48, crop=crop, interpolation="bilinear")
        np.testing.assert_array_equal(transform(pixels), np.asarray(expected))
        assert (transform(pixels) != ImageTransform(48, crop=crop)(pixels)).any()
    windows = [
        ImageTransform(48, crop="random_resized", interpolation=how)(
            pixels, np.random.default_rng(0)
        )
        for how in ("bilinear", "bicubic")
    ]
    assert 0 < np.abs(np.subtract(*windows, dtype=np.int32)).mean() < 3


@pytest.mark.parametrize("crop", ["centre", "none"])
def test_an_image_of_the_wanted_size_is_not_resampled(crop):
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    transform = ImageTransform(32, crop=crop)
    assert transform(pixels) is pixels
    np.testing.assert_array_equal(transform(encode(Image.fromarray(pixels), "PNG")), pixels)


def test_a_short_side_of_the_wanted_size_is_only_cropped():
    pixels = np.random.default_rng(0).integers(0, 256, (32, 51, 3), dtype=np.uint8)
    np.testing.assert_array_equal(ImageTransform(32)(pixels), pixels[:, 9:41])  # 9.5, rounded down


@pytest.mark.parametrize(("width", "hugging_face", "torchvision"), [
    (33, 0, 0), (34, 1, 1), (35, 1, 2), (36, 2, 2), (37, 2, 2), (39, 3, 4), (51, 9, 10),
])  # fmt: skip
def test_crops_of_two_libraries_differ_at_remainder_3_modulo_4(width, hugging_face, torchvision):
    pixels = np.random.default_rng(0).integers(0, 256, (32, width, 3), dtype=np.uint8)
    for crop, left in (("centre", hugging_face), ("centre_torchvision", torchvision)):
        for turned in (pixels, pixels.transpose(1, 0, 2)):
            expected = pixels[:, left : left + 32]
            expected = expected if turned is pixels else expected.transpose(1, 0, 2)
            found = ImageTransform(32, crop=crop)(np.ascontiguousarray(turned))
            np.testing.assert_array_equal(found, expected)


def test_a_centre_with_a_margin_is_the_centre_of_a_larger_one():
    pixels = np.random.default_rng(0).integers(0, 256, (300, 431, 3), dtype=np.uint8)
    larger = ImageTransform(256)(pixels)
    found = ImageTransform(224, crop="centre_margin")(pixels)
    np.testing.assert_array_equal(found, larger[16:-16, 16:-16])


def test_random_crop_takes_the_asked_share_of_the_area():
    ramp = np.zeros((100, 100, 3), np.uint8)
    ramp[..., 0] = np.arange(100)[None]  # red tells the column, green the row
    ramp[..., 1] = np.arange(100)[:, None]
    transform = ImageTransform(20, crop="random_resized", scale=(0.2, 0.4))
    rng = np.random.default_rng(0)
    shares, ratios = [], []
    for _ in range(200):
        crop = transform(ramp, rng).astype(int)
        width = (crop[..., 0].max() - crop[..., 0].min()) * 20 / 19
        height = (crop[..., 1].max() - crop[..., 1].min()) * 20 / 19
        shares.append(width * height / 10_000)
        ratios.append(width / height)
    assert 0.17 < min(shares) < 0.24
    assert 0.36 < max(shares) < 0.44
    assert 0.65 < min(ratios) < 0.85
    assert 1.2 < max(ratios) < 1.5


def test_fast_crops_differ_little_and_only_of_large_jpegs():
    whole = {"scale": (1.0, 1.0), "ratio": (4 / 3, 4 / 3)}
    crops = {
        crop: ImageTransform(32, crop, **whole) for crop in ("random_resized", transforms.FAST)
    }

    def difference(image):
        pair = (crop(image, np.random.default_rng(0)) for crop in crops.values())
        return np.abs(np.subtract(*pair, dtype=np.int32)).mean()

    large, small = (Image.fromarray(smooth(*shape)) for shape in ((240, 320), (48, 64)))
    assert 0 < difference(encode(large, "JPEG")) < 1  # of 255 levels; decoded at 1/4
    assert difference(encode(small, "JPEG")) == difference(encode(large, "PNG")) == 0


def test_a_shape_no_window_fits_is_cropped_to_its_centre():
    pixels = np.zeros((10, 400, 3), np.uint8)
    pixels[:, 193:207] = 255  # 4:3 of the height, in the middle
    transform = ImageTransform(16, crop="random_resized", scale=(0.9, 1.0))
    assert transform(pixels, np.random.default_rng(0)).mean() > 240


def test_jitter_of_brightness_multiplies_all_pixels_alike():
    grey = np.full((4, 4, 3), 100, np.uint8)
    found = []
    for seed in range(200):
        pixels = ImageTransform(4, brightness=0.2)(grey, np.random.default_rng(seed))
        assert len(np.unique(pixels)) == 1
        found.append(int(pixels[0, 0, 0]))
    assert 80 <= min(found) < 84
    assert 116 < max(found) <= 120
    assert abs(np.mean(found) - 100) < 3


def test_jitter_of_hue_keeps_grey_and_brightness():
    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[:2] = (200, 0, 0)
    pixels[2:] = 90
    hues = []
    for seed in range(200):
        turned = ImageTransform(4, hue=0.1)(pixels, np.random.default_rng(seed))
        assert (turned[2:] == 90).all()
        assert (turned[:2].max(axis=-1) == 200).all()
        hue = colorsys.rgb_to_hsv(*(turned[0, 0] / 255))[0]
        hues.append(hue - (hue > 0.5))
    assert -0.105 < min(hues) < -0.085
    assert 0.085 < max(hues) < 0.105


def test_jitter_follows_its_generator_and_comes_after_the_crop():
    pixels = np.random.default_rng(0).integers(0, 256, (9, 13, 3), np.uint8)
    transform = ImageTransform(6, crop="random_resized", brightness=0.3, hue=0.2)
    one, same, other = (transform(pixels, np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()
    rng = np.random.default_rng(1)
    sized = ImageTransform(6, crop="random_resized")(pixels, rng)
    expected = transforms.jitter(Image.fromarray(sized), 0.3, 0.2, rng)
    np.testing.assert_array_equal(one, np.asarray(expected))
    for needs in ({"hue": 0.1}, {"crop": "random_resized"}):
        with pytest.raises(ValueError, match="random crop or jitter needs a generator"):
            ImageTransform(6, **needs)(pixels)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"crop": "center"}, "crop must be one of"),
        ({"interpolation": "nearest"}, "interpolation must be one of"),
        ({"size": 0}, "at least 1"),
        ({"scale": (0.5, 1.5)}, "scale"),
        ({"ratio": (2.0, 1.0)}, "ratio"),
        ({"brightness": 1.5}, "brightness is from 0 to 1.0; got 1.5"),
        ({"hue": 1.5}, "hue is from 0 to 0.5; got 1.5"),
    ],
)
def test_wrong_requests_say_the_rule(options, message):
    with pytest.raises(ValueError, match=message):
        ImageTransform(**{"size": 8} | options)


def test_the_named_normalisations_are_the_published_ones():
    assert set(image_ops.NORMALISATIONS) == {"clip", "siglip", "imagenet"}
    mean, std = image_ops.NORMALISATIONS["clip"]
    assert (mean[0], std[2]) == (0.48145466, 0.27577711)
    assert image_ops.NORMALISATIONS["siglip"] == ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


def test_a_line_of_pixels_is_refused_before_it_is_blown_up():
    line = np.zeros((10_000, 1, 3), np.uint8)
    for pixels in (line, line.transpose(1, 0, 2)):
        with pytest.raises(DataError, match=r"pixels has 2,240,000 on its longer side when"):
            transforms.resize_and_centre_crop(Image.fromarray(np.ascontiguousarray(pixels)), 224)
    long = Image.fromarray(np.zeros((20, 4_000, 3), np.uint8))
    assert transforms.resize_and_centre_crop(long, 224).size == (224, 224)


def test_perspective_moves_corners_to_where_it_says():
    width, height = 60, 40
    ramps = np.mgrid[:height, :width].astype(np.uint8)  # row, then column of every pixel
    picture = Image.fromarray(np.dstack([ramps[1], ramps[0], 0 * ramps[0] + 90]))
    corners = [(6, 2), (50, 5), (55, 36), (3, 29)]
    tilted = np.asarray(perturbation.perspective(picture, corners)).astype(int)
    before = [(0, 0), (width - 1, 0), (width - 1, height - 1), (0, height - 1)]
    for (x, y), (u, v) in zip(corners, before, strict=True):
        assert np.abs(tilted[y, x, :2] - (u, v)).max() <= 1
    rng = np.random.default_rng(0)
    drawn = np.array([perturbation.moved_corners((301, 177), rng) for _ in range(500)])
    most = [(7, 4), (300, 4), (300, 176), (7, 176)]  # .05 of half a side inwards, as torchvision
    np.testing.assert_array_equal(drawn.max(axis=0), most)
    np.testing.assert_array_equal(drawn.min(axis=0), [(0, 0), (293, 0), (293, 172), (0, 172)])
    same = np.asarray(perturbation.perspective(picture, before))
    np.testing.assert_array_equal(same, np.asarray(picture))


def test_perturbed_images_have_noise_per_channel_and_hardly_move():
    transform = ImageTransform(64, "perturbed")
    image = np.full((64, 64, 3), 100, np.uint8)
    drawn = np.stack([transform(image, np.random.default_rng(seed)) for seed in range(40)])
    again = transform(image, np.random.default_rng(3))
    np.testing.assert_array_equal(drawn[3], again)
    inside = drawn[:, 8:-8, 8:-8]  # rotated corners are black
    white, black = (inside == 255), (inside == 0)
    assert 0.018 < white.mean() < 0.021  # black wins where both are drawn
    assert 0.018 < black.mean() < 0.022
    assert white.all(axis=3).mean() < 1e-3  # each channel by itself
    assert (inside[~white & ~black] == 100).all()
    assert 0 < (drawn[:, 1:3, 1:3] == 0).all(axis=(1, 2, 3)).mean() < 1  # some rotations show
    with pytest.raises(ValueError, match="needs a generator"):
        transform(image)
