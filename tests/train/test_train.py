"""One step of training on a tiny model."""

import functools
import json
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import pytest

from tests.support import small_models
from tests.support.training import first_state
from vlc_jax import losses, models, setup
from vlc_jax.configs import default
from vlc_jax.errors import DivergedError
from vlc_jax.run.metrics import StepClock
from vlc_jax.run.workdir import Workdir
from vlc_jax.setup import state as setup_state
from vlc_jax.train import spike_guard
from vlc_jax.train import step as train_step
from vlc_jax.train.metrics_log import MetricsLog

pytestmark = pytest.mark.slow

SMALL = {"width": 16, "heads": 2, "depth": 1, "projection": 8}


def make_start(**sizes):
    """A tiny model, its parameters and a batch."""
    model = models.build(
        "clip",
        "B/32",
        image={**SMALL, "image_size": 16, "patch_size": 4, **sizes},
        text={**SMALL, "vocab_size": 30, "context_length": 7, "eos_id": 2, **sizes},
    )
    params = jax.device_put(small_models.parameters(model, 0.2))
    rng = np.random.default_rng(0)
    batch = {
        "image": rng.normal(size=(8, 16, 16, 3)).astype(np.float32),
        "text": rng.integers(3, 30, (8, 7)).astype(np.int32),
        "mask": np.ones(8, bool),
        "stop": np.zeros(8, bool),
    }
    batch["text"][:, -1] = 2
    return model, params, jax.device_put(batch)


@pytest.fixture(scope="module")
def start():
    return make_start()


def configured(*frozen):
    config = default.get_config()
    config.batch_size = 8
    config.optimizer.warmup_steps = 1
    config.frozen, config.init_from = frozen, "towers"
    return config


def resolved(config, model):
    """The setup of a run of ten steps on float images."""
    return setup.step_setup(config, model, 10)._replace(normalise=lambda image: image)


class Stepped(NamedTuple):
    """A step of the first state, and what the step was made of."""

    run: Any
    state: Any  # before the step
    kept: Any
    program: Any
    params: Any  # after the step, frozen ones too
    metrics: Any


def stepped(start, *frozen, **weights):
    model, params, batch = start
    config = configured(*frozen)
    with config.unlocked():
        config.losses.update({name: default.loss(weight) for name, weight in weights.items()})
    run = resolved(config, model)
    state, kept = first_state(run, params)
    program = jax.jit(train_step.make_step(run)).lower(state, kept, batch).compile()
    after, metrics = program(state, kept, batch)
    params = run.parameters.merge(kept, after.params)
    return Stepped(run, state, kept, program, params, metrics)


@pytest.fixture(scope="module")
def steps(start):
    """steps(*frozen) -> Stepped of `start`, compiled once."""
    return functools.cache(lambda *frozen: stepped(start, *frozen))


def test_the_loss_of_sub_batches_is_the_mean_of_theirs(start):
    model, params, batch = start
    config = configured()
    with config.unlocked():
        config.sub_batches, config.input.hard_images = 2, 1
    split = jax.jit(train_step.split_batch, static_argnums=(1, 2))
    parts = split(batch, 2, 2)
    texts, of_parts = (np.asarray(x["text"]) for x in (batch, parts))
    np.testing.assert_array_equal(of_parts[0], texts[[0, 1, 4, 5]])
    run = resolved(config, model)
    state, kept = first_state(run, params)
    after, metrics = jax.jit(train_step.make_step(run))(state, kept, batch)

    def loss(params):
        def of_part(part):
            outputs = model.apply({"params": params}, part)
            return losses.total({"infonce": {"weight": 1.0}}, outputs, part)[0]

        return jax.vmap(of_part)(parts).mean()

    value, gradient = jax.jit(jax.value_and_grad(loss))(params)
    assert metrics["loss"] == pytest.approx(float(value), rel=1e-6)
    assert metrics["grad_norm"] == pytest.approx(
        float(jax.jit(optax.tree.norm)(gradient)), rel=1e-5
    )
    assert after.step == 1


def test_a_loss_without_its_texts_is_0_in_the_metrics(start, steps):
    model, params, batch = start
    none = {"negative_text": np.zeros((8, 2, 7), int), "negative_mask": np.zeros((8, 2), bool)}
    with_none = stepped((model, params, {**batch, **none}), svlc_negative=1.0).metrics
    assert with_none["svlc_negative"] == 0.0
    assert with_none["is_finite"]
    np.testing.assert_allclose(with_none["loss"], steps().metrics["loss"], rtol=1e-6)


def test_a_guarded_step_is_the_plain_one_without_a_spike(start, steps, monkeypatch):
    monkeypatch.setattr(setup_state, "GUARD_WINDOW", 2)
    batch, plain = start[-1], steps()
    optimization = plain.run.optimization._replace(spike_guard=(10.0, 3))
    step = jax.jit(train_step.make_step(plain.run._replace(optimization=optimization)))
    frozen, runs, parts = plain.kept, {}, ("step", "params", "opt_state", "batch_stats")
    guarded = plain.state._replace(guard=setup_state.guard_state())
    for name, function, state in (
        ("plain", plain.program, plain.state),
        ("guarded", step, guarded),
    ):
        runs[name] = []
        for _ in range(4):
            state, metrics = function(state, frozen, batch)
            runs[name].append((state, metrics))
    for (ours, metrics), (theirs, expected) in zip(*runs.values(), strict=True):
        for part in parts:
            # as below: XLA fuses other operations, and gradients of key biases are rounding
            jax.tree.map(
                partial(np.testing.assert_allclose, atol=5e-6),
                getattr(ours, part),
                getattr(theirs, part),
            )
        for name, value in metrics.items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-5)
        assert theirs.guard["skipped"] == 0
    # off, the state has no other arrays
    assert runs["plain"][0][0].guard == {}
    # the median of the last norms is now far below the next
    low = state._replace(
        guard={**state.guard, "norms": np.full(2, np.asarray(metrics["grad_norm"]) / 11)}
    )
    after, metrics = step(low, frozen, batch)
    jax.tree.map(np.testing.assert_array_equal, after.params, low.params)
    jax.tree.map(np.testing.assert_array_equal, after.opt_state[1], low.opt_state[1])
    # step and schedule go on together
    assert (after.step, after.opt_state[-1].count) == (5, 5)
    assert (metrics["skipped_steps"], metrics["spikes_in_a_row"]) == (1, 1)
    after, metrics = step(after._replace(guard={**after.guard, **state.guard}), frozen, batch)
    assert metrics["spikes_in_a_row"] == 0


def test_without_a_guard_the_step_is_the_plain_one(start, monkeypatch):
    model, params, batch = start
    plain = resolved(configured(), model)
    state, frozen = first_state(plain, params)

    def jaxpr(run):
        return str(jax.make_jaxpr(train_step.make_step(run))(state, frozen, batch))

    # not even traced, whose arrays would be dead code here and in memory elsewhere
    monkeypatch.delattr(spike_guard, "judge")
    monkeypatch.delattr(spike_guard, "without_update")
    without = jaxpr(plain)
    nothing = {"judge": lambda guard, norm, factor: (None, guard, {}),
               "without_update": lambda is_spike, after, before: after}  # fmt: skip
    for name, function in nothing.items():
        monkeypatch.setattr(spike_guard, name, function, raising=False)
    optimization = plain.optimization._replace(spike_guard=(10.0, 3))
    assert without == jaxpr(plain._replace(optimization=optimization))


def test_a_spike_is_far_above_the_median_of_a_full_window():
    judge = jax.jit(lambda guard, norm: spike_guard.judge(guard, norm, 3.0))
    guard, skipped = {**setup_state.guard_state(), "norms": np.zeros(5, np.float32)}, []
    norms = [9.0, 1.0, 2.0, 3.0, 50.0, 9.1, 8.9, 9.5, 100.0, 4.0, np.inf, 1.0]
    for step, norm in enumerate(norms):
        is_spike, guard, metrics = judge(guard, np.float32(norm))
        skipped += [step] * bool(is_spike)
    # 50 is before the window is full; the median of 9, 1, 2, 3, 50 is 3, of 8.9, 1, 2, 3, 50 too
    assert skipped == [5, 7, 8, 10]
    assert (metrics["skipped_steps"], metrics["spikes_in_a_row"]) == (4, 0)
    assert metrics["grad_norm_median"] == 4.0
    assert sorted(guard["norms"]) == [1.0, 3.0, 4.0, 8.9, 50.0]


def test_skipped_steps_are_events_and_too_many_end_the_run(tmp_path):
    log = object.__new__(MetricsLog)
    log.workdir, log._spikes, log.log_every, log.steps = Workdir(tmp_path), 2, 7, 1000
    log.clock, log._rows_contrasted, log.writer = StepClock(8, 1, 1.0), 8, None
    log._record_ids = lambda step: [f"record {step}.{row}" for row in range(20)]
    log._checkpoints = SimpleNamespace(wait=lambda: None, steps=lambda: [250])
    plain = {"loss": 1.0, "grad_norm": 50.0, "stop": 0.0, "is_finite": 1.0}

    def read(step, in_a_row):
        guard = {"grad_norm_median": 2.0, "skipped_steps": 1.0, "spikes_in_a_row": in_a_row}
        log._pending = (
            step,
            {name: jax.device_put(np.float32(v)) for name, v in (plain | guard).items()},
            1.0,
        )
        log.flush()

    for step, in_a_row in ((299, 1.0), (300, 0.0), (302, 1.0)):
        read(step, in_a_row)
    with pytest.raises(
        DivergedError, match=r"step 303 is the last of 2 .* norm 50, .* median 2;"
    ) as caught:
        read(303, 2.0)
    log.workdir.close()
    assert "Batch: record 302.0, record 302.1, " in str(caught.value)
    assert "Last good checkpoint: step 250" in str(caught.value)
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events] == [299, 302, 303]
    assert [len(event["ids"]) for event in events] == [8, 8, 20]


@pytest.mark.parametrize("frozen", [(), ("image",)])
def test_a_step_is_the_gradient_through_the_optimizer(start, steps, frozen):
    model, _, batch = start
    run, kept = steps(*frozen).run, steps(*frozen).kept
    trained = steps(*frozen).state.params

    def loss(trained):
        outputs = model.apply({"params": run.parameters.merge(kept, trained)}, batch)
        return losses.total({"infonce": {"weight": 1.0}}, outputs, batch)[0]

    @jax.jit
    def plain_step(trained):
        tx = run.optimization.optimizer
        updates, _ = tx.update(jax.grad(loss)(trained), tx.init(trained), trained)
        return optax.apply_updates(trained, updates)

    expected = run.parameters.merge(kept, plain_step(trained))
    found = steps(*frozen).params
    # a step moves by up to 1e-3; biases of keys, whose gradient is only rounding, by about 1e-6
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=5e-6), found, expected)


def test_a_frozen_tower_costs_no_backward_pass(start, steps):
    _, params, _ = start
    frozen, trained = steps("image"), steps()
    costs = [each.program.cost_analysis()["flops"] for each in (frozen, trained)]
    assert costs[0] < 0.6 * costs[1]  # 16 patches and a class token against 7 tokens
    jax.tree.map(np.testing.assert_array_equal, frozen.params["image"], params["image"])
    assert frozen.metrics["grad_norm"] > 0
