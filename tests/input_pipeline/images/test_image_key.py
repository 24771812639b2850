"""Keys of images: equal for equal content, whatever holds it."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from vlc_jax.input_pipeline.images.image_key import ImageKeys, image_key
from vlc_jax.input_pipeline.record import DataError


@dataclass(frozen=True)
class Box:
    """An image that is read lazily: a part of a file."""

    path: Path
    box: tuple[int, int, int, int]


@dataclass(frozen=True)
class OtherBox:
    path: Path
    box: tuple[int, int, int, int]


def test_a_file_its_copy_and_its_bytes_have_one_key(tmp_path):
    (tmp_path / "a.png").write_bytes(b"pixels")
    (tmp_path / "b.png").write_bytes(b"pixels")
    (tmp_path / "c.png").write_bytes(b"others")
    keys = [image_key(tmp_path / f"{name}.png") for name in "abc"]
    assert keys[0] == keys[1] == image_key(b"pixels") != keys[2]


def test_a_box_of_a_file_is_an_image_of_its_own(tmp_path):
    for name, content in (("a", b"pixels"), ("b", b"pixels"), ("c", b"others")):
        (tmp_path / name).write_bytes(content)
    boxes = [Box(tmp_path / "a", (0, 0, 1, 1)), Box(tmp_path / "a", (0, 0, 1, 2))]
    boxes += [Box(tmp_path / "c", (0, 0, 1, 1)), OtherBox(tmp_path / "a", (0, 0, 1, 1))]
    keys = [image_key(box) for box in boxes] + [image_key(tmp_path / "a")]
    assert len(set(keys)) == 5
    assert image_key(Box(tmp_path / "b", (0, 0, 1, 1))) == keys[0]


def test_arrays_of_equal_bytes_and_another_shape_or_type_differ():
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    others = [pixels.reshape(4, 2, 3), pixels.view(np.int8), pixels.tobytes(), pixels[::-1]]
    assert len({image_key(image) for image in [pixels, *others]}) == 5
    assert image_key(np.asfortranarray(pixels)) == image_key(pixels)


def test_a_file_is_read_once_until_it_changes(tmp_path, monkeypatch):
    file, read = tmp_path / "a.png", []
    monkeypatch.setattr(
        "vlc_jax.input_pipeline.images.image_key.read_bytes",
        lambda path: read.append(path) or path.read_bytes(),
    )
    file.write_bytes(b"first")
    keys = ImageKeys()
    assert keys(file) == keys(file) == keys(Path(str(file)))
    assert len(read) == 1
    file.write_bytes(b"other")
    os.utime(file, ns=(1, 1))
    assert keys(file) == image_key(b"other")


def test_what_is_no_image_is_refused(tmp_path):
    with pytest.raises(DataError, match="got str"):
        image_key("a.png")
    with pytest.raises(DataError, match="does not exist"):
        ImageKeys()(tmp_path / "missing.png")
