"""VLM2Vec against its formula: one image or text at a time, without padding."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import small_models
from vlc_jax import models

WIDTH, VOCAB, LENGTH, EOS = 8, 12, 6, 11
PREFIX = (7, 3)
LENGTHS = (3, 0, 5)  # tokens before the end token
SMALL = {"width": 8, "heads": 2, "depth": 1}


@pytest.fixture(scope="module")
def model():
    """A model whose texts and questions are short token ids, and its parameters."""
    sizes = {"width": WIDTH, "depth": 2, "attention_heads": 2}
    net = models.build(
        "vlm2vec",
        "B/32",
        head={**sizes, "prefix": PREFIX},
        text_tower=False,
        vocab_size=VOCAB,
        context_length=LENGTH,
        eos_id=EOS,
        image={**SMALL, "projection": None, "image_size": 8, "patch_size": 4},
    )
    return net, {"params": jax.device_put(small_models.parameters(net, 0.4))}


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(1)
    image = rng.normal(size=(len(LENGTHS), 8, 8, 3)).astype(np.float32)
    return {"image": image, "text": ids(rng), "question": ids(rng)}


def ids(rng):
    """Rows that end with EOS, and something else behind it."""
    rows = rng.integers(0, EOS, (len(LENGTHS), LENGTH)).astype(np.int32)
    rows[np.arange(len(LENGTHS)), LENGTHS] = EOS
    return rows


def embedding(module, tokens, ids, length):
    """Of the first `length` ids behind image tokens, (1, any, width): no mask, no end token; the
    last of them sees none of those behind it.
    """
    parts = [module.head.lm.embed(jnp.array([PREFIX])), tokens, module.head.lm.embed(ids[None])]
    read = jnp.concatenate(parts, axis=1)
    hidden, _ = module.head.lm(read, jnp.ones(read.shape[:2], bool))
    last = hidden[0, len(PREFIX) + tokens.shape[1] + length - 1]
    return last / jnp.linalg.norm(last)


def of_image(module, image, question, length):
    features = module.image(image[None], module.head.requests[0])
    return embedding(module, module.head.projector(features.tokens[:, 1:]), question, length)


def of_text(module, text, length):
    return embedding(module, jnp.zeros((1, 0, WIDTH)), text, length)


def test_an_image_is_embedded_at_the_last_token_of_its_question(model, batch):
    net, variables = model
    one = jax.jit(functools.partial(net.apply, variables, method=of_image))
    expected = [*map(one, batch["image"], batch["question"], LENGTHS)]
    encode = jax.jit(functools.partial(net.apply, variables, method="encode_image"))
    found = jax.device_get(encode(batch["image"], batch["question"]))
    np.testing.assert_allclose(found.pooled, np.stack(expected), atol=1e-5)
    assert found.tokens is None
    assert found.question is None
    without = jax.device_get(encode(batch["image"]))
    expected = [one(image, batch["question"][0], 0) for image in batch["image"]]
    np.testing.assert_allclose(without.pooled, np.stack(expected), atol=1e-5)
    gaps = np.abs(found.pooled - without.pooled).max(axis=1)
    np.testing.assert_array_equal(gaps > 1e-3, np.array(LENGTHS) > 0)  # an empty question is none


def test_a_text_is_embedded_at_its_last_token_without_the_end(model, batch):
    net, variables = model
    one = jax.jit(functools.partial(net.apply, variables, method=of_text))
    encode = jax.jit(functools.partial(net.apply, variables, method="encode_text"))
    found = np.asarray(encode(batch["text"]).pooled)
    for row, text, length in zip(found, batch["text"], LENGTHS, strict=True):
        # of an empty text, such as a missing negative, the end token alone
        expected = one(text, max(length, 1))
        np.testing.assert_allclose(row, expected, atol=1e-5)
    other = batch["text"].copy()
    other[0, LENGTHS[0] + 1 :] = 0  # behind the end
    again = encode(other).pooled
    np.testing.assert_allclose(again, found, atol=1e-6)


def test_a_query_of_text_alone_is_embedded_as_that_text(model, batch):
    net, variables = model
    has_image = np.array([False, True, False])
    call = jax.jit(net.apply)
    batch = {**batch, "question": batch["question"].copy()}
    batch["question"][1, 1] = EOS
    found = np.asarray(call(variables, {**batch, "has_image": has_image}).image.pooled)
    encode = jax.jit(functools.partial(net.apply, variables, method="encode_text"))
    expected = np.asarray(encode(batch["question"]).pooled)
    np.testing.assert_allclose(found[::2], expected[::2], atol=1e-5)
    whole = np.asarray(call(variables, batch).image.pooled)
    np.testing.assert_allclose(found[1], whole[1], atol=1e-6)
    assert np.abs(found[::2] - whole[::2]).max() > 1e-2


def test_scores_of_a_batch_are_cosines_by_micro_batches_too(model, batch):
    net, variables = model
    batch = {**batch, "negative_text": np.stack([batch["question"]] * 2, axis=1)}
    call = jax.jit(net.apply)
    outputs = jax.device_get(call(variables, batch))
    cosines = outputs.image.pooled @ outputs.text.pooled.T
    np.testing.assert_allclose(outputs.scores, cosines, atol=1e-5)
    features = jax.jit(functools.partial(net.apply, method="micro_features"))(variables, batch)
    assert {key: x.shape for key, x in features.items()} == {
        "image_embedding": (len(LENGTHS), WIDTH),
        "text_embedding": (len(LENGTHS), WIDTH),
        "negative_text_embedding": (len(LENGTHS), 2, WIDTH),
    }
    again = call(variables, {**batch, **features})
    for name in ("scores", "negative_scores", "own_negative_scores"):
        np.testing.assert_allclose(getattr(again, name), getattr(outputs, name), atol=1e-6)


def test_the_parameters_are_those_of_a_captioner(model):
    _, variables = model
    options = {"width": WIDTH, "depth": 2, "attention_heads": 2}
    other = models.build("captioner", "B/32", head=options, text_tower=False, vocab_size=VOCAB)
    shapes = jax.eval_shape(functools.partial(models.init, other), jax.random.key(0))
    assert jax.tree.structure(shapes["head"]) == jax.tree.structure(variables["params"]["head"])
