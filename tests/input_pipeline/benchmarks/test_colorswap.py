"""ColorSwap: both packings give the same cases."""

import numpy as np
import pytest

from tests.support.sets import colorswap as miniature
from tests.support.sets.files import write_parquet
from vlc_jax.input_pipeline.benchmarks import colorswap
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError, PackedImage


def test_images_inside_parquet_files_are_those_of_the_folder(tmp_path):
    miniature.write(tmp_path / "authors")
    miniature.write_packed(tmp_path / "packed")
    plain = colorswap.colorswap(tmp_path / "authors").cases
    packed = colorswap.colorswap(tmp_path / "packed").cases
    assert [case.captions for case in plain] == [case.captions for case in packed]
    assert [case.id for case in plain] == [case.id for case in packed]
    assert [case.group for case in plain] == [case.group for case in packed]
    for one, other in zip(plain, packed, strict=True):
        assert all(isinstance(each, PackedImage) for each in other.images)
        for left, right in zip(one.images, other.images, strict=True):
            np.testing.assert_array_equal(image_ops.decode(left), image_ops.decode(right))


def test_each_caption_belongs_to_the_image_of_its_number(tmp_path):
    miniature.write(tmp_path)
    case = colorswap.colorswap(tmp_path).cases[1]
    assert [each.name for each in case.images] == ["img_1_1.png", "img_1_2.png"]
    assert case.captions == ("a red hat on a blue bench 1", "a blue hat on a red bench 1")
    assert case.group == {"image_source": "dalle3", "caption_source": "human"}


def test_a_parquet_file_of_other_columns_is_refused(tmp_path):
    write_parquet(tmp_path / "colorswap" / "test-0.parquet", [{"caption_1": "a hat"}])
    with pytest.raises(DataError, match=r"test-0\.parquet has no column 'caption_2'"):
        colorswap.colorswap(tmp_path)
