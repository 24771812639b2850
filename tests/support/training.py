"""A training run in this process, and the state before its first step."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from ml_collections import ConfigDict

from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.run.workdir import Workdir
from vlc_jax.setup import optimizer, resolve
from vlc_jax.train import loop
from vlc_jax.types import State
from vlc_jax.types.setup import Setup


def train(config: ConfigDict, folder: Path) -> Path:
    """Trains `config` to its end; returns the workdir."""
    workdir = Workdir(folder)
    try:
        loop.train(resolve(config), workdir, StopSignal(), allow_change=False)
    finally:
        workdir.close()
    return workdir.path


def optimizer_of(params: Any, learning_rate: Any = None) -> optax.GradientTransformation:
    """AdamW of a run, with a constant learning rate."""
    rate = learning_rate or optimizer.schedule("constant", 0.1, 10)
    return optimizer.make(params, rate, optimizer.AdamW(0.1, clip_norm=1.0))


def first_state(run: Setup, params: Any) -> tuple[State, Any]:
    """The state before the first step, and the frozen parameters."""
    trained, frozen = run.parameters.split(params)
    optimizer = jax.jit(run.optimization.optimizer.init)(trained)
    state = State(jax.device_put(np.int32(0)), trained, optimizer, {})
    return state, frozen
