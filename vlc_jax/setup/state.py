"""The training state before the first step."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from vlc_jax.devices import sharding
from vlc_jax.models.parameters import merge_trees
from vlc_jax.types import State
from vlc_jax.types.setup import Optimization, Setup

GUARD_WINDOW = 100  # norms, of steps without a spike


def guard_state() -> dict[str, jax.Array]:
    """The state of the spike guard before the first step.

    norms: of the last steps, in a ring.   count: steps without a spike.   in_a_row: spikes up to
    now.   skipped: all spikes.
    """
    counts = {name: jnp.zeros((), jnp.int32) for name in ("count", "in_a_row", "skipped")}
    return {"norms": jnp.zeros(GUARD_WINDOW, jnp.float32), **counts}


def initial_memory(optimization: Optimization, params: Any) -> dict[str, Any]:
    """Memory of losses between steps (`State.memory`), as it is before the first one.

    Thresholds and centres start at 0, the teacher as a copy of the trained parameters `params`.
    """
    memory: dict[str, Any] = {}
    if optimization.num_thresholds:
        memory["thresholds"] = jnp.zeros(optimization.num_thresholds, jnp.float32)
    if optimization.centres:
        sizes = optimization.centres.items()
        memory["centres"] = {name: jnp.zeros(size, jnp.float32) for name, size in sizes}
    if optimization.teacher_decay is not None:
        # copies: the step donates the whole state, and no array may be donated twice
        memory["teacher"] = jax.tree.map(jnp.copy, params)
    return memory


def init_state(setup: Setup, frozen: Any, loaded: Mapping[str, Any] | None = None) -> State:
    """The state before the first step; with LoRA, the adapter of the `frozen` parameters.

    loaded: trained parameters of a file; jitted, none are drawn in their place (20 s of B/32)."""
    params = merge_trees(setup.parameters.init_trained(frozen), loaded or {})
    return State(
        step=jnp.zeros((), jnp.int32),
        params=params,
        opt_state=setup.optimization.optimizer.init(params),
        batch_stats=setup.parameters.init_batch_stats(),
        guard=guard_state() if setup.optimization.spike_guard else {},
        memory=initial_memory(setup.optimization, params),
    )


def state_shapes(setup: Setup, frozen: Any) -> State:
    """Shapes, dtypes and shardings of `init_state`, without allocating it."""
    return sharding.place_shapes(setup.mesh, jax.eval_shape(partial(init_state, setup), frozen))
