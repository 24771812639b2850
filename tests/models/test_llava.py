"""The plain LLaVA of the tests: where image tokens go, and what is refused."""

import functools

import jax
import numpy as np
import pytest

from tests.support import plain_llava
from tests.support.compilations import apply
from vlc_jax.errors import UsageError
from vlc_jax.models import llava, lm

TOWER = {"width": 16, "heads": 2, "mlp_width": 24, "image_size": 8, "patch_size": 4}
IMAGE = 120


@functools.cache
def make(select="patch"):
    model = plain_llava.LLaVA(
        image=plain_llava.image_tower(2, **TOWER),
        lm=lm.build("tiny"),
        image_id=IMAGE,
        select=select,
    )
    shapes = jax.eval_shape(functools.partial(plain_llava.init, model), jax.random.key(0))
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: (0.2 * rng.normal(size=x.shape)).astype(x.dtype), shapes)
    return model, jax.device_put(params)


def images(count=2):
    return np.random.default_rng(1).normal(size=(count, 8, 8, 3)).astype(np.float32)


@functools.partial(jax.jit, static_argnums=0)
def logits_of(model, params, images, ids, valid):
    return model.apply({"params": params}, images, ids, valid, method="text_logits")


def test_image_tokens_are_in_order_at_the_slots_of_their_row():
    model, params = make()
    ids = np.array([[1, IMAGE, IMAGE, 5, IMAGE, IMAGE], [7, 8, 9, 10, 11, 12]], np.int32)
    tokens = np.asarray(apply(model, {"params": params}, images(), method="image_tokens"))
    embeds = np.asarray(apply(model, {"params": params}, ids, tokens, method="embed"))
    np.testing.assert_array_equal(embeds[0, [1, 2, 4, 5]], tokens[0])
    table = np.asarray(params["lm"]["token_embedding"]["embedding"])
    np.testing.assert_array_equal(embeds[0, [0, 3]], table[[1, 5]])
    np.testing.assert_array_equal(embeds[1], table[ids[1]])


@pytest.mark.parametrize("select", llava.SELECTIONS)
def test_every_selection_runs_and_reads_the_image(select):
    model, params = make(select)
    count = model.num_image_tokens
    assert count == {"patch": 4, "cls": 1, "cls_patch": 5}[select]
    ids = np.array([[1, *[IMAGE] * count, 5, 6]] * 2, np.int32)
    logits = np.asarray(logits_of(model, params, images(), ids, np.ones(ids.shape, bool)))
    assert np.abs(logits[0] - logits[1])[0].max() == 0  # before the image
    assert np.abs(logits[0] - logits[1])[-1].max() > 1e-2


def test_a_layer_or_class_token_that_the_tower_lacks_is_refused():
    with pytest.raises(UsageError, match="give an index from -4 to -1"):
        plain_llava.image_tower(4, -5, **TOWER)
    model = make("cls")[0].clone(image=plain_llava.image_tower(2, **TOWER).clone(pooling="mean"))
    with pytest.raises(UsageError, match="needs a class token"):
        jax.eval_shape(functools.partial(plain_llava.init, model), jax.random.key(0))
