"""One step of training on a tiny model."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from configs import default
from vlc_jax import build, losses, models, sharding, train_step
from vlc_jax.models import flops

pytestmark = pytest.mark.slow

SMALL = {"width": 16, "heads": 2, "depth": 2, "projection": 8}
LOCKED = (("image/.*", 0.0),)


@pytest.fixture(scope="module")
def start():
    model = models.build(
        "clip",
        "B/32",
        image={**SMALL, "image_size": 16, "patch_size": 4},
        text={**SMALL, "vocab_size": 30, "context_length": 7, "eos_id": 2},
    )
    task = build.Task(sharding.make_mesh(batch_size=8), None, model, lambda image: image)
    params = models.init(model, jax.random.key(0))
    rng = np.random.default_rng(0)
    batch = {
        "image": jnp.asarray(rng.normal(size=(8, 16, 16, 3)), jnp.float32),
        "text": jnp.asarray(rng.integers(3, 30, (8, 7))).at[:, -1].set(2),
        "mask": jnp.ones(8, bool),
        "stop": jnp.zeros(8, bool),
    }
    return task, params, batch


def configured(rules):
    config = default.get_config()
    config.batch_size = 8
    config.optimizer.warmup_steps = 1
    config.optimizer.multipliers = rules
    return config


def stepped(start, rules, **weights):
    task, params, batch = start
    config = configured(rules)
    with config.unlocked():
        config.losses.update({name: default.loss(weight) for name, weight in weights.items()})
    tx = build.transformation(config, params, 10)
    state = build.State(jnp.zeros((), jnp.int32), params, tx.init(params))
    step = jax.jit(train_step.make_step(config, task, steps=10)).lower(state, {}, batch).compile()
    return *step(state, {}, batch), step.cost_analysis()["flops"]


def test_the_loss_of_blocks_is_the_mean_of_theirs(start):
    task, params, batch = start
    config = configured(())
    with config.unlocked():
        config.blocks, config.input.hard_images = 2, 1
    parts = train_step.split_blocks(batch, 2, 2)
    np.testing.assert_array_equal(parts["text"][0], batch["text"][jnp.array([0, 1, 4, 5])])
    tx = build.transformation(config, params, 10)
    state = build.State(jnp.zeros((), jnp.int32), params, tx.init(params))
    after, metrics = jax.jit(train_step.make_step(config, task, steps=10))(state, {}, batch)

    def loss(params):
        values = []
        for k in range(2):
            part = jax.tree.map(lambda x, k=k: x[k], parts)
            outputs = task.model.apply({"params": params}, part)
            values.append(losses.total({"infonce": {"weight": 1.0}}, outputs, part)[0])
        return sum(values) / 2

    value, gradient = jax.jit(jax.value_and_grad(loss))(params)
    assert metrics["loss"] == pytest.approx(float(value), rel=1e-6)
    assert metrics["grad_norm"] == pytest.approx(float(optax.tree.norm(gradient)), rel=1e-5)
    assert after.step == 1


def test_flops_count_every_text_and_no_backward_pass_of_a_locked_tower(start):
    task = start[0]
    config = configured(LOCKED)
    config.input.negatives.count, config.input.positives.count = 2, 1
    image, text = flops.image_tower(task.model.image), flops.text_tower(task.model.text)
    assert build.flops_per_example(config, task.model) == image + 3 * 4 * text
    assert build.flops_per_example(configured(()), task.model) == 3 * (image + text)


def test_flops_count_the_head_on_stored_features_and_what_it_is_scored_with():
    config = configured(())
    model = models.build("pacl", "mini", vocab_size=80)
    towers_and_head = build.flops_per_example(config, model)
    with config.unlocked():
        config.input.source, config.blocks = "features", 2
        config.frozen = ("image", "text")
    fixed = {"frozen": ("image", "text")}
    assert build.flops_per_example(config, model) == flops.head(model, pairs=4, **fixed)
    assert 0 < build.flops_per_example(config, model) < towers_and_head
    config.input.negatives.count = 2
    with config.unlocked():
        config.losses.hn_focal = default.loss(0.5)
    own = build.flops_per_example(config, model)
    assert own == flops.head(model, pairs=4 + 2, texts=3, **fixed)
    with config.unlocked():
        config.losses.negclip = default.loss(1.0)
    every = build.flops_per_example(config, model)
    assert every == flops.head(model, pairs=4 + 2 * 4, texts=3, **fixed)


def test_a_loss_none_of_whose_texts_are_there_is_0_in_the_metrics(start):
    task, params, batch = start
    none = {"negative_text": jnp.zeros((8, 2, 7), int), "negative_mask": jnp.zeros((8, 2), bool)}
    with_none, plain = (
        stepped((task, params, {**batch, **more}), (), **weights)[:2]
        for more, weights in ((none, {"svlc_negative": 1.0}), ({}, {}))
    )
    assert with_none[1]["svlc_negative"] == 0.0
    assert with_none[1]["is_finite"]
    np.testing.assert_allclose(with_none[1]["loss"], plain[1]["loss"], rtol=1e-6)


@pytest.mark.parametrize("rules", [(), LOCKED])
def test_a_step_is_the_gradient_of_the_loss_through_the_optimizer(start, rules):
    task, params, batch = start
    config = configured(rules)

    def loss(params):
        outputs = task.model.apply({"params": params}, batch)
        return losses.total({"infonce": {"weight": 1.0}}, outputs, batch, task.mesh)[0]

    tx = build.transformation(config, params, 10)
    updates, _ = tx.update(jax.grad(loss)(params), tx.init(params), params)
    expected = optax.apply_updates(params, updates)
    state, _, _ = stepped(start, rules)
    # a step moves by up to 1e-3; biases of keys, whose gradient is only rounding, by about 1e-6
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=5e-6), state.params, expected)


def test_a_locked_tower_costs_no_backward_pass(start):
    _, params, _ = start
    state, metrics, locked = stepped(start, LOCKED)
    _, _, unlocked = stepped(start, ())
    assert locked < 0.6 * unlocked  # 16 patches and a class token against 7 tokens
    jax.tree.map(np.testing.assert_array_equal, state.params["image"], params["image"])
    assert metrics["grad_norm"] > 0
