"""What losses keep between steps: the teacher of DeGLA, and CE-CLIP's thresholds."""

import itertools
from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.train import test_train
from vlc_jax import losses
from vlc_jax.configs import default
from vlc_jax.models import parameters
from vlc_jax.run.workdir import Workdir
from vlc_jax.setup import state as setup_state
from vlc_jax.setup import validate
from vlc_jax.train import first_state
from vlc_jax.train import step as train_step
from vlc_jax.types import Outputs

DECAY = 0.75
TERMS = ("infonce", "cross_modal_rank", "text_grounded")


@pytest.fixture(scope="module")
def start():
    """A setup, its first state, and a batch whose examples have two hard negatives."""
    model, params, batch = test_train.make_start(width=8)
    config = test_train.configured()
    with config.unlocked():
        config.losses = {name: default.loss(1.0) for name in TERMS}
        config.losses.distill = default.loss(1.0, decay=DECAY)
        config.input.negatives.count = 2
        config.optimizer.learning_rate = 0.1
    run = test_train.resolved(config, model)
    state, _ = test_train.first_state(run, params)
    state = state._replace(memory=setup_state.initial_memory(run.optimization, state.params))
    rng = np.random.default_rng(1)
    batch["negative_text"] = jnp.asarray(rng.integers(3, 30, (8, 2, 7))).at[..., -1].set(2)
    batch["negative_mask"] = jnp.asarray(np.arange(16).reshape(8, 2) % 5 > 0)
    return run, state, batch


@pytest.fixture(scope="module")
def steps(start):
    """The step, states before and after three of them, and metrics of each."""
    run, state, batch = start
    step, states, metrics = jax.jit(train_step.make_step(run)), [], []
    for _ in range(3):
        states.append(state)
        state, of_step = step(state, {}, batch)
        metrics.append(of_step)
    return step, [*states, state], metrics


def assert_close(found, expected):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, expected
    )


def test_the_teacher_follows_the_parameters_after_each_update(steps):
    _, states, metrics = steps
    for before, after in itertools.pairwise(states):
        teacher, params = jax.device_get((before.memory["teacher"], after.params))
        expected = jax.tree.map(lambda a, b: DECAY * a + (1 - DECAY) * b, teacher, params)
        assert_close(after.memory["teacher"], expected)
    # the first teacher is the model itself
    assert metrics[0]["distill"] == pytest.approx(0.0, abs=1e-10)
    assert metrics[1]["distill"] > 1e-3
    assert float(metrics[0]["is_finite"])


def test_losses_of_a_step_read_the_memory_of_the_step_before(start, steps):
    run, _, batch = start
    _, states, metrics = steps

    @jax.jit
    def expected(state):
        def outputs(params):
            return run.model.apply({"params": params}, batch)

        found: Outputs = outputs(state.params)._replace(
            teacher=outputs(state.memory["teacher"]), thresholds=state.memory["thresholds"]
        )
        terms = run.optimization.losses
        value, _ = losses.total(terms, found, batch)
        return value, losses.thresholds(terms, found, batch)

    for before, after, of_step in zip(states[:-1], states[1:], metrics, strict=True):
        value, thresholds = expected(before)
        assert of_step["loss"] == pytest.approx(float(value), rel=1e-5)
        assert_close(after.memory["thresholds"], thresholds)
        assert of_step["threshold"] == pytest.approx(float(thresholds.mean()), rel=1e-4)
    assert states[0].memory["thresholds"].tolist() == [0.0, 0.0]


def test_a_step_that_is_not_finite_leaves_the_memory(start, steps):
    _, state, batch = start
    memory = {**state.memory, "thresholds": jnp.array([1.0, 2.0])}
    state = state._replace(memory=memory)
    nan = {**batch, "image": batch["image"].at[0].set(jnp.nan)}
    after, metrics = steps[0](state, {}, nan)
    assert not metrics["is_finite"]
    jax.tree.map(np.testing.assert_array_equal, after.memory, memory)


def test_a_run_resumes_with_its_memory_and_may_begin_it_later(start, tmp_path, monkeypatch):
    run, state, _ = start
    training = SimpleNamespace(checkpoint={"keep_last": 2, "keep_every": None})
    run = run._replace(training=training, origin=SimpleNamespace(path="weights"))
    loaded = jax.tree.map(lambda x: np.asarray(x) - 0.5, start[1].params)
    monkeypatch.setattr(first_state.init_from, "load_trained", lambda *_: loaded)
    monkeypatch.setattr(first_state.init_from, "load_batch_stats", lambda _: {})
    without = run.optimization._replace(teacher_decay=None, num_thresholds=0)
    plain = run._replace(optimization=without)
    workdir = Workdir(tmp_path)
    first, checkpoints = first_state.restore_or_init(run, workdir, {})
    # the first teacher is the model that was loaded, not the one that was initialised
    assert_close(first.memory, {**state.memory, "teacher": loaded})
    memory = {"teacher": first.params, "thresholds": first.memory["thresholds"] + 1.5}
    trained = jax.tree.map(lambda x: x + 0.5, first.params)
    for step, kept in ((1, memory), (2, {})):
        saved = first._replace(step=first.step + step, params=trained, memory=kept)
        checkpoints.save(step, saved)
        checkpoints.wait()
        found, again = (first_state.restore_or_init(x, workdir, {})[0] for x in (run, plain))
        assert (found.step, again.memory) == (step, {})
        # begun later, the teacher starts from the model of that checkpoint
        expected = kept or {"teacher": trained, "thresholds": np.zeros(2)}
        jax.tree.map(np.testing.assert_array_equal, found.memory, expected)
    workdir.close()


def test_a_large_model_has_the_same_first_state(start, tmp_path, monkeypatch):
    training = SimpleNamespace(checkpoint={"keep_last": 1, "keep_every": None})
    run = start[0]._replace(training=training, origin=SimpleNamespace(path=""))
    monkeypatch.setattr(parameters, "LARGE", 0)
    workdir = Workdir(tmp_path)
    drawn, _ = first_state.restore_or_init(run, workdir, {})
    assert_close(drawn, jax.jit(partial(setup_state.init_state, run))({}))
    assert run.parameters._replace(frozen=("image",)).init_large() == {}
    workdir.close()


def test_parameters_that_are_loaded_are_not_drawn(start):
    """In no program of the first state: to compile one takes as long as a step."""
    run, state, _ = start
    first = jax.jit(partial(setup_state.init_state, run))
    drawn, read = (
        first.lower({}, loaded).compile().as_text().count("shift-right-logical")
        for loaded in ({}, state.params)
    )
    assert drawn > 0 == read


def test_an_average_of_adapters_is_refused():
    config = default.get_config()
    with config.unlocked():
        config.losses = {"distill": default.loss(1.0)}
        config.lora.targets, config.init_from = ".*/query/kernel", "towers"
    with pytest.raises(validate.UsageError, match=r"no average of its matrices: set config\.lora"):
        validate.check_lora(config)
