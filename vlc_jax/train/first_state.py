"""Frozen parameters and first state of a run: restored, loaded or initialised."""

import json
from functools import partial
from typing import Any

import jax
import numpy as np

from vlc_jax.devices import sharding
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.record import Source
from vlc_jax.models.parameters import TOWERS, merge_trees
from vlc_jax.run.checkpoint import Checkpoints
from vlc_jax.run.store.step_folders import steps_of
from vlc_jax.run.workdir import Workdir
from vlc_jax.setup import addresses, init_from
from vlc_jax.setup.state import guard_state, init_state, initial_memory, state_shapes
from vlc_jax.types import State
from vlc_jax.types.setup import Setup


def load_frozen_for_step(setup: Setup) -> tuple[Any, dict[str, Any]]:
    """The frozen parameters that a step needs, and fingerprints of frozen parameters, data and
    files of the hub.

    Raises UsageError if stored features are of other towers.
    """
    frozen, fingerprint = init_from.load_frozen(setup)
    data = setup.training.data
    if data.has_features:
        _check_features(
            data.source, {**data.feature_cache_key, "weights": fingerprint.get("weights")}
        )
        # a step reads stored features; evaluation loads the towers itself
        frozen = {name: part for name, part in frozen.items() if name not in TOWERS}
    return frozen, {**data.fingerprints(), **addresses.hashes(setup.config), **fingerprint}


def _check_features(source: Source, key: dict[str, Any]) -> None:
    """Raises UsageError if stored features are of other towers or pixels than `key`."""
    stored, ours = source.facts, json.loads(json.dumps(key))  # by JSON: tuples become lists
    differing = [name for name in ours if stored.get(name) != ours[name]]
    if differing:
        lines = "; ".join(f"{name} {stored.get(name)}, not {ours[name]}" for name in differing)
        raise UsageError(
            "the features at config.input.source_options.path are of other towers or pixels: "
            f"{lines}; store them again (vlc-jax cache_features) or change the config"
        )


def restore_or_init(setup: Setup, workdir: Workdir, frozen: Any) -> tuple[State, Checkpoints]:
    """The state of the workdir's latest valid checkpoint, or the initial state if it has none.

    The initial state is an adapter of the frozen parameters, or the trained parameters, loaded from
    config.init_from if that is set.
    """
    training, shapes = setup.training, state_shapes(setup, frozen)
    shardings = jax.tree.map(lambda x: x.sharding, shapes)
    checkpoints = Checkpoints(
        steps_of(workdir.path),
        training.checkpoint["keep_last"],
        training.checkpoint["keep_every"] or 0,
        workdir.event,
        workdir.flush,
    )
    state = checkpoints.restore(shapes)
    if state is not None:
        if setup.optimization.spike_guard and not state.guard:
            # the guard was switched on after that checkpoint
            guard = jax.tree.map(np.asarray, guard_state())
            state = state._replace(guard=sharding.put_like(guard, shapes.guard))
        if shapes.memory and not state.memory:  # as the guard
            initial = partial(initial_memory, setup.optimization)
            memory = jax.jit(initial, out_shardings=shardings.memory)(state.params)
            state = state._replace(memory=memory)
        return state, checkpoints
    # read before the state is allocated
    if setup.origin.path and not setup.parameters.lora:
        loaded = init_from.load_trained(setup, shapes.params)
    elif loaded := setup.parameters.init_large():
        loaded = sharding.put_like(loaded, shapes.params)
    batch_stats = init_from.load_batch_stats(setup) if setup.origin.path else {}
    initial = jax.jit(partial(init_state, setup), out_shardings=shardings, donate_argnums=1)
    state = initial(frozen, loaded)
    state = state._replace(batch_stats=merge_trees(state.batch_stats, batch_stats))
    if setup.origin.path:
        parts = sorted(frozen.keys() | loaded.keys())
        workdir.event("weights", path=str(setup.origin.path), parts=parts)
    return state, checkpoints
