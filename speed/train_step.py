"""The training step of CLIP on random pairs that speed/step.py and speed/negatives.py time."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import linen as nn
from ml_collections import ConfigDict

from speed import harness
from vlc_jax import setup
from vlc_jax.devices import sharding
from vlc_jax.setup.state import init_state
from vlc_jax.train.step import compile_step


class TrainStep(NamedTuple):
    """run: runs one step to its end."""

    run: Callable[[], None]
    compiled: Any
    compile_seconds: float


def build(config: ConfigDict, model: nn.Module) -> TrainStep:
    run = setup.of_model(config, model, config.steps)
    state = jax.jit(partial(init_state, run))({})
    batch = sharding.put_batch(run.mesh, random_batch(config, model))
    compiled, seconds = harness.timed(lambda: compile_step(run, state, {}, batch))

    def step() -> None:
        nonlocal state
        # the state is donated: a second step on the old one would read deleted arrays
        state, metrics = compiled(state, {}, batch)
        # dispatch is asynchronous: without it only the call would be timed
        jax.block_until_ready((state, metrics))

    return TrainStep(step, compiled, seconds["s"])


def random_batch(config: ConfigDict, model: nn.Module) -> dict[str, np.ndarray]:
    """A training batch with the numbers of hard texts of config.input."""
    rng, rows = np.random.default_rng(0), config.batch_size
    size, tower = model.image.image_size, model.text
    tokens = partial(harness.random_tokens, rng, vocabulary=tower.vocab_size, eos=tower.eos_id)
    batch = {
        "image": rng.integers(0, 256, (rows, size, size, 3), dtype=np.uint8),
        "text": tokens(rows, tower.context_length),
        "id": rng.integers(0, 2**32, (rows, 2), dtype=np.uint32),
        "mask": np.ones(rows, bool),
        "stop": np.zeros(rows, bool),
    }
    for kind in ("negative", "positive"):
        if count := config.input[f"{kind}s"].count:
            batch[f"{kind}_text"] = tokens(rows, count, tower.context_length)
            batch[f"{kind}_mask"] = np.ones((rows, count), bool)
    return batch
