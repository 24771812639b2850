import numpy as np
import pytest
from PIL import Image

from tests.support import sets
from vlc_jax.input_pipeline.benchmarks import PUBLISHED
from vlc_jax.input_pipeline.benchmarks.option_items import from_items, to_items
from vlc_jax.input_pipeline.record import DataError


class AuthorsData:
    """Relation of ARO as its authors' class gives it: the false caption first."""

    def __init__(self, number=3):
        self.number = number

    def __len__(self):
        return self.number

    def __getitem__(self, index):
        picture = Image.new("RGB", (8, 6), (index, 0, 0))
        captions = [f"grass eats horse {index}", f"horse eats grass {index}"]
        return {"image_options": [picture], "caption_options": captions}


def test_items_become_cases_with_the_correct_option_first():
    benchmark = from_items(AuthorsData(), "relation", correct=1, groups=["a", "b", "a"])
    case = benchmark.cases[2]
    assert case.captions == ("horse eats grass 2", "grass eats horse 2")
    assert case.group == "a"
    np.testing.assert_array_equal(case.images[0][0, 0], [2, 0, 0])
    assert from_items(AuthorsData(2), "relation", correct=1).version != benchmark.version


def test_pairs_keep_their_order_and_image_options_are_first():
    pair = {"image_options": [b"0", b"1"], "caption_options": ["0", "1"]}
    assert from_items([pair], "pairs").cases[0].images == (b"0", b"1")
    images = {"image_options": [b"0", b"1", b"2"], "caption_options": ["two"]}
    assert from_items([images], "images", correct=[2]).cases[0].images == (b"2", b"0", b"1")


@pytest.mark.parametrize("item", [{}, {"image_options": [b"0"], "caption_options": ["x"]}])
def test_items_without_the_correct_option_are_refused(item):
    with pytest.raises(DataError, match=r"item 0 of b has .* the correct option is 1"):
        from_items([item], "b", correct=1)


def test_benchmarks_there_and_back_are_the_same(tmp_path):
    root = sets.write_all(tmp_path)
    benchmark = PUBLISHED["vg_relation"][0](root=root)
    items = to_items(benchmark)
    assert items[0]["image_options"][0].size == (30, 26)  # the crop, as the authors give it
    back = from_items(items, "vg_relation")
    assert [case.captions for case in back.cases] == [case.captions for case in benchmark.cases]
    sizes = to_items(benchmark, preprocess=lambda picture: picture.size)
    assert sizes[0]["image_options"] == [(30, 26)]
