"""CLEVR-bind: prompts, images of each subset."""

import pytest

from vlc_jax.input_pipeline.benchmarks import clevr_bind


def test_every_text_has_the_prompt(root):
    case = clevr_bind.clevr_bind(root, subsets=("gen",)).cases[1]
    assert case.captions[:2] == ("An image of a gen cone 1", "An image of a gen cube 1 0")
    assert len(case.captions) == 5
    (other,) = clevr_bind.clevr_bind(root, count=1, prompt="a photo of{}").cases
    assert other.captions[0] == "a photo oftrain cone 0"
    for wrong in ("An image", "{} and {}"):
        with pytest.raises(ValueError, match="prompt needs one"):
            clevr_bind.clevr_bind(root, prompt=wrong)


def test_images_of_the_same_name_are_told_apart_by_their_subset(root):
    cases = clevr_bind.clevr_bind(root).cases
    assert all(case.images[0].is_file() for case in cases)
    assert len({case.meta["record"] for case in cases}) == len({case.id for case in cases}) == 9


def test_a_prompt_is_part_of_the_version(root):
    assert clevr_bind.clevr_bind(root).version != clevr_bind.clevr_bind(root, prompt="{}").version
