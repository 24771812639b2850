"""The training step on random pairs that speed/step.py times."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from ml_collections import ConfigDict

from speed import harness
from vlc_jax import setup
from vlc_jax.devices import sharding
from vlc_jax.setup.plan_search import batch_shapes
from vlc_jax.setup.state import init_state
from vlc_jax.train.compiled_step import compile_step


def build(config: ConfigDict, model: nn.Module) -> tuple[Callable[[], None], Any, dict]:
    """A function that runs one step, to its end, of a run with `config` whose texts and images fit
    `model`; the compiled step; seconds of a large model's first state and of compilation."""
    config.text.context_length = model.text.context_length
    config.input.image_size = model.image.image_size
    run = setup.step_setup(config, model, config.steps)
    params, drawn = harness.timed(run.parameters.init_large)  # as a run does
    params = params or random_arrays(run.parameters.trained_shapes(), model.text)
    state = jax.jit(partial(init_state, run))({}, params)
    shapes = batch_shapes(config, run.mesh, run.parameters)
    batch = sharding.put_batch(run.mesh, random_arrays(shapes, model.text))
    compiled, seconds = harness.timed(lambda: compile_step(run, state, {}, batch))

    def step() -> None:
        nonlocal state
        # the state is donated: a second step on the old one would read deleted arrays
        state, metrics = compiled(state, {}, batch)
        # dispatch is asynchronous: without it only the call would be timed
        jax.block_until_ready((state, metrics))

    return step, compiled, {"state, s": drawn["s"], "compile, s": seconds["s"]}


def random_arrays(shapes: Any, text: nn.Module) -> Any:
    """Random arrays of the shapes: True, token ids, or normal with rows of norm about 1."""
    rng = np.random.default_rng(0)

    def draw(leaf: Any) -> np.ndarray:
        if leaf.dtype == bool:
            return np.ones(leaf.shape, bool)
        if leaf.dtype == np.int8:
            # marks: the first functional word, in the fourth column
            marks = np.zeros(leaf.shape, np.int8)
            marks[:, 3] = 1
            return marks
        if leaf.dtype == np.int32:
            # of the whole vocabulary: the gradient of few rows of the table would collide
            return harness.random_tokens(rng, leaf.shape, text.vocab_size, text.eos_id)
        if leaf.dtype == np.float32:
            x = rng.standard_normal(leaf.shape, np.float32)
            return x / np.float32(math.sqrt(leaf.shape[-1] if leaf.shape else 1))
        return rng.integers(0, np.iinfo(leaf.dtype).max, leaf.shape, leaf.dtype, endpoint=True)

    return jax.tree.map(draw, shapes)
