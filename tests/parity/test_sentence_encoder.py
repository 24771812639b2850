"""Vectors of a sentence-transformers model: its own pooling, its own length, found by the text."""

import json

import numpy as np
import pytest

from vlc_jax.input_pipeline.tokenizers.text_vectors import TextVectors

pytestmark = pytest.mark.slow

TEXTS = ["a red dog", "a dog on the big red mat", "the mat", "a big cat", "red"]


@pytest.fixture(scope="module")
def made(there, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentences")
    (folder / "texts.json").write_text(json.dumps(TEXTS))
    there("sentence_encoder.py", folder / "texts.json", folder)
    return folder


def test_vectors_are_means_of_tokens_at_unit_length(made):
    found = TextVectors(made / "x.npy")(TEXTS[::-1])[::-1]
    np.testing.assert_allclose(found, np.load(made / "expected.npy"), atol=1e-5)
    assert np.linalg.norm(found[0] - found[1]) > 0.01


def test_a_model_that_is_not_there_is_not_downloaded(made):
    assert "nothing is downloaded" in (made / "error.txt").read_text()
