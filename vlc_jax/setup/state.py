"""The training state before the first step."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from vlc_jax.devices import sharding
from vlc_jax.types import State
from vlc_jax.types.setup import Setup


def init_state(setup: Setup, frozen: Any) -> State:
    """The state before the first step; with LoRA, the adapter of the `frozen` parameters."""
    params = setup.parameters.init_trained(frozen)
    return State(
        step=jnp.zeros((), jnp.int32),
        params=params,
        opt_state=setup.optimization.optimizer.init(params),
        batch_stats=setup.parameters.init_batch_stats(),
    )


def state_shapes(setup: Setup, frozen: Any) -> State:
    """Shapes, dtypes and shardings of `init_state`, without allocating it."""
    return sharding.place_shapes(setup.mesh, jax.eval_shape(partial(init_state, setup), frozen))
