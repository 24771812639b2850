"""Pixels are those of transformers' image processors and of torchvision, whatever the size."""

import numpy as np
import pytest
from PIL import Image

from vlc_jax.input_pipeline.images.transforms import ImageTransform

pytestmark = pytest.mark.slow

SIZES = [(500, 375), (375, 500), (333, 251), (251, 333), (640, 427), (1023, 767), (224, 224),
         (225, 224), (224, 301), (97, 61), (61, 97), (1200, 225)]  # fmt: skip


def test_pixels_are_those_of_transformers_on_odd_sizes(there, tmp_path):
    rng = np.random.default_rng(0)
    pictures = {}
    for width, height in SIZES:
        coarse = rng.integers(0, 256, size=(height // 9 + 2, width // 9 + 2, 3), dtype=np.uint8)
        picture = Image.fromarray(coarse).resize((width, height), Image.Resampling.BILINEAR)
        noise = rng.integers(-20, 20, size=(height, width, 3))
        pixels = np.clip(np.asarray(picture) + noise, 0, 255).astype(np.uint8)
        pictures[f"{width}x{height}"] = pixels
        Image.fromarray(pixels).save(tmp_path / f"{width}x{height}.png")
    for mode, size in (("L", "333x251"), ("RGBA", "97x61")):
        name = f"{mode}{size}"
        Image.fromarray(pictures[size]).convert(mode).save(tmp_path / f"{name}.png")
        pictures[name] = tmp_path / f"{name}.png"
    there("process_images.py", tmp_path, tmp_path / "out.npz")
    options = {
        "clip": {"crop": "centre"},
        "torchvision": {"crop": "centre_torchvision"},
        "llava": {"crop": "pad"},
        "siglip": {"crop": "none"},
        "siglip2": {"crop": "none", "interpolation": "bilinear"},
        "naflex": {"crop": "naflex", "interpolation": "bilinear", "patch_size": 16},
    }
    with np.load(tmp_path / "out.npz") as expected:
        assert len(expected.files) == (len(options) + 1) * len(pictures)
        for key in expected.files:
            size, family = key.split("/")
            if family == "grid":
                continue
            # of naflex 256 patches, the processor's default
            side = 256 if family == "naflex" else 224
            ours = ImageTransform(side, **options[family])(pictures[size])
            if family == "naflex":
                (_, _, *grid), ours = ours[0, :4, :2].astype(int) @ [256, 1], patches_of(ours[1:])
                assert grid == expected[f"{size}/grid"].tolist(), key
            np.testing.assert_array_equal(ours, expected[key], err_msg=key)


def patches_of(mosaic: np.ndarray) -> np.ndarray:
    """(256, 256, 3) -> (256 patches, 768), in reading order."""
    return mosaic.reshape(16, 16, 16, 16, 3).swapaxes(1, 2).reshape(256, -1)
