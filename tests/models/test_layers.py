"""The parts of a transformer against formulas written out in numpy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from scipy import special

from tests.models.conftest import assert_close
from tests.support import small_models
from vlc_jax.models import layers, rope

CLIP_INIT = layers.initialisers("clip", 8, 2)


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=(3, 5, 8)).astype(np.float32)


def test_activations_are_the_three_gelus():
    x = np.linspace(-4.0, 4.0, 33)
    expected = {
        "quick_gelu": x / (1 + np.exp(-1.702 * x)),
        "gelu": x * (1 + special.erf(x / np.sqrt(2))) / 2,
        "gelu_tanh": x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
    }
    assert set(expected) == set(layers.ACTIVATIONS)
    for name, function in layers.ACTIVATIONS.items():
        result = jax.jit(function)(x.astype(np.float32))
        np.testing.assert_allclose(result, expected[name], atol=1e-6)


def test_unit_length_is_unit_length_and_differentiable_at_zero(x):
    result = np.asarray(jax.jit(layers.l2_normalize)(x))
    np.testing.assert_allclose(np.sum(result**2, axis=-1), 1.0, rtol=1e-6)
    gradient = jax.jit(jax.grad(lambda v: layers.l2_normalize(v).sum()))(np.zeros(4, np.float32))
    assert np.all(np.isfinite(gradient))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])  # merged and unmerged axes
def test_dense_equals_linen_dense_in_value_and_gradient(x, dtype):
    def of(module, key, x):
        params = module.init(key, x)
        gradient = jax.grad(lambda p, x: (module.apply(p, x) ** 2).sum(), argnums=(0, 1))
        return params, module.apply(params, x), gradient(params, x)

    modules = layers.Dense(6, dtype=dtype), nn.Dense(6, dtype=dtype)
    ours, theirs = (jax.jit(functools.partial(of, module)) for module in modules)
    assert_close(ours(jax.random.key(1), x), theirs(jax.random.key(1), x))


@pytest.mark.parametrize("mean", [0, 4, 64])
def test_a_norm_in_bfloat16_is_exact_at_any_mean(mean):
    """In one pass; of a mean of 128 deviations bfloat16 keeps nothing of the deviations."""
    rng, module = np.random.default_rng(0), layers.layer_norm(1e-6, jnp.bfloat16)
    x = jnp.asarray(rng.normal(mean, 1, (64, 768)), jnp.bfloat16)
    exact = np.asarray(x, np.float64)
    exact -= exact.mean(-1, keepdims=True)
    exact /= exact.std(-1, keepdims=True)
    params = {"params": {"scale": jnp.ones(768), "bias": jnp.zeros(768)}}
    result = np.asarray(jax.jit(module.apply)(params, x), np.float64)
    np.testing.assert_allclose(result, exact, rtol=2**-8, atol=1e-3)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_dense_into_and_out_of_heads_is_dense(x, dtype):
    def of(split, params, x):
        parts = {"heads": 3, "parts": 2} if split else {}
        into, out = layers.Dense(12, dtype=dtype, **parts), layers.Dense(4, dtype=dtype)
        ys = into.apply(params[0], x)
        ys = ys if split else jnp.split(ys, 2, axis=-1)
        return [out.clone(has_heads=split).apply(params[1], y) for y in ys]

    rng = np.random.default_rng(1)
    shapes = ((8, 12), (12,)), ((6, 4), (4,))
    params = [
        {"params": {"kernel": rng.normal(size=kernel), "bias": rng.normal(size=bias)}}
        for kernel, bias in shapes
    ]
    params = jax.tree.map(lambda p: p.astype(np.float32), params)
    assert_close(*(jax.jit(of, static_argnums=0)(split, params, x) for split in (True, False)))


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_equals_numpy(x, is_causal):
    module = layers.Attention(heads=2, initial=CLIP_INIT)
    params = small_models.drawn(module.init, x, x)["params"]

    def dense(name, y):
        return y @ params[name]["kernel"] + params[name]["bias"]

    query = dense("query", x)
    key, value = np.split(dense("key_value", x), 2, axis=-1)
    expected = np.zeros((3, 5, 8))
    for head in (slice(0, 4), slice(4, 8)):
        for b in range(3):
            logits = query[b, :, head] @ key[b, :, head].T / np.sqrt(4)
            if is_causal:
                logits[np.triu_indices(5, 1)] = -np.inf
            expected[b, :, head] = special.softmax(logits, axis=-1) @ value[b, :, head]
    attend = functools.partial(module.apply, is_causal=is_causal)
    result = jax.jit(attend)({"params": params}, x, x)
    np.testing.assert_allclose(result, dense("out", expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("is_causal", "is_eva02"), [(False, False), (True, False), (False, True), (True, True)]
)
def test_block_at_positions_equals_the_whole_block_there(x, is_causal, is_eva02):
    block, rotation = layers.Block(2, 16, is_causal, "gelu", 1e-5, CLIP_INIT), None
    if is_eva02:
        block = block.clone(activation="swiglu", key_bias=False, sub_norm=True)
        rotation = rope.table(rope.grid_angles(2, 2), num_prefix_tokens=1)
    params = small_models.drawn(block.init, x, scale=0.5)
    positions = jnp.array([0, 4, 2])

    def part(params, x):
        y = block.apply(params, x, positions, rotation)
        return (y**2).mean(), y

    def whole(params, x):
        y = layers.at(block.apply(params, x, None, rotation), positions)
        return (y**2).mean(), y

    results = [
        jax.jit(jax.value_and_grad(f, argnums=(0, 1), has_aux=True))(params, x)
        for f in (part, whole)
    ]
    assert_close(*results)


@pytest.mark.parametrize(
    ("activation", "rotation"),
    [("gelu", None), ("swiglu", rope.table(rope.grid_angles(2, 2), num_prefix_tokens=1))],
)
def test_float32_softmax_norms_and_rotations_in_bfloat16(activation, rotation):
    block = layers.Block(2, 16, True, activation, 1e-5, CLIP_INIT, dtype=jnp.bfloat16)
    x = jnp.zeros((2, 5, 8), jnp.bfloat16)
    params = jax.eval_shape(block.init, jax.random.key(0), x)
    jaxpr = str(jax.make_jaxpr(lambda p, x: block.apply(p, x, None, rotation))(params, x))
    for operation in ("exp", "rsqrt", *(("sub",) if rotation else ())):
        lines = [line for line in jaxpr.splitlines() if f"= {operation} " in line]
        assert lines
        assert not [line for line in lines if "bf16" in line.split("=")[0]], lines


@pytest.mark.parametrize(
    ("scheme", "stds"),
    [
        # width 64, depth 3: normal; and Xavier uniform of one 64 x 64 or 64 x 256 matrix
        ("clip", {"query": 64**-0.5, "key_value": 64**-0.5, "out": 384**-0.5, "up": 128**-0.5}),
        ("big_vision", dict.fromkeys(("query", "key_value", "out"), 64**-0.5) | {"up": 160**-0.5}),
    ],
)
def test_initialisers_have_the_published_spread(scheme, stds):
    init = layers.initialisers(scheme, 64, 3)
    shapes = {"query": (64, 64), "key_value": (64, 128), "out": (64, 64), "up": (64, 256)}
    draw = jax.jit(
        lambda key: {name: getattr(init, name)(key, shapes[name], jnp.float32) for name in stds}
    )
    for name, sample in jax.device_get(draw(jax.random.key(0))).items():
        np.testing.assert_allclose(np.std(sample), stds[name], rtol=0.05, err_msg=name)


def test_an_unknown_scheme_is_refused():
    with pytest.raises(ValueError, match="'clip' or 'big_vision'"):
        layers.initialisers("torch", 8, 2)
