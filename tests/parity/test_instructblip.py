"""InstructBLIP from its folder: the numbers of transformers, from pixels to answers."""

import jax
import numpy as np
import pytest
from flax import linen as nn

import vlc_jax
from vlc_jax.setup import init_from, resolve
from vlc_jax.setup.llava_config import config_of_llava
from vlc_jax.weights import llava as weights

pytestmark = pytest.mark.slow

SCRIPT = "instructblip_reference.py"
CAPTIONS = ["a red circle", "the blue square on the left"]
QUESTION = "Is the circle on the left or on the right?"
TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def loaded(folder):
    setup = resolve(config_of_llava(folder / "model"), "weights")
    return setup.model, init_from.load_complete(setup)


def features(model, params, io):
    """Tokens of the tower, queries and image tokens, for one question per picture."""

    def call(model, pixels, asked):
        tokens, is_token = model.encode_image(pixels).tokens, asked <= -2
        ids = jax.numpy.where(is_token, -2 - asked, 0)
        queries = model.head.reader(tokens, ids, is_token.sum(axis=1))
        return tokens, queries, model.head.image_tokens(tokens, asked)

    asked = io["asked"].astype(np.int32)
    found = jax.jit(nn.apply(call, model))({"params": params}, io["pixels"], asked)
    return dict(zip(("vision", "query", "projected"), found, strict=True))


def test_every_part_gives_the_numbers_of_transformers(loaded, io):
    assert (io["asked"] == -1).any()
    for name, array in features(*loaded, io).items():
        assert np.abs(io[name]).max() > 1
        np.testing.assert_allclose(array, io[name], atol=TOLERANCE)


def test_vqascores_and_answers_are_those_of_transformers(folder, io):
    model, pictures = vlc_jax.load(folder / "model"), list(io["pictures"])
    scores = model.score(pictures, CAPTIONS)
    np.testing.assert_allclose(scores, io["scores"], atol=TOLERANCE)
    assert np.ptp(scores, axis=0).min() > 0.01
    answers = model.answers(pictures, [QUESTION] * 3, max_tokens=10)
    assert answers == io["answers"].tolist()
    assert len({*answers}) == 3


def test_transformers_loads_the_export_and_gives_its_numbers(loaded, folder, io, there, tmp_path):
    sizes, (_, params) = weights.read_sizes(folder / "model"), loaded
    weights.save({"image": params["image"], **params["head"]}, sizes, tmp_path)
    assert weights.read_sizes(tmp_path) == sizes
    there(SCRIPT, folder, tmp_path)
    np.testing.assert_allclose(np.load(folder / "logits.npy"), io["logits"], atol=TOLERANCE)
