"""The door: names and options that are wrong say what is right."""

import pytest

from vlc_jax.input_pipeline.sources import make_source
from vlc_jax.input_pipeline.tokenizers import make_tokenizer


def test_an_unknown_name_lists_the_known_and_the_nearest():
    with pytest.raises(
        ValueError, match=r"unknown source 'scene'; did you mean 'scenes'\? known: "
    ):
        make_source("scene", "train")
    with pytest.raises(ValueError, match=r"unknown tokenizer 'clp'; did you mean 'clip'"):
        make_tokenizer("clp", 77)
