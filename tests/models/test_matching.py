"""Hard negatives of image-text matching: what they are drawn by, and the pairs that are scored."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from scipy import special, stats

from tests.models.test_heads import EMBED, HEADS, LENGTH, PATCHES, assert_close
from tests.support import small_models
from vlc_jax import losses, models, types
from vlc_jax.models import blip

PAIRS = 8


def test_negatives_are_drawn_by_the_softmax_over_other_images():
    rng, count = np.random.default_rng(0), 20_000
    logits = 2 * rng.normal(size=(5, 5)).astype(np.float32)
    logits[0, 3] = 12.0  # a share of nearly 1, of which no other image is left much
    is_other = ~np.eye(5, dtype=bool)
    is_other[0, 3] = is_other[3, 0] = False  # the same image
    is_other[4] = is_other[:, 4] = False  # padding

    def draw(key, floor):
        return blip.negatives(key, jnp.asarray(logits), jnp.asarray(is_other), floor)

    draw = jax.jit(jax.vmap(draw, in_axes=(0, None)), static_argnums=1)
    for floor in (0.0, 1e-5):
        keys = jax.random.split(jax.random.key(1), count)
        for drawn, rows, mask in zip(
            draw(keys, floor), (logits, logits.T), (is_other, is_other.T), strict=True
        ):
            shares = np.where(mask, special.softmax(np.float64(rows), axis=1) + floor, 0)
            for row in range(4):
                found = np.bincount(np.asarray(drawn)[:, row], minlength=5)
                assert found[~mask[row]].sum() == 0
                expected = count * shares[row][mask[row]] / shares[row].sum()
                assert stats.chisquare(found[mask[row]], expected).pvalue > 1e-3, (floor, row)
    # nothing that could be drawn
    assert not np.asarray(drawn)[:, 4].any()


def features():
    rng = np.random.default_rng(0)
    image = types.ImageFeatures(
        *(
            rng.normal(size=(PAIRS, *axes)).astype(np.float32)
            for axes in ((EMBED,), (PATCHES, EMBED))
        )
    )
    mask = np.arange(LENGTH)[None] < rng.integers(2, LENGTH + 1, PAIRS)[:, None]
    ids = rng.integers(0, 8, (PAIRS, LENGTH)).astype(np.int32)
    text = types.TextFeatures(np.zeros((PAIRS, 1), np.float32), mask=mask, ids=ids)
    ids = np.stack([np.zeros(PAIRS), [0, 1, 2, 3, 4, 5, 1, 7]], axis=1).astype(np.uint32)
    return jax.device_put((image, text, ids, np.arange(PAIRS) != 5))


def matched(module, image, text, ids, mask):
    """The pairs, all scores, and what training minimises."""
    image, text = module.image(image, is_training=True), module.text(text, is_training=True)
    scale = jnp.float32(4.0)
    pairs = module.matching(image, text, scale, ids, mask)
    outputs = types.Outputs(image, text, None, scale, matching=pairs)
    config = {name: {"weight": 1.0} for name in ("itc", "itm")}
    value, _ = losses.total(config, outputs, {"id": ids, "mask": mask})
    return value, pairs


def scored(module, image, text):
    return module.score(module.image(image), module.text(text))


@functools.cache
def of_head(name):
    """Head, variables, and a function of them, features and key: gradients, value and pairs."""
    head = models.HEADS[name](**HEADS[name])
    init = functools.partial(head.init, method=scored)
    variables = small_models.drawn(init, *features()[:2], scale=0.3, seed=1)  # no bias is 0

    def value(variables, given, key):
        value, pairs = head.apply(variables, *given, method=matched, rngs={"dropout": key})
        return value, (value, pairs)

    return head, variables, jax.jit(jax.grad(value, has_aux=True))


@functools.cache
def on_one(name, seed):
    _, variables, run = of_head(name)
    return jax.device_get(run(variables, features(), jax.random.key(seed)))


def test_log_odds_of_pairs_are_those_that_the_model_scores_by():
    """Of X-VLM: tests/parity/test_xvlm.py."""
    given, (head, variables, _) = features(), of_head("blip")
    _, (_, pairs) = on_one("blip", 3)
    parts = head.clone(chunk=3)  # scores in chunks are those of the pairs in one
    score = jax.jit(functools.partial(parts.apply, method=scored))
    scores, row = np.asarray(score(variables, *given[:2])), np.arange(PAIRS)
    expected = [scores[row, row], scores[row, pairs.text], scores[pairs.image, row]]
    np.testing.assert_allclose(pairs.log_odds, np.stack(expected, axis=1), atol=1e-5)
    ids, mask = np.asarray(given[2][:, 1]), np.asarray(given[3])
    for drawn in (pairs.text, pairs.image):
        assert np.all((ids != ids[drawn])[mask])
        assert np.all(mask[drawn][mask])
    assert (on_one("blip", 4)[1][1].text != pairs.text).any()  # by another key


@pytest.mark.devices
@pytest.mark.parametrize(("name", "kind"), [("blip", "Explicit"), ("xvlm", "Auto")])
def test_many_devices_draw_the_pairs_of_one(name, kind):
    _, variables, run = of_head(name)
    expected = on_one(name, 3)
    mesh = jax.make_mesh((4, 2), types.BATCH_AXES, axis_types=(AxisType[kind],) * 2)
    rows, whole = (NamedSharding(mesh, jax.P(*axes)) for axes in ((types.BATCH_AXES,), ()))
    with jax.set_mesh(mesh):
        placed = jax.device_put(jax.device_get(features()), rows)
        found = run(jax.device_put(variables, whole), placed, jax.random.key(3))
    for one, other in zip(found[1][1][1:], expected[1][1][1:], strict=True):
        np.testing.assert_array_equal(one, other)
    assert_close(found, expected)
