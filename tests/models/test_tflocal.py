"""TFLocal: the transformer over patches and tokens, pair by pair."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.compilations import apply
from vlc_jax import errors, models, types

IMAGES, PATCHES, LENGTH, EMBED, WIDTH, HEADS = 3, 5, 6, 7, 8, 2
FIELDS = {"patches": PATCHES, "length": LENGTH, "hidden": WIDTH, "attention_heads": HEADS}
HEAD = models.HEADS["tflocal"](**FIELDS, depth=2, chunk=2)


def scored(head, image, text):
    given = head.image(image), head.text(text)
    return head.score(*given), head.score_options(*given)


@pytest.fixture(scope="module")
def given():
    """Parameters, drawn at random so that no norm or bias is neutral, and features."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.normal(size=shape).astype(np.float32)

    ends = np.array([2, 5, 0, 3, 4, 1])
    mask = np.arange(LENGTH)[None] <= ends[:, None]
    image = types.ImageFeatures(normal(IMAGES, EMBED), normal(IMAGES, PATCHES, EMBED))
    text = types.TextFeatures(normal(6, EMBED), normal(6, LENGTH, EMBED), mask)
    key = jax.random.key(0)
    shapes = jax.eval_shape(lambda *x: HEAD.init(*x, method=scored), key, image, text)
    return jax.tree.map(lambda x: 0.8 * normal(*x.shape), shapes), image, text


def layer_norm(x, p):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return x * p["scale"] + p["bias"]


def dense(x, p):
    return x @ p["kernel"] + p["bias"]


def gelu(x):
    erf = np.vectorize(__import__("math").erf)
    return x * (1 + erf(x / np.sqrt(2))) / 2


def oracle(params, v, patches, u, tokens):
    """The score of one pair, by the formulas of a pre-norm transformer over all of its tokens."""
    image = dense(np.vstack([v[None], patches[1:]]), params["image_map"])
    text = dense(np.vstack([u[None], tokens]), params["text_map"])
    net = params["transformer"]
    image, text = image + params["image_positions"], text + params["text_positions"][: len(text)]
    x = np.vstack([net["class_token"][None], image, text])
    for number in range(2):
        block = net[f"block_{number}"]
        y = layer_norm(x, block["attention_norm"])
        query = dense(y, block["attention"]["query"])
        key, value = np.split(dense(y, block["attention"]["key_value"]), 2, axis=1)
        mixed = []
        for q, k, w in zip(*(np.split(z, HEADS, axis=1) for z in (query, key, value)), strict=True):
            e = np.exp(q @ k.T / np.sqrt(WIDTH // HEADS))
            mixed.append(e / e.sum(1, keepdims=True) @ w)
        x = x + dense(np.hstack(mixed), block["attention"]["out"])
        y = dense(layer_norm(x, block["mlp_norm"]), block["mlp"]["up"])
        x = x + dense(gelu(y), block["mlp"]["down"])
    return dense(layer_norm(x[:1], net["norm"]), net["out"])[0, 0]


def of_all_pairs(variables, image, text):
    return np.array(
        [
            [
                oracle(variables["params"], v, patches, u, tokens[real])
                for u, tokens, real in zip(*text[:3], strict=True)
            ]
            for v, patches in zip(*image[:2], strict=True)
        ]
    )


def test_a_score_is_a_transformer_over_the_tokens_of_the_pair(given):
    scores, own = map(np.asarray, apply(HEAD, *given, method=scored))
    expected = of_all_pairs(*given)
    np.testing.assert_allclose(scores, expected, rtol=2e-4, atol=2e-4)
    assert np.std(expected) > 0.1
    options = np.arange(6).reshape(IMAGES, 2)
    np.testing.assert_allclose(own, np.take_along_axis(scores, options, axis=1), atol=1e-4)


def test_gradients_are_the_slopes_of_these_formulas(given):
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(IMAGES, 6)).astype(np.float32)

    def value(variables, image, text):
        return jnp.sum(weights * HEAD.apply(variables, image, text, method=scored)[0])

    slopes = jax.device_get(jax.jit(jax.grad(value, (0, 1, 2), allow_int=True))(*given))
    found, flat, tree = 0.0, *jax.tree.flatten(given)
    is_real = [x.dtype == np.float32 for x in flat]  # not the mask
    directions = [rng.normal(size=x.shape) for x in flat]
    for slope, direction, real in zip(jax.tree.leaves(slopes), directions, is_real, strict=True):
        found += np.sum(slope * direction) if real else 0

    def moved(step):
        leaves = zip(flat, directions, is_real, strict=True)
        there = [x + step * direction if real else x for x, direction, real in leaves]
        return np.sum(weights * of_all_pairs(*jax.tree.unflatten(tree, there)))

    expected = (moved(1e-5) - moved(-1e-5)) / 2e-5
    assert found == pytest.approx(expected, rel=1e-4)


def test_sizes_on_a_b32_give_the_documented_parameters():
    model = models.build("tflocal", "B/32")
    shapes = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    count = sum(x.size for x in jax.tree.leaves(shapes["head"]))
    assert round(count / 1e6, 1) == 13.2


@pytest.mark.parametrize("sizes", [{"hidden": 70, "attention_heads": 4}, {"depth": 0}])
def test_sizes_that_do_not_fit_together_are_refused(given, sizes):
    head = models.HEADS["tflocal"](**{**FIELDS, **sizes})
    with pytest.raises(errors.UsageError, match=r"depth .* from 1 on, and hidden a multiple of"):
        jax.eval_shape(lambda *x: head.init(*x, method=scored), jax.random.key(0), *given[1:])
