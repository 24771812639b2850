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


def features(model, params, io, padding=-1):
    """Tokens of the tower, queries and image tokens, for one question per picture."""
    asked = np.where(io["asked"] == -1, padding, io["asked"]).astype(np.int32)

    def call(model, pixels, asked):
        tokens, is_token = model.encode_image(pixels).tokens, asked <= -2
        ids = jax.numpy.where(is_token, -2 - asked, 0)
        queries = model.head.reader(tokens, ids, is_token.sum(axis=1))
        return tokens, queries, model.head.image_tokens(tokens, asked)

    # without optimisation: each mistake is another program
    apply = jax.jit(nn.apply(call, model))
    found = apply({"params": params}, jax.device_put(io["pixels"]), asked)
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


# Changes of the tower, of the head, of the Q-Former, and the padding of the questions.
MISTAKES = {
    "epsilon of the tower": {"image": {"epsilon": 1e-5}},
    "before the last norm": {"head": {"stage": "raw"}},
    "no class token": {"head": {"select": "patch"}},
    "epsilon": {"qformer": {"epsilon": 1e-5}},
    "activation": {"qformer": {"activation": "gelu_tanh"}},
    "padding is read": {"padding": -2},
    "MLP of the text": {"swapped": ("mlp", "query_mlp")},
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found(loaded, io, name):
    (model, params), change = loaded, MISTAKES[name]
    head = model.head.clone(**change.get("head", {}))
    head = head.clone(qformer={**head.qformer, **change.get("qformer", {})})
    model = model.clone(image=model.image.clone(**change.get("image", {})), head=head)
    if "swapped" in change:
        a, b = change["swapped"]
        reader = {**params["head"]["reader"]}
        reader["block_0"] = reader["block_0"] | {a: reader["block_0"][b], b: reader["block_0"][a]}
        params = {**params, "head": {**params["head"], "reader": reader}}
    found = features(model, params, io, change.get("padding", -1))["projected"]
    assert np.abs(found - io["projected"]).max() > 2 * TOLERANCE
