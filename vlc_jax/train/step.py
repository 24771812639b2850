"""One step of training as a pure function, and compiled: forward, backward, update."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from vlc_jax import losses, types
from vlc_jax.devices import sharding
from vlc_jax.types import State
from vlc_jax.types.setup import Setup

Batch = dict[str, jax.Array]
# (state, frozen parameters or {}, batch) -> (state, metrics)
Step = Callable[[State, Any, Batch], tuple[State, dict[str, jax.Array]]]


def make_step(setup: Setup) -> Step:
    """One step of the run as a pure function of state, frozen parameters and batch.

    A step whose loss or gradient is not finite leaves the state as it was.
    """
    model, parameters, optimization = setup.model, setup.parameters, setup.optimization
    sub_batches = optimization.sub_batches

    def sub_batch_loss(variables: Any, batch: Batch, key: jax.Array) -> tuple[jax.Array, tuple]:
        if optimization.microbatch is None:
            inputs = normalised(setup, batch)
        else:
            inputs = with_features(setup, variables, batch, optimization.microbatch, key)
        variables = {**variables, "params": parameters.with_dropout(variables["params"], key)}
        outputs, updated = model.apply(
            variables, inputs, rngs={"dropout": key}, mutable=["batch_stats"]
        )
        value, sums = losses.total(optimization.losses, outputs, batch, setup.mesh)
        parts = {name: total / jnp.maximum(count, 1) for name, (total, count) in sums.items()}
        metrics = {**parts, "loss": value, "logit_scale": outputs.logit_scale}
        return value, (metrics, updated.get("batch_stats", {}))

    def loss(
        trained: Any, frozen: Any, batch_stats: Any, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, tuple]:
        variables = {"params": parameters.for_step(frozen, trained), "batch_stats": batch_stats}
        if sub_batches == 1:
            return sub_batch_loss(variables, batch, key)
        parts = split_batch(batch, sub_batches, optimization.rows_per_example)
        # rematerialised, so that the activations of one sub-batch are alive at a time
        body = jax.checkpoint(lambda part: sub_batch_loss(variables, *part))
        keys = jax.random.split(key, sub_batches)
        return jax.tree.map(lambda x: x.mean(axis=0), jax.lax.map(body, (parts, keys)))

    def step(state: State, frozen: Any, batch: Batch) -> tuple[State, dict[str, jax.Array]]:
        # a function of (seed, step), so that a resumed run draws what an unbroken one does
        key = jax.random.fold_in(jax.random.key(optimization.seed), state.step)
        (value, (metrics, batch_stats)), grads = jax.value_and_grad(loss, has_aux=True)(
            state.params, frozen, state.batch_stats, batch, key
        )
        norm = optax.tree.norm(grads)
        is_finite = jnp.isfinite(value) & jnp.isfinite(norm)
        updates, opt_state = optimization.optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        # after the update, as open_clip does: a clamp inside the loss would have no gradient at
        # the bound
        params = clamp_logit_scale(params, optimization.logit_scale_max)
        new = State(state.step + 1, params, opt_state, batch_stats)
        # the whole state, moments of Adam and the step count included
        new = jax.tree.map(lambda after, before: jnp.where(is_finite, after, before), new, state)
        return new, {
            **metrics,
            "grad_norm": norm,
            "learning_rate": optimization.schedule(state.step),
            "is_finite": is_finite,
            "stop": jnp.any(batch["stop"]),  # of any process: all stop at the same step
        }

    return step


def normalised(setup: Setup, batch: Batch) -> Batch:
    """The batch with its images, if it has any, as the model takes them."""
    return {**batch, "image": setup.normalise(batch["image"])} if "image" in batch else batch


def with_features(setup: Setup, variables: Any, batch: Batch, rows: int, key: jax.Array) -> Batch:
    """The batch with what the model makes of each row (`CLIP.micro_features`), computed `rows` rows
    at a time, and no images.

    Value and gradient of a loss of it are those of the whole batch, with the activations of `rows`
    rows in memory, since the backward pass encodes each micro-batch again (GradCache; Gao et al.
    2021, arXiv:2101.06983). What mixes rows, draws random numbers or keeps statistics is in the
    head (unless it is row-wise) and the loss, which see the whole batch; the dropout of adapters is
    drawn from `key` for each micro-batch, the same in both passes.
    """
    count = len(batch["mask"]) // rows

    @jax.checkpoint
    def encode(variables: Any, batch: Batch, index: jax.Array) -> Batch:
        def part(x: jax.Array) -> jax.Array:
            # rows index, index + count, ...: of each device's share, none of which has to move
            x = x.reshape(rows, count, *x.shape[1:])
            return types.shard_batch(jax.lax.dynamic_index_in_dim(x, index, 1, keepdims=False))

        # normalised here: the whole batch in float32 is four times as large as in uint8
        inputs = normalised(setup, jax.tree.map(part, batch))
        own_key = jax.random.fold_in(key, index)
        params = setup.parameters.with_dropout(variables["params"], own_key)
        return setup.model.apply({**variables, "params": params}, inputs, method="micro_features")

    # over an index and not over parts of the batch, which would be a copy of all pixels
    found = jax.lax.map(lambda index: encode(variables, batch, index), jnp.arange(count))
    features = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:]), found)
    kept = {key: x for key, x in batch.items() if key != "image"}
    return kept | jax.tree.map(types.shard_batch, features)


def clamp_logit_scale(
    params: Mapping[str, Any], maximum: float | None, minimum: float | None = 1.0
) -> dict[str, Any]:
    """`params` with the (linear) logit scale clipped to [minimum, maximum]; None is no bound.

    A frozen scale is not among the trained `params` and stays as it is.

    CLIP clamps to [1, 100] after every optimizer step. Published SigLIP weights have a scale of
    about 117, so finetuning them needs `maximum=None`.
    """
    if "logit_scale" not in params:
        return dict(params)
    bounds = [None if bound is None else math.log(bound) for bound in (minimum, maximum)]
    return {**params, "logit_scale": jnp.clip(params["logit_scale"], *bounds)}


def split_batch(batch: Batch, sub_batches: int, group: int) -> Batch:
    """(batch, ...) as (sub_batches, batch / sub_batches, ...).

    `group` neighbouring rows stay together. Groups are assigned round-robin, so that every device
    has a share of every sub-batch.
    """

    def split(x: jax.Array) -> jax.Array:
        groups = jnp.swapaxes(x.reshape(-1, sub_batches, group, *x.shape[1:]), 0, 1)
        return groups.reshape(sub_batches, -1, *x.shape[1:])

    return jax.tree.map(split, batch)


class CompiledSteps:
    """A step of the run for every shape of a batch, compiled when it is first needed; `texts` of
    different lengths have different ones."""

    def __init__(self, setup: Setup, frozen: Any) -> None:
        self._setup, self._frozen = setup, frozen
        self._steps: dict[tuple[int, ...], Step] = {}

    def __len__(self) -> int:
        return len(self._steps)

    def has(self, batch: Batch) -> bool:
        """True if nothing is to be compiled for this batch."""
        return batch["text"].shape in self._steps

    def compile(self, state: State, batch: Batch) -> None:
        """Compiles the step for this batch."""
        step = compile_step(self._setup, state, self._frozen, batch)
        self._steps[batch["text"].shape] = step

    def __call__(self, state: State, batch: Batch) -> tuple[State, dict[str, jax.Array]]:
        return self._steps[batch["text"].shape](state, self._frozen, batch)


def compile_step(
    setup: Setup,
    state: State,
    frozen: Any,
    batch: Mapping[str, jax.Array | jax.ShapeDtypeStruct],
) -> Step:
    """Compiles a step for these arrays or shapes; the new state replaces `state` and lies where it
    lay."""
    where = jax.tree.map(lambda x: x.sharding, state)
    step = jax.jit(
        make_step(setup),
        out_shardings=(where, sharding.replicated(setup.mesh)),
        donate_argnums=0,
    )
    with jax.set_mesh(setup.mesh):  # here, since the mesh of a context belongs to one thread
        return step.lower(state, frozen, batch).compile()
