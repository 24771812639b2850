"""MPT gives the logits of transformers, and Flamingo over it those of a torch reference, from the
files of Otter and of OpenFlamingo."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import plain_llava
from tests.support.compilations import apply
from vlc_jax import types
from vlc_jax.models import continuation, decode, flamingo, llava, lm
from vlc_jax.weights import llava as weights

pytestmark = pytest.mark.slow

SCRIPT, IMAGE = "flamingo_reference.py", 120
TOLERANCE = 2e-5  # of the largest value, float32


def build(sizes):
    """Image tower, resampler and decoder, and the shapes of their parameters."""
    tower = plain_llava.image_tower(**sizes["image"], layer=sizes["layer"])
    resampler, decoder = llava.Projector(0, kind="resampler"), lm.from_sizes(sizes["lm"])
    width, side, key = tower.width, tower.image_size, jax.random.key(0)
    requests = types.FeatureRequest("raw")

    def init(model, x, *more):
        return jax.eval_shape(lambda: model.init(key, x, *more))["params"]

    shapes = {
        "image": init(tower, jnp.zeros((1, side, side, 3)), requests),
        "projector": init(resampler, jnp.zeros((1, 4, width))),
        "lm": jax.eval_shape(functools.partial(lm.init, decoder), key),
    }
    return (tower, resampler, decoder), shapes


def load(folder):
    sizes = weights.read_sizes(folder)
    models, shapes = build(sizes)
    return models, weights.load(folder, sizes, shapes)


@pytest.fixture(scope="module")
def whole(folder):
    return load(folder / "otter")


@functools.partial(jax.jit, static_argnums=0)
def run(models, params, images, ids, valid, seen):
    """Latents of all images of texts, and logits; (texts, images, height, width, 3)."""
    tower, resampler, decoder = models
    request = types.FeatureRequest("raw")
    tokens = tower.apply({"params": params["image"]}, jnp.concatenate(images), request).tokens
    latents = resampler.apply({"params": params["projector"]}, tokens[:, 1:])
    latents = latents.reshape(*images.shape[:2], *latents.shape[1:])

    def logits(module):
        media = flamingo.Media(latents, seen)
        return module.logits(module(module.embed(ids), valid, media=media)[0])

    return latents, decoder.apply({"params": params["lm"]}, method=logits)


def given(io, side):
    ids = np.asarray(io[f"{side}/ids"], np.int32)
    seen = jnp.cumsum(ids == IMAGE, axis=1)
    return io["images"], ids, io[f"{side}/mask"] > 0, seen


def error(models, params, io, side):
    """Largest difference of the logits of all tokens, as a part of the largest logit."""
    _, logits = run(models, params, *given(io, side))
    expected, valid = io[f"{side}/logits"], io[f"{side}/mask"] > 0
    return np.abs(np.asarray(logits) - expected)[valid].max() / np.abs(expected[valid]).max()


def test_latents_and_logits_of_texts_with_no_one_and_two_images(whole, io):
    assert np.abs(io["right/logits"]).max() > 2
    for side in ("right", "left"):
        assert error(*whole, io, side) <= TOLERANCE
    latents = run(*whole, *given(io, "right"))[0][:, 0]
    np.testing.assert_allclose(latents, io["latents"], atol=TOLERANCE * io["latents"].max())


def test_mpt_alone_and_its_activation_and_epsilon(folder, io):
    sizes = weights.read_sizes(folder / "mpt")
    ids, valid = given(io, "left")[1:3]

    def largest(**fields):
        decoder = lm.from_sizes(sizes["lm"] | fields)
        shapes = {"lm": jax.eval_shape(functools.partial(lm.init, decoder), jax.random.key(0))}
        params = weights.load(folder / "mpt", sizes, shapes)["lm"]
        found = apply(decoder, {"params": params}, ids, valid, method="text_logits")
        return np.abs(np.asarray(found) - expected)[valid].max()

    expected = io["mpt/logits"]
    tolerance = TOLERANCE * np.abs(expected).max()
    assert largest() <= tolerance
    assert largest(activation="gelu_tanh") > 2 * tolerance
    assert largest(epsilon=1e-6) > 2 * tolerance


def test_greedy_ids(whole, io):
    decoder, params = whole[0][2], whole[1]
    ids = jax.device_put(np.asarray(io["prompt"], np.int32))
    valid, seen = np.ones(ids.shape, bool), jnp.cumsum(ids == IMAGE, axis=1)
    media = flamingo.Media(run(*whole, *given(io, "right"))[0][:2], seen)
    embeds = apply(decoder, {"params": params["lm"]}, ids, method="embed")
    prompt = continuation.Prompt(embeds, valid, media=media)
    found = decode.generate(decoder, params["lm"], (prompt,), np.array([-1]), steps=5)
    np.testing.assert_array_equal(found, io["generated"])
    assert len(np.unique(found)) > 3


@pytest.mark.parametrize("layout", ["otter_bin", "flamingo/open"])
def test_files_of_every_layout_are_the_same_tree(folder, whole, layout):
    (_, _, decoder), params = load(folder / layout)
    vocab = 128 if layout == "otter_bin" else 125  # OpenFlamingo resizes MPT's vocabulary
    assert decoder == whole[0][2].clone(vocab=vocab)
    expected = {**whole[1], "lm": dict(whole[1]["lm"])}
    embedding = expected["lm"]["token_embedding"]["embedding"][:vocab]
    expected["lm"]["token_embedding"] = {"embedding": embedding}
    jax.tree.map(np.testing.assert_array_equal, params, expected)
