"""The schedules by hand, AdamW by an independent oracle, multipliers by effect."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vlc_jax.devices import sharding
from vlc_jax.errors import UsageError
from vlc_jax.run.checkpoint import Checkpoints
from vlc_jax.setup import optimizer

PARAMS = {
    "image": {"kernel": np.ones((3, 2), np.float32), "bias": np.zeros(2, np.float32)},
    "text": {"kernel": np.full((2, 2), 2.0, np.float32)},
    "logit_scale": np.float32(2.6),
}


def make(rate=0.1, rules=(), clip_norm=None, weight_decay=0.2, exclude="", mu_dtype="float32"):
    options = optimizer.AdamW(
        weight_decay,
        clip_norm=clip_norm,
        decay_exclude=exclude,
        learning_rate_multipliers=rules,
        mu_dtype=mu_dtype,
    )
    return optimizer.make(PARAMS, optimizer.schedule("constant", rate, 10), options)


def run(tx, gradients):
    params = PARAMS
    state = jax.jit(tx.init)(params)
    for gradient in gradients:
        updates, state = jax.device_get(jax.jit(tx.update)(gradient, state, params))
        params = jax.tree.map(np.add, params, updates)
    return params


def gradients(count, seed=0):
    rng = np.random.default_rng(seed)
    return [
        jax.tree.map(lambda p: rng.normal(size=np.shape(p)).astype(np.float32), PARAMS)
        for _ in range(count)
    ]


def adamw_oracle(values, grads, rate, decay):
    """One array, written from Loshchilov & Hutter (2019), algorithm 2."""
    value, m, v = np.float64(values), 0.0, 0.0
    for t, g in enumerate(grads, 1):
        m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g**2
        step = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.98**t)) + 1e-6)
        value = value - rate * (step + decay * value)
    return value


def test_adamw_equals_the_paper_with_decay_on_matrices_only():
    grads = gradients(4)
    params = run(make(), grads)
    for path, decay in ((("image", "kernel"), 0.2), (("image", "bias"), 0.0)):
        expected = adamw_oracle(
            PARAMS[path[0]][path[1]], [g[path[0]][path[1]] for g in grads], 0.1, decay
        )
        np.testing.assert_allclose(params[path[0]][path[1]], expected, rtol=1e-5)
    expected = adamw_oracle(PARAMS["logit_scale"], [g["logit_scale"] for g in grads], 0.1, 0.0)
    np.testing.assert_allclose(params["logit_scale"], expected, rtol=1e-5)


def test_a_multiplier_scales_the_learning_rate_of_matching_paths():
    grads = gradients(1)
    full, tenth = (
        run(make(weight_decay=0.0), grads),
        run(make(weight_decay=0.0, rules=(("text/.*", 0.1),)), grads),
    )
    moved = lambda params: np.asarray(params["text"]["kernel"]) - PARAMS["text"]["kernel"]  # noqa: E731
    np.testing.assert_allclose(moved(tenth), 0.1 * moved(full), rtol=1e-5)
    np.testing.assert_array_equal(tenth["image"]["kernel"], full["image"]["kernel"])


def test_the_first_matching_rule_wins():
    factors = optimizer.multipliers(PARAMS, (("image/bias", 0.5), ("image/.*", 0.1)))
    assert factors["image"] == {"kernel": 0.1, "bias": 0.5}
    assert factors["logit_scale"] == 1.0


def test_a_rule_that_matches_nothing_is_an_error_naming_it():
    with pytest.raises(UsageError, match="imgae"):
        make(rules=(("imgae/.*", 0.1),))


@pytest.mark.parametrize("factor", [0.0, -1.0, float("inf")])
def test_a_multiplier_that_is_not_positive_is_an_error(factor):
    with pytest.raises(UsageError, match=r"'image/\.\*' must be a positive number.*config\.frozen"):
        make(rules=(("image/.*", factor),))


def test_decay_exclude_adds_to_the_rule():
    mask = optimizer.decay_mask(PARAMS, "text/.*")
    assert mask == {
        "image": {"kernel": True, "bias": False},
        "text": {"kernel": False},
        "logit_scale": False,
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # peak * (0 + 1) / 10 at first, cos(pi / 2) = 0 half way
        ("cosine", {0: 0.1, 9: 1.0, 10: 1.0, 60: 0.5, 110: 0.0}),
        ("linear", {60: 0.5, 110: 0.0}),
        ("constant", {110: 1.0}),
    ],
)
def test_schedule_by_hand(name, expected):
    rate = optimizer.schedule(name, 1.0, 110, warmup_steps=10)
    rates = jax.jit(jax.vmap(rate))(np.array([*expected]))
    np.testing.assert_allclose(rates, [*expected.values()], atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("cosin", 1.0, 10), "unknown schedule 'cosin'; did you mean 'cosine'"),
        (("cosine", 1.0, 10, 10), "warmup_steps 10 must be below"),
    ],
)
def test_a_wrong_schedule_is_an_error(arguments, words):
    with pytest.raises(UsageError, match=words):
        optimizer.schedule(*arguments)


def test_a_bfloat16_first_moment_is_restored_and_goes_on_bit_for_bit(tmp_path):
    """Its updates are those of a float32 one, but for the rounding of the moment."""
    rounded, exact = make(weight_decay=0.0, mu_dtype="bfloat16"), make(weight_decay=0.0)
    params = PARAMS
    first, second = gradients(2)
    update = jax.jit(rounded.update)
    _, state = update(first, jax.jit(rounded.init)(params), params)
    adam = optax.tree.get(state, "ScaleByAdamState")
    assert {x.dtype for x in jax.tree.leaves(adam.mu)} == {jnp.dtype("bfloat16")}
    assert {x.dtype for x in jax.tree.leaves(adam.nu)} == {jnp.dtype("float32")}

    checkpoints = Checkpoints(tmp_path, on_event=lambda event, **fields: None)
    mesh = sharding.make_mesh()
    checkpoints.save(1, jax.device_put(state, sharding.replicated(mesh)))
    checkpoints.wait()
    restored = checkpoints.restore(sharding.place_shapes(mesh, jax.eval_shape(lambda: state)))
    jax.tree.map(np.testing.assert_array_equal, restored, state)
    expected, _ = update(second, state, params)
    found, _ = update(second, jax.device_get(restored), params)
    jax.tree.map(np.testing.assert_array_equal, found, expected)

    update = jax.jit(exact.update)
    _, plain = update(first, jax.jit(exact.init)(params), params)
    found, plain = jax.device_get((found, update(second, plain, params)[0]))
    differences = jax.tree.leaves(jax.tree.map(lambda a, b: np.abs(a - b).max(), found, plain))
    assert 0 < max(differences) < 0.01 * 0.1  # of a learning rate of 0.1
