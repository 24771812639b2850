"""Three training steps are those of torch: losses, decay rule, schedule, clipping, clamp."""

import jax
import numpy as np
import pytest

from tests.parity.test_towers import TINY
from vlc_jax import models, setup, weights
from vlc_jax.configs import default
from vlc_jax.devices import sharding
from vlc_jax.setup.init_from import architecture
from vlc_jax.train import step as train_step
from vlc_jax.types import State

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("loss", ["infonce", "sigmoid"])
def test_three_steps_end_at_the_parameters_of_torch(there, tmp_path, loss):
    there("train_reference.py", loss, tmp_path)
    bias = {"logit_bias_init": -10.0, "logit_scale_init": 10.0} if loss == "sigmoid" else {}
    model = models.build("clip", **TINY, **bias)
    config = default.get_config()
    with config.unlocked():
        config.losses = {loss: default.loss(1.0)}
        config.batch_size = 8
        config.optimizer.warmup_steps = 2
    run = setup.step_setup(config, model, 10)._replace(normalise=lambda image: image)
    shapes = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    params, _ = weights.load(tmp_path / "before", shapes, architecture(model))
    optimizer = jax.jit(run.optimization.optimizer.init)(params)
    state = State(jax.device_put(np.int32(0)), params, optimizer, {})
    step = jax.jit(train_step.make_step(run))
    every = {"mask": np.ones(8, bool), "stop": np.zeros(8, bool)}
    with np.load(tmp_path / "batches.npz") as saved:
        batches = dict(saved)
    for index in range(len(batches["image"])):
        batch = {key: array[index] for key, array in batches.items()}
        state, _ = step(state, {}, sharding.put_batch(run.mesh, batch | every))
    expected, _ = weights.load(tmp_path / "after", shapes, architecture(model))
    moved = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), expected, params)
    assert min(jax.tree.leaves(moved)) > 1e-5  # every parameter was trained
    jax.tree.map(
        lambda ours, theirs: np.testing.assert_allclose(ours, theirs, atol=1e-5),
        state.params,
        expected,
    )
