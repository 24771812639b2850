"""Training steps of SILC's and TIPS's losses: teacher and centres between steps, and a resume."""

import itertools
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from tests.support import small_models
from tests.train import test_train
from vlc_jax import losses, models
from vlc_jax.configs import default
from vlc_jax.run.checkpoint import Checkpoints
from vlc_jax.run.store.step_folders import steps_of
from vlc_jax.run.workdir import Workdir
from vlc_jax.setup import state as setup_state
from vlc_jax.setup import validate
from vlc_jax.train import first_state
from vlc_jax.train import step as train_step

SMALL = {"width": 8, "heads": 2, "depth": 1, "projection": 8}
MOMENTUM, DECAY = 0.75, 0.5


@pytest.fixture(scope="module")
def start():
    """A setup and its first state."""
    image = {**SMALL, "image_size": 16, "patch_size": 8}
    text = {**SMALL, "vocab_size": 30, "context_length": 7, "eos_id": 2}
    head = {"prototypes": 5, "hidden": 6, "bottleneck": 4}
    model = models.build("self_distilled", "B/32", head=head, image=image, text=text)
    config = test_train.configured()
    with config.unlocked():
        options = {"centre_momentum": MOMENTUM, "decay": DECAY}
        config.losses.update({name: default.loss(1.0, **options) for name in losses.CENTRED})
        config.optimizer.learning_rate = 0.1
    run = test_train.resolved(config, model)
    params = jax.device_put(small_models.parameters(model, 0.2))
    state, _ = test_train.first_state(run, params)
    memory = setup_state.initial_memory(run.optimization, state.params)
    return run, jax.device_get(state._replace(memory=memory))


@pytest.fixture(scope="module")
def steps(start):
    """The step, batches, and the state before each of two steps and after the last."""
    run, state = start
    step = jax.jit(train_step.make_step(run))
    rng, states, batches = np.random.default_rng(0), [state], []
    for _ in range(2):
        batch = {
            "image": rng.normal(size=(8, 16, 16, 3)).astype(np.float32),
            "crops": rng.normal(size=(8, 2, 8, 8, 3)).astype(np.float32),
            "masked_patches": rng.integers(0, 4, (8, 1)).astype(np.int32),
            "text": np.full((8, 7), 2, np.int32),
            "mask": np.arange(8) != 3,
            "stop": np.zeros(8, bool),
        }
        batches.append(batch)
        # on the host: a restored state is then one of the same program
        state, metrics = jax.device_get(step(state, {}, batch))
        states.append(state)
        assert metrics["is_finite"]
    return step, batches, states


def test_centres_and_teacher_follow_each_step(start, steps):
    run, _ = start
    _, batches, states = steps

    def logits(*given):
        return run.model.apply(*given).view_logits

    logits_of = jax.jit(logits)
    for batch, (before, after) in zip(batches, itertools.pairwise(states), strict=True):
        teacher, params = before.memory["teacher"], after.params
        expected = jax.tree.map(lambda a, b: DECAY * a + (1 - DECAY) * b, teacher, params)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6),
            after.memory["teacher"],
            expected,
        )
        # iBOT: the mean over all patches, masked or not
        every = {key: x for key, x in batch.items() if key != "masked_patches"}
        found = logits_of({"params": teacher}, every)
        for name, logits in (("self_distill", found.image), ("masked_patches", found.patches)):
            mean = np.asarray(logits)[batch["mask"]].reshape(-1, 5).mean(axis=0)
            centre = MOMENTUM * before.memory["centres"][name] + (1 - MOMENTUM) * mean
            np.testing.assert_allclose(after.memory["centres"][name], centre, rtol=1e-4, atol=1e-6)
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), states[0].params, states[-1].params)
    head = moved["head"]  # every parameter of the head learns, the mask token from zero
    assert all(x > 0 for x in jax.tree.leaves(head)), head


def test_a_resumed_run_ends_with_the_bits_of_an_unbroken_one(start, steps, tmp_path):
    run, _ = start
    step, batches, states = steps
    training = SimpleNamespace(checkpoint={"keep_last": 1, "keep_every": None})
    run = run._replace(training=training, origin=SimpleNamespace(path=None))
    workdir = Workdir(tmp_path)
    checkpoints = Checkpoints(steps_of(tmp_path), 1, 0, workdir.event, workdir.flush)
    checkpoints.save(1, jax.device_put(states[1]))
    checkpoints.wait()
    state, _ = first_state.restore_or_init(run, workdir, {})
    workdir.close()
    for batch in batches[1:]:
        state, _ = jax.device_get(step(jax.device_get(state), {}, batch))
    jax.tree.map(np.testing.assert_array_equal, state, states[-1])


def test_prototype_losses_of_other_models_are_refused():
    config = test_train.configured()
    with config.unlocked():
        config.losses.self_distill = default.loss(1.0)
    model = models.build("clip", "mini")
    with pytest.raises(validate.UsageError, match=r"prototypes: set config\.model\.name='self_di"):
        test_train.resolved(config, model)
