"""One step of training as a pure function, and compiled: forward, backward, update."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from ml_collections import ConfigDict

from vlc_jax import build, losses, optimizer, sharding
from vlc_jax.build import State, Task
from vlc_jax.models import clip, heads

# (state, frozen parameters or {}, batch) -> (state, metrics)
Step = Callable[[State, Any, dict[str, jax.Array]], tuple[State, dict[str, jax.Array]]]


def make_step(config: ConfigDict, task: Task, steps: int) -> Step:
    """One step of the run as a pure function of state, frozen parameters and batch.

    A step whose loss or gradient is not finite leaves the state as it was.
    """
    rate = build.learning_rate(config, steps)
    loss_options = {
        name: {key: value for key, value in options.items() if value is not None}
        for name, options in config.losses.items()
    }

    def block_loss(
        params: Any, batch: dict[str, jax.Array], key: jax.Array
    ) -> tuple[jax.Array, tuple[dict, dict]]:
        image = {"image": task.normalise(batch["image"])} if "image" in batch else {}
        variables, rngs = {"params": params}, {"dropout": key}
        outputs = task.model.apply(variables, {**batch, **image}, rngs=rngs)
        value, sums = losses.total(loss_options, outputs, batch, task.mesh)
        parts = {name: total / jnp.maximum(count, 1) for name, (total, count) in sums.items()}
        metrics = {**parts, "loss": value, "logit_scale": outputs.logit_scale}
        return value, (metrics, outputs.statistics or {})

    def loss(
        trained: Any, frozen: Any, batch: dict[str, jax.Array], key: jax.Array
    ) -> tuple[jax.Array, tuple[dict, dict]]:
        trained = optimizer.without_frozen_gradients(trained, config.optimizer.multipliers)
        params = build.merged(config, frozen, trained)
        if config.blocks == 1:
            return block_loss(params, batch, key)
        parts = split_blocks(batch, config.blocks, 1 + config.input.hard_images)
        body = jax.checkpoint(lambda part: block_loss(params, *part))
        keys = jax.random.split(key, config.blocks)
        return jax.tree.map(lambda x: x.mean(axis=0), jax.lax.map(body, (parts, keys)))

    def step(
        state: State, frozen: Any, batch: dict[str, jax.Array]
    ) -> tuple[State, dict[str, jax.Array]]:
        tx = build.transformation(config, state.params, steps)
        key = jax.random.fold_in(jax.random.key(config.seed), state.step)
        (value, (metrics, statistics)), grads = jax.value_and_grad(loss, has_aux=True)(
            state.params, frozen, batch, key
        )
        norm = optax.tree.norm(grads)
        is_finite = jnp.isfinite(value) & jnp.isfinite(norm)
        updates, opt_state = tx.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        params = clip.clamp_logit_scale(params, config.logit_scale_max)
        params = heads.update_running_moments(params, statistics)
        new = State(state.step + 1, params, opt_state)
        new = jax.tree.map(lambda after, before: jnp.where(is_finite, after, before), new, state)
        return new, {
            **metrics,
            "grad_norm": norm,
            "learning_rate": rate(state.step),
            "is_finite": is_finite,
            "stop": jnp.any(batch["stop"]),
        }

    return step


def split_blocks(batch: dict[str, jax.Array], blocks: int, group: int) -> dict[str, jax.Array]:
    """(batch, ...) as (blocks, batch / blocks, ...): `group` neighbouring rows stay together, and
    the groups are dealt out in turn, so that every device has a share of every block.
    """

    def split(x: jax.Array) -> jax.Array:
        dealt = jnp.swapaxes(x.reshape(-1, blocks, group, *x.shape[1:]), 0, 1)
        return dealt.reshape(blocks, -1, *x.shape[1:])

    return jax.tree.map(split, batch)


def compile_step(
    config: ConfigDict,
    task: Task,
    steps: int,
    state: State,
    frozen: Any,
    batch: dict[str, jax.Array],
) -> Step:
    """Compiles a step for these shapes; the new state replaces `state` and lies where it lay."""
    where = jax.tree.map(lambda x: x.sharding, state)
    step = jax.jit(
        make_step(config, task, steps),
        out_shardings=(where, sharding.replicated(task.mesh)),
        donate_argnums=0,
    )
    with jax.set_mesh(task.mesh):  # also where this is another thread
        return step.lower(state, frozen, batch).compile()
