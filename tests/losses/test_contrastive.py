"""InfoNCE and the sigmoid loss: formula, symmetries, and three implementations that agree."""

import functools

import jax
import numpy as np
import pytest
from scipy import special

from tests.losses.conftest import assert_close, make_mesh, value_and_gradient
from vlc_jax import errors
from vlc_jax.losses import infonce, masks, sigmoid, tiles

MODULES = {"infonce": infonce, "sigmoid": sigmoid}
ONE_WAY = {"direction": "image_to_text"}


def infonce_oracle(scores, scale, mask, weights=(0.5, 0.5)):
    """Numpy, float64, one example at a time; weights: of the term over texts, and over images."""
    values = np.zeros(len(scores))
    real = np.flatnonzero(mask)
    logits = scale * np.asarray(scores, np.float64)
    for i in real:
        row, column = logits[i, real], logits[real, i]
        values[i] += weights[0] * (special.logsumexp(row) - logits[i, i])
        values[i] += weights[1] * (special.logsumexp(column) - logits[i, i])
    return values


def sigmoid_oracle(scores, scale, mask, bias=-3.0):
    """Numpy, float64, one pair at a time."""
    values = np.zeros(len(scores))
    for i in np.flatnonzero(mask):
        for j in np.flatnonzero(mask):
            sign = 1.0 if i == j else -1.0
            values[i] += np.log1p(np.exp(-sign * (scale * np.float64(scores[i, j]) + bias)))
    return values


ORACLES = {"infonce": infonce_oracle, "sigmoid": sigmoid_oracle}


def pair_masks(mask):
    return masks.pair_masks({"mask": mask})


@functools.partial(jax.jit, static_argnames=("name", "direction"))
def for_scores(name, scores, mask, **options):
    return MODULES[name].dense(scores, pair_masks=pair_masks(mask), **options)


class Kind:
    """The implementations of a loss, as functions of the arrays of a test.

    One object per loss, so that `value_and_gradient` compiles each of its functions once.
    """

    def __init__(self, name):
        self.name = name

    def dense(self, image, text, mask, **options):
        return for_scores(self.name, image @ text.T, mask, **options)

    def chunked(self, image, text, mask, **options):
        return self._tiled("chunked", image, text, mask, **options)

    def ring(self, image, text, mask, **options):
        return self._tiled("ring", image, text, mask, **options)

    def _tiled(self, method, image, text, mask, **options):
        texts = tiles.Texts(text, None, pair_masks(mask))
        names = [name for name in ("logit_scale", "logit_bias") if name in options]
        numbers = [options.pop(name) for name in names]
        return getattr(MODULES[self.name].TILED, method)(image, texts, *numbers, **options)


KINDS = {name: Kind(name) for name in MODULES}


@pytest.fixture(params=MODULES)
def kind(request):
    return KINDS[request.param]


@pytest.fixture
def arrays(arrays, kind):
    return {k: v for k, v in arrays.items() if k != "logit_bias" or kind.name == "sigmoid"}


def test_dense_equals_numpy(arrays, kind):
    scores = arrays["image"] @ arrays["text"].T
    expected = ORACLES[kind.name](scores, 7.0, arrays["mask"])
    np.testing.assert_allclose(kind.dense(**arrays), expected, rtol=1e-5, atol=1e-6)
    assert np.all(expected[:19] > 0)


@pytest.mark.devices
@pytest.mark.parametrize("kind", ["infonce"], indirect=True)
def test_one_direction_is_cross_entropy_over_the_texts(arrays, kind):
    scores = arrays["image"] @ arrays["text"].T
    expected = infonce_oracle(scores, 7.0, arrays["mask"], weights=(1.0, 0.0))
    np.testing.assert_allclose(kind.dense(**arrays, **ONE_WAY), expected, rtol=1e-5, atol=1e-6)
    on_mesh = {"mesh": make_mesh(4, 2), "axes": ("data", "fsdp")}
    expected = value_and_gradient(functools.partial(kind.dense, **ONE_WAY))(arrays)
    for implementation, options in ((kind.chunked, {"chunk": 5}), (kind.ring, on_mesh)):
        part = functools.partial(implementation, **options, **ONE_WAY)
        assert_close(value_and_gradient(part)(arrays), expected)
    with pytest.raises(errors.UsageError, match="direction of a contrastive loss"):
        kind.dense(**arrays, direction="texts")


def test_equal_scores_give_log_of_the_batch():
    scores = np.full((8, 8), 0.3, np.float32)
    value = for_scores("infonce", scores, np.ones(8, bool), logit_scale=np.float32(50.0))
    np.testing.assert_allclose(value, np.log(8.0), rtol=1e-5)


def test_start_of_siglip_costs_about_the_bias_per_image():
    numbers = {"logit_scale": np.float32(10.0), "logit_bias": np.float32(-10.0)}
    value = for_scores("sigmoid", np.zeros((16, 16), np.float32), np.ones(16, bool), **numbers)
    np.testing.assert_allclose(value, 10.0, rtol=1e-3)


@pytest.mark.parametrize("chunk", [1, 5, 8, 24, 100])
def test_chunked_equals_dense_whatever_the_chunk(arrays, kind, chunk):
    expected = value_and_gradient(kind.dense)(arrays)
    result = value_and_gradient(functools.partial(kind.chunked, chunk=chunk))(arrays)
    assert_close(result, expected)


@pytest.mark.devices
@pytest.mark.parametrize("shape", [(1, 1), (8, 1), (4, 2)])
def test_ring_equals_dense_on_one_and_eight_devices(arrays, kind, shape):
    on_ring = functools.partial(kind.ring, mesh=make_mesh(*shape), axes=("data", "fsdp"))
    expected = value_and_gradient(kind.dense)(arrays)
    assert_close(value_and_gradient(on_ring)(arrays), expected)


@pytest.mark.devices
def test_ring_moves_blocks_and_never_gathers(arrays, kind):
    on_ring = functools.partial(kind.ring, mesh=make_mesh(4, 2), axes=("data", "fsdp"))
    gradient = jax.grad(lambda image, others: on_ring(image, **others).sum())
    split = jax.sharding.NamedSharding(make_mesh(4, 2), jax.P(("data", "fsdp")))
    image, text = jax.device_put((arrays.pop("image"), arrays.pop("text")), split)
    hlo = jax.jit(gradient).lower(image, {"text": text, **arrays}).compile().as_text()
    assert "collective-permute" in hlo
    assert "all-gather" not in hlo


@pytest.mark.devices
def test_ring_refuses_a_batch_the_devices_cannot_share(arrays, kind):
    cut = {k: v[:23] if v.ndim else v for k, v in arrays.items()}
    on_ring = functools.partial(kind.ring, mesh=make_mesh(8, 1), axes=("data", "fsdp"))
    with pytest.raises(errors.UsageError, match="divisible by 8, got 23; use 16 or 24"):
        jax.jit(on_ring)(**cut)


def test_permuting_the_examples_permutes_the_values(arrays, kind):
    order = np.random.default_rng(1).permutation(24)
    moved = {k: v[order] if v.ndim else v for k, v in arrays.items()}
    values = np.asarray(kind.dense(**arrays))
    np.testing.assert_allclose(kind.dense(**moved), values[order], rtol=1e-5)


def test_padding_changes_neither_values_nor_gradients(arrays, kind):
    other = {**arrays, "image": arrays["image"].copy(), "text": arrays["text"].copy()}
    other["image"][19:] *= -1
    other["text"][19:] = 0.5
    value, gradient = value_and_gradient(kind.dense)(arrays)
    other_value, other_gradient = value_and_gradient(kind.dense)(other)
    np.testing.assert_allclose(value, other_value, rtol=1e-6)
    np.testing.assert_array_equal(gradient["image"][19:], 0.0)
    np.testing.assert_allclose(gradient["text"][:19], other_gradient["text"][:19], rtol=1e-5)
    cut = {k: v[:19] if v.ndim else v for k, v in arrays.items()}
    values = np.asarray(kind.dense(**arrays))
    np.testing.assert_allclose(values[:19], kind.dense(**cut), rtol=1e-5)
    np.testing.assert_array_equal(values[19:], 0.0)


def test_gradient_raises_the_pairs_and_lowers_the_others(arrays, kind):
    scores = arrays["image"] @ arrays["text"].T
    numbers = {k: v for k, v in arrays.items() if k.startswith("logit")}
    slopes = jax.grad(lambda x: for_scores(kind.name, x, np.ones(24, bool), **numbers).sum())
    gradient = np.asarray(jax.jit(slopes)(scores))
    is_pair = np.eye(24, dtype=bool)
    assert np.all(gradient[is_pair] < 0)
    assert np.all(gradient[~is_pair] > 0)
