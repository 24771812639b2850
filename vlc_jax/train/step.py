"""The train step (forward, backward, update), as a pure function."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from vlc_jax import losses, types
from vlc_jax.losses import teacher as teachers
from vlc_jax.train import spike_guard
from vlc_jax.types import State
from vlc_jax.types.setup import Setup

Batch = dict[str, jax.Array]
PIXELS = ("image", "crops")  # keys of a batch
# (state, frozen parameters or {}, batch) -> (state, metrics)
Step = Callable[[State, Any, Batch], tuple[State, dict[str, jax.Array]]]


def make_step(setup: Setup) -> Step:
    """The train step of a run, a pure function of state, frozen parameters and batch.

    A step with a non-finite loss or gradient returns the state unchanged. With a spike guard, a
    step with an outlying gradient norm changes no parameters.
    """
    optimization, sub_batches = setup.optimization, setup.optimization.sub_batches

    def loss(
        trained: Any, frozen: Any, state: State, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, tuple]:
        def variables_of(trained: Any) -> dict[str, Any]:
            params = setup.parameters.for_step(frozen, trained)
            return {"params": params, "batch_stats": state.batch_stats}

        variables, memory = variables_of(trained), dict(state.memory)
        if "teacher" in memory:
            memory["teacher"] = variables_of(memory["teacher"])
        if sub_batches == 1:
            return sub_batch_loss(setup, variables, memory, batch, key)
        parts = split_batch(batch, sub_batches, optimization.rows_per_example)
        # rematerialised, so that only one sub-batch's activations are alive at a time
        body = jax.checkpoint(lambda part: sub_batch_loss(setup, variables, memory, *part))
        keys = jax.random.split(key, sub_batches)
        return jax.tree.map(lambda x: x.mean(axis=0), jax.lax.map(body, (parts, keys)))

    def step(state: State, frozen: Any, batch: Batch) -> tuple[State, dict[str, jax.Array]]:
        # a function of (seed, step), so that a resumed run draws the same numbers
        key = jax.random.fold_in(jax.random.key(optimization.seed), state.step)
        (value, (metrics, batch_stats, memory)), grads = jax.value_and_grad(loss, has_aux=True)(
            state.params, frozen, state, batch, key
        )
        norm = optax.tree.norm(grads)
        is_finite = jnp.isfinite(value) & jnp.isfinite(norm)
        updates, opt_state = optimization.optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        # after the update, as open_clip does: a clamp inside the loss would have no gradient at
        # the bound
        params = clamp_logit_scale(params, optimization.logit_scale_max)
        if "teacher" in state.memory:
            teacher = teachers.average(state.memory["teacher"], params, optimization.teacher_decay)
            memory = {**memory, "teacher": teacher}
        new = State(state.step + 1, params, opt_state, batch_stats, memory=memory)
        if optimization.spike_guard:
            factor = optimization.spike_guard[0]
            is_spike, guard, guard_metrics = spike_guard.judge(state.guard, norm, factor)
            new = spike_guard.without_update(is_spike, new._replace(guard=guard), state)
            metrics = {**metrics, **guard_metrics}
        # the whole state: a NaN must not enter Adam's moments, nor advance the step count
        new = jax.tree.map(lambda after, before: jnp.where(is_finite, after, before), new, state)
        return new, {
            **metrics,
            "grad_norm": norm,
            "learning_rate": optimization.schedule(state.step),
            "is_finite": is_finite,
            # over processes, so that all stop at the same step
            "stop": jnp.any(batch["stop"]),
        }

    return step


def sub_batch_loss(
    setup: Setup, variables: Any, memory: Mapping[str, Any], batch: Batch, key: jax.Array
) -> tuple[jax.Array, tuple[dict[str, jax.Array], Any, dict[str, jax.Array]]]:
    """(loss, (metrics, running statistics of the head, next memory)) of a sub-batch.

    memory: as in the state, with the teacher's variables as "teacher".
    """
    config_losses = setup.optimization.losses
    outputs, batch_stats = forward(setup, variables, batch, key)
    if "teacher" in memory:
        teacher, _ = forward(setup, memory["teacher"], batch, key)
        outputs = outputs._replace(teacher=teacher)
    outputs = outputs._replace(thresholds=memory.get("thresholds"), centres=memory.get("centres"))
    value, sums = losses.total(config_losses, outputs, batch, setup.mesh)
    parts = {name: total / jnp.maximum(count, 1) for name, (total, count) in sums.items()}
    metrics = {**parts, "loss": value, "logit_scale": outputs.logit_scale}
    following = {}
    if "thresholds" in memory:
        following["thresholds"] = losses.thresholds(config_losses, outputs, batch)
        metrics["threshold"] = following["thresholds"].mean()
    if "centres" in memory:
        following["centres"] = losses.centres(config_losses, outputs, batch)
    return value, (metrics, batch_stats, following)


def forward(
    setup: Setup, variables: Any, batch: Batch, key: jax.Array
) -> tuple[types.Outputs, Any]:
    """Outputs of the model in training, and the running statistics of its head."""
    rows = setup.optimization.microbatch
    if rows is None:
        inputs = normalised(setup, batch)
    else:
        inputs = with_features(setup, variables, batch, rows, key)
    variables = {**variables, "params": setup.parameters.with_dropout(variables["params"], key)}
    outputs, updated = setup.model.apply(
        variables, inputs, rngs={"dropout": key}, mutable=["batch_stats"]
    )
    return outputs, updated.get("batch_stats", {})


def normalised(setup: Setup, batch: Batch) -> Batch:
    """The batch with normalised float32 images and crops of images, if it has them."""
    return batch | {key: setup.normalise(batch[key]) for key in PIXELS if key in batch}


def with_features(setup: Setup, variables: Any, batch: Batch, rows: int, key: jax.Array) -> Batch:
    """The batch with per-row features (`CLIP.micro_features`) in place of images.

    Features are computed in micro-batches of `rows` rows. Value and gradient of a loss equal those
    of the whole batch, but only `rows` rows of activations are in memory, since the backward pass
    encodes each micro-batch again (GradCache; Gao et al. 2021, arXiv:2101.06983). Operations across
    rows, random numbers and running statistics belong to the head (unless it is row-wise) and the
    loss, which see the whole batch. The dropout of adapters is drawn from `key` per micro-batch,
    identically in both passes.
    """
    count = len(batch["mask"]) // rows

    @jax.checkpoint
    def encode(variables: Any, batch: Batch, index: jax.Array) -> Batch:
        def part(x: jax.Array) -> jax.Array:
            # rows index, index + count, ...: the same number on each device, so that none moves
            x = x.reshape(rows, count, *x.shape[1:])
            return types.shard_batch(jax.lax.dynamic_index_in_dim(x, index, 1, keepdims=False))

        # normalised here: the whole batch in float32 is four times as large as in uint8
        inputs = normalised(setup, jax.tree.map(part, batch))
        params = setup.parameters.with_dropout(variables["params"], jax.random.fold_in(key, index))
        return setup.model.apply({**variables, "params": params}, inputs, method="micro_features")

    # mapped over an index: mapping over a split batch would copy all pixels
    parts = jax.lax.map(lambda index: encode(variables, batch, index), jnp.arange(count))
    features = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:]), parts)
    without_images = {key: x for key, x in batch.items() if key not in PIXELS}
    return without_images | jax.tree.map(types.shard_batch, features)


def clamp_logit_scale(
    params: Mapping[str, Any], maximum: float | None, minimum: float | None = 1.0
) -> dict[str, Any]:
    """`params` with the (linear) logit scale clipped to [minimum, maximum]; None: no bound.

    A frozen scale is not in the trained `params` and is not clipped.

    CLIP clamps to [1, 100] after every optimizer step. Published SigLIP weights have a scale of
    about 117, so finetuning them needs `maximum=None`.
    """
    if "logit_scale" not in params:
        return dict(params)
    bounds = [None if bound is None else math.log(bound) for bound in (minimum, maximum)]
    return {**params, "logit_scale": jnp.clip(params["logit_scale"], *bounds)}


def split_batch(batch: Batch, sub_batches: int, group: int) -> Batch:
    """Reshapes (batch, ...) to (sub_batches, batch / sub_batches, ...).

    `group` neighbouring rows stay together. Groups are assigned round-robin, so that every device
    holds a part of every sub-batch.
    """

    def split(x: jax.Array) -> jax.Array:
        groups = jnp.swapaxes(x.reshape(-1, sub_batches, group, *x.shape[1:]), 0, 1)
        return groups.reshape(sub_batches, -1, *x.shape[1:])

    return jax.tree.map(split, batch)
