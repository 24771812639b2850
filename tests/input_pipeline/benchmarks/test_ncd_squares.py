"""NCD squares: captions made of the names of images, in both orders."""

import pytest

from tests.support.sets import ncd_squares as miniature
from vlc_jax.input_pipeline.benchmarks import ncd_squares
from vlc_jax.input_pipeline.record import DataError


def test_captions_are_made_of_the_name_of_the_image(tmp_path):
    miniature.write(tmp_path)
    cases = ncd_squares.ncd_squares(tmp_path).cases
    assert [case.meta["record"] for case in cases] == [*miniature.NAMES[:2]] * 2
    first, second = cases[1], cases[3]
    assert first.captions == (
        "A picture of a red apple and a blue corn",
        "A picture of a blue apple and a red corn",
    )
    assert second.captions == (
        "A picture of a blue corn and a red apple",
        "A picture of a red corn and a blue apple",
    )
    assert [first.group["subset"], second.group["subset"]] == [*ncd_squares.SUBSETS]
    assert "a red plum" in cases[0].captions[0]


def test_an_image_of_another_name_is_refused(tmp_path):
    miniature.write(tmp_path)
    (tmp_path / ncd_squares.ORIGIN.folder / "apple.jpg").touch()
    with pytest.raises(DataError, match=r"apple\.jpg is not called COLOUR_OBJECT_COLOUR_OBJECT"):
        ncd_squares.ncd_squares(tmp_path)
