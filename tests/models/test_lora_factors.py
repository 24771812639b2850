"""Adapters beside their matrices, x W + (x a) b: the merged model, and with dropout its noise."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from tests.models import test_lora
from tests.models.conftest import make
from tests.support import small_models
from tests.support.marks import slow_but
from vlc_jax.errors import UsageError
from vlc_jax.models import layers, lm, lora

RANK, ALPHA, RATE = 4, 8.0, 0.3
TOWERS = ".*/(query|key|value|out|up|down)/kernel"
PACKED = ".*/(query_key_value|out|up|down)/kernel"
DECODER = "blocks/(query|key|value|out|gate|up|down)/kernel"


def trained_tree(*arguments, **options):
    return jax.device_put(test_lora.trained_tree(*arguments, rank=RANK, **options))


@functools.cache
def decoder():
    model = lm.build("tiny", depth=2, remat="block")
    params = small_models.drawn(functools.partial(lm.init, model), scale=0.2)

    def compute(params):
        ids, valid = jnp.arange(10).reshape(2, 5), jnp.ones((2, 5), bool)
        return model.apply({"params": params}, ids, valid, method="text_logits")

    return jax.device_put(params), compute


def towers(make, depth=1, **options):
    model, params, batch = make("clip", image={"depth": depth}, text={"depth": 1}, **options)
    return params, lambda p: model.apply({"params": p}, batch).scores


def value_and_gradient(compute, place, trained):
    """Of all outputs, weighed, with parameters as `place` makes them of what is trained."""

    @jax.jit
    @jax.value_and_grad
    def run(trained):
        return jnp.sin(compute(place(trained))).sum()

    return run(trained)


def assert_same(found, expected, tolerance):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=tolerance * max(1, np.abs(b).max()))


@pytest.mark.parametrize(
    ("part", "dora"),
    slow_but(
        (("decoder", False),),
        (("decoder", False), ("decoder", True), ("packed", False), ("scanned", True)),
    ),
)
def test_factors_give_the_gradients_of_merged_matrices(part, dora):
    full = "norm/scale"
    if part == "decoder":
        (params, compute), targets = decoder(), DECODER
    else:
        scanned = {"depth": 2, "scan_layers": True, "remat": "block"}
        options = scanned if part == "scanned" else {}
        (params, compute), full = towers(make, **options), ".*/norm/scale"
        targets = PACKED if part == "packed" else TOWERS
    trained = trained_tree(params, targets, dora, full=full)
    merged, attached = (
        value_and_gradient(compute, functools.partial(how, params, alpha=ALPHA), trained)
        for how in (lora.merge, lora.attach)
    )
    assert_same(attached, merged, 2e-5)
    assert all(np.abs(x).max() > 0 for x in jax.tree.leaves(merged[1]))


def test_only_an_adapter_of_keys_leaves_values_alone():
    params, compute = towers(make)
    trained = trained_tree(params, ".*/key/kernel", dora=True)
    merged, attached = (
        jax.jit(lambda how=how: compute(how(params, trained, ALPHA)))()
        for how in (lora.merge, lora.attach)
    )
    np.testing.assert_allclose(attached, merged, atol=1e-5)
    assert np.abs(np.subtract(merged, jax.jit(compute)(params))).max() > 1e-3


def test_inputs_are_dropped_at_the_rate_and_the_others_scaled():
    """With the identity as both factors, an adapter adds its input with dropout."""
    rows, width = 400, 16
    x = np.random.default_rng(0).normal(size=(rows, width)).astype(np.float32)

    @jax.jit
    def added(seed, x):
        kernel = {"dense": {"kernel": jnp.zeros((width, width))}}
        identity = {"a": jnp.eye(width), "b": jnp.eye(width)}
        trained = {"lora": {"dense": {"kernel": identity}}}
        attached = lora.attach(kernel, trained, alpha=float(width))
        params = lora.with_dropout(attached, RATE, jax.random.key(seed))["dense"]
        return layers.Dense(width, use_bias=False).apply({"params": params}, x)

    first, second = (np.asarray(added(seed, x)) for seed in (0, 1))
    kept = first != 0
    np.testing.assert_allclose(first[kept], x[kept] / (1 - RATE), rtol=1e-5)
    assert kept.mean() == pytest.approx(1 - RATE, abs=0.02)  # four standard deviations
    assert (kept != (second != 0)).mean() == pytest.approx(2 * RATE * (1 - RATE), abs=0.03)


def test_the_mean_over_masks_is_the_adapter_without_dropout():
    matrix, x = (
        jax.device_put(np.random.default_rng(seed).normal(size=shape).astype(np.float32))
        for seed, shape in ((1, (8, 6)), (0, (3, 8)))
    )
    kernel = {"dense": {"kernel": matrix}}
    trained = trained_tree(kernel, "dense/kernel", dora=True)
    dense = layers.Dense(6, use_bias=False)

    @jax.jit
    @jax.vmap
    def run(key):
        attached = lora.attach(kernel, trained, ALPHA)
        return dense.apply({"params": lora.with_dropout(attached, RATE, key)["dense"]}, x)

    @jax.jit
    def run_merged():
        return dense.apply({"params": lora.merge(kernel, trained, ALPHA)["dense"]}, x)

    found = np.asarray(run(jax.random.split(jax.random.key(0), 4000)))
    error = found.std(axis=0) / 4000**0.5
    assert (np.abs(found.mean(axis=0) - np.asarray(run_merged())) < 5 * error).all()
    assert (found.std(axis=0) > 0.01).all()


def test_every_layer_draws_its_own_masks():
    params, compute = decoder()
    trained = trained_tree(params, DECODER)
    attached = jax.jit(lora.attach, static_argnums=2)(params, trained, ALPHA)
    draw = jax.jit(lora.with_dropout, static_argnums=1)
    one, other = (draw(attached, RATE, jax.random.key(seed)) for seed in (0, 1))
    keys = [x for path, x in flatten_dict(one).items() if path[-1] == "key"]
    assert len(np.unique(np.concatenate(keys), axis=0)) == 7 * 2
    compute = jax.jit(compute)
    assert np.abs(np.subtract(compute(one), compute(other))).max() > 1e-2
    np.testing.assert_array_equal(compute(one), compute(one))


def test_matrices_that_no_dense_layer_multiplies_are_refused():
    def attach(params, targets):
        trained = lora.init(jax.random.key(0), params, targets=targets, rank=2)
        return lora.attach(params, trained, ALPHA)

    name = "image/patch_embedding/convolution/kernel"
    with pytest.raises(UsageError, match=f"{name} is not one: set config.lora.dropout=0"):
        jax.eval_shape(
            functools.partial(attach, targets=name),
            make("clip", image={"depth": 1}, text={"depth": 1})[1],
        )
    with pytest.raises(UsageError, match="stem_1/kernel is not one"):
        jax.eval_shape(functools.partial(attach, targets="image/stem_1/kernel"), make("mini")[1])


def test_only_matrices_held_in_less_than_float32_need_factors():
    _, params, _ = make("clip")
    trained = trained_tree(params, TOWERS)
    assert not lora.needs_factors(params, trained)
    half = jax.tree.map(lambda x: np.asarray(x).astype(jnp.bfloat16), params)
    assert lora.needs_factors(half, trained)
