"""What a user passes to a loaded model: other things than lists, pixels and ids are refused."""

import inspect
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vlc_jax.encode import inputs
from vlc_jax.errors import UsageError

as_images, as_texts = (inspect.unwrap(each) for each in (inputs.as_images, inputs.as_texts))
PIXELS = np.zeros((2, 8, 8, 3), np.uint8)


@pytest.mark.parametrize(
    ("read", "one"),
    [
        *((as_images, one) for one in (None, 5, "a.jpg", b"", Path("a.jpg"), PIXELS[0])),
        (as_images, Image.new("RGB", (4, 4))),
        *((as_texts, one) for one in (None, 5, "a", b"a")),
    ],
)
def test_what_is_no_list_is_refused_by_its_type(read, one):
    with pytest.raises(UsageError, match=f"are a list, even of one; got {type(one).__name__}"):
        read(one)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"text": np.zeros((2, 3), int)}, r"ids are of tokenizer, \(texts, 77\); .* \(2, 3\)"),
        ({"text": np.zeros(77, int)}, r"ids are of tokenizer, .* got the shape \(77,\)"),
        ({"text": ["a", "b"]}, r"ids are of tokenizer, .* got the shape \(2,\)"),
        ({"negative_text": np.zeros((2, 1, 78), int)}, r"got the shape \(2, 1, 78\)"),
        ({"image": np.zeros((2, 9, 9, 3))}, r"of preprocess, \(images, 8, 8, 3\); .* 9, 9, 3\)"),
        ({"image": PIXELS.transpose(0, 3, 1, 2)}, r"got the shape \(2, 3, 8, 8\)"),
        ({"image": PIXELS + np.float32(0.5)}, "pixels are from 0 to 255; got floats up to 1"),
    ],
)
def test_pixels_and_ids_are_those_of_the_model(batch, message):
    with pytest.raises(UsageError, match=message):
        inputs.check_arrays(batch, (8, 8, 3), 77)


def test_black_pixels_and_hard_texts_are_taken():
    ids = np.zeros((2, 77), int)
    batch = {"image": PIXELS.astype(float), "text": ids, "negative_text": ids[:, None]}
    inputs.check_arrays(batch, (8, 8, 3), 77)
