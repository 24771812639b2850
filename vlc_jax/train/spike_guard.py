"""Guard against loss spikes: a step with an outlying gradient norm is skipped (config.optimizer).

Its state is part of the training state, so that a resumed run judges every step alike.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from vlc_jax.types import State


def judge(
    guard: Mapping[str, Array], norm: Float[Array, ""], factor: float
) -> tuple[Bool[Array, ""], dict[str, Array], dict[str, Array]]:
    """(whether the step is a spike, the next state of the guard, metrics).

    A spike has a gradient norm above `factor` times the median of the last norms without spikes.
    There is none before that window is full, since norms change fast at the start.

    guard: `setup.state.guard_state`.   norm: of the whole gradient, on all devices.
    """
    norms, count = guard["norms"], guard["count"]
    median = jnp.median(norms)
    is_spike = (count >= len(norms)) & (norm > factor * median)
    # a ring; a spike stays out of it, or a few of them would raise the limit for the next
    after = {
        "norms": jnp.where(is_spike, norms, norms.at[count % len(norms)].set(norm)),
        "count": jnp.where(is_spike, count, count + 1),
        "in_a_row": jnp.where(is_spike, guard["in_a_row"] + 1, 0),
        "skipped": guard["skipped"] + is_spike,
    }
    metrics = {
        "grad_norm_median": median,
        "skipped_steps": after["skipped"],
        "spikes_in_a_row": after["in_a_row"],
    }
    return is_spike, after, metrics


def without_update(is_spike: Bool[Array, ""], after: State, before: State) -> State:
    """The state after a step; of a spike, all but step, schedule and guard are of `before`.

    Step and schedule advance: data and learning rate are those of the step number.
    """

    def is_schedule(node: object) -> bool:
        return isinstance(node, optax.ScaleByScheduleState)

    def choose(new: object, old: object) -> object:
        return new if is_schedule(new) else jnp.where(is_spike, old, new)

    chosen = {
        name: jax.tree.map(choose, getattr(after, name), getattr(before, name), is_leaf=is_schedule)
        for name in ("params", "opt_state", "batch_stats", "memory")
    }
    return after._replace(**chosen)
