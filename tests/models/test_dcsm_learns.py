"""DCSM tells bindings that the cosine of the same towers cannot see."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vlc_jax import models, types
from vlc_jax.losses import infonce, masks

KINDS, SETS = 6, 64  # colours, and shapes; pictures, each with its exchanged twin


def binding_set(seed):
    """Pictures of two coloured shapes on two patches, and twins with their colours exchanged, each
    with its caption: tokens of towers that see all words, and pooled means that know no binding."""
    rng = np.random.default_rng(seed)
    names = np.random.default_rng(0).normal(size=(2, KINDS, 24))  # of colours and of shapes
    image, text = 0.3 * rng.normal(size=(2, SETS, 2, 8, 24))
    for i in range(SETS):
        colours, shapes = (rng.permutation(KINDS)[:2] for _ in range(2))
        places = rng.permutation(8)[:2]
        for twin in range(2):
            for place, colour, shape in zip(places, colours, shapes, strict=True):
                image[i, twin, place] += names[0, colour] + names[1, shape]
            for word, (colour, shape) in enumerate(zip(colours, shapes, strict=True)):
                text[i, twin, 1 + 3 * word] += names[0, colour]
                text[i, twin, 2 + 3 * word] += names[1, shape]
            colours = colours[::-1]

    def unit(x):
        return jnp.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True), "f4")

    image, text = (x.reshape(2 * SETS, 8, 24) for x in (image, text))
    marks = jnp.zeros((2 * SETS, 8), jnp.int8)
    return (
        types.ImageFeatures(unit(image.mean(1)), unit(image)),
        types.TextFeatures(unit(text.mean(1)), unit(text), None, marks),
    )


def scored(module, image, text):
    return module.score(module.image(image), module.text(text))


def two_way(scores):
    """How often a picture prefers its caption to that of its twin, strictly."""
    blocks = np.asarray(scores).reshape(SETS, 2, SETS, 2)[np.arange(SETS), :, np.arange(SETS)]
    own, other = blocks[:, [0, 1], [0, 1]], blocks[:, [0, 1], [1, 0]]
    return (own > other).mean()


@pytest.mark.slow
def test_it_learns_bindings_that_the_cosine_cannot_see():
    head = models.HEADS["dcsm"](8, 8, num_functional_words=0, standardise="running")
    image, text = binding_set(1)
    variables = head.init(jax.random.key(0), image, text, method=scored)
    optimizer = optax.adam(5e-3)

    def loss(params, batch_stats, image, text):
        def all_scores(module, image, text):
            return module.outputs(image, {"text": text})[0]["text"][0]

        variables = {"params": params, "batch_stats": batch_stats}
        scores, updated = head.apply(
            variables, image, text, method=all_scores, mutable=["batch_stats"]
        )
        pair_masks = masks.pair_masks({"mask": jnp.ones(len(scores), bool)})
        return 2 * infonce.dense(scores, jnp.ones(()), pair_masks).mean(), updated

    @jax.jit
    def fit(variables, features):
        def step(carry, rows):
            variables, state = carry
            params = variables["params"]
            (_, updated), gradient = jax.value_and_grad(loss, has_aux=True)(
                params, variables["batch_stats"], *jax.tree.map(lambda x: x[rows], features)
            )
            updates, state = optimizer.update(gradient, state, params)
            return ({"params": optax.apply_updates(params, updates), **updated}, state), None

        rows = np.random.default_rng(2).permuted(np.tile(np.arange(SETS), (20, 1)), axis=1)
        rows = rows.reshape(-1, 8, 1) * 2 + np.arange(2)  # 8 pictures and their twins
        carry = variables, optimizer.init(variables["params"])
        return jax.lax.scan(step, carry, rows.reshape(-1, 16))[0][0]

    def scores(variables, features):
        return jax.jit(head.apply, static_argnames="method")(variables, *features, method=scored)

    variables = fit(variables, (image, text))
    assert two_way(scores(variables, (image, text))) > 0.95
    assert two_way(scores(variables, binding_set(2))) > 0.8
    cosine = two_way(models.heads.dot(image.pooled, text.pooled))
    assert abs(cosine - 0.5) < 0.15
