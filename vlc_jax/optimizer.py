"""config -> optax: schedule, decay mask, freezing and learning-rate multipliers by path regex."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from vlc_jax.errors import UsageError, known

SCHEDULES = ("cosine", "linear", "rsqrt", "constant")


def schedule(
    name: str, peak: float, steps: int, warmup_steps: int = 0, end: float = 0.0, timescale: int = 0
) -> Callable[[Any], jax.Array]:
    """The learning rate at an update, counted from 0.

    Warmup is linear, peak * (step + 1) / warmup_steps, as in open_clip; then
      cosine    end + (peak - end) / 2 * (1 + cos(pi * t)),  t from 0 to 1 over the remaining steps
      linear    peak + (end - peak) * t
      rsqrt     peak * sqrt(timescale / (timescale + step - warmup_steps)); timescale in steps
      constant  peak
    """
    known("schedule", name, SCHEDULES)
    if warmup_steps >= steps > 0 and name in ("cosine", "linear"):
        raise UsageError(f"warmup_steps {warmup_steps} must be below the total of {steps} steps")
    if name == "rsqrt" and timescale <= 0:
        raise UsageError(f"the rsqrt schedule needs timescale > 0 (steps); got {timescale}")

    def rate(step: Any) -> jax.Array:
        step = jnp.asarray(step, jnp.float32)
        t = jnp.clip((step - warmup_steps) / max(steps - warmup_steps, 1), 0.0, 1.0)
        after = {
            "cosine": end + (peak - end) * 0.5 * (1.0 + jnp.cos(jnp.pi * t)),
            "linear": peak + (end - peak) * t,
            "rsqrt": peak
            * jnp.sqrt(timescale / (timescale + jnp.maximum(step - warmup_steps, 0.0)))
            if timescale
            else peak,
            "constant": peak,
        }[name]
        warm = peak * (step + 1.0) / max(warmup_steps, 1)
        return jnp.where(step < warmup_steps, warm, after)

    return rate


def path_names(params: Any) -> Any:
    """A tree like `params` whose leaves are their own paths: "image/block_0/mlp/kernel"."""
    return jax.tree_util.tree_map_with_path(
        lambda path, _: "/".join(str(entry.key) for entry in path), params
    )


def multipliers(params: Any, rules: Sequence[tuple[str, float]]) -> Any:
    """A tree of learning-rate factors: the first rule whose regex matches the whole path, else 1.

    A factor of 0 freezes. Raises UsageError for a rule that matches nothing, since a misspelt
    regex would otherwise train what should be frozen.
    """
    names = path_names(params)
    unused = [
        regex
        for regex, _ in rules
        if not any(re.fullmatch(regex, n) for n in jax.tree.leaves(names))
    ]
    if unused:
        known = "\n  ".join(jax.tree.leaves(names)[:40])
        raise UsageError(f"multiplier rules {unused} match no parameter; parameters:\n  {known}")

    def factor(name: str) -> float:
        return next((float(f) for regex, f in rules if re.fullmatch(regex, name)), 1.0)

    return jax.tree.map(factor, names)


def without_frozen_gradients(params: Any, rules: Sequence[tuple[str, float]]) -> Any:
    """`params` whose frozen leaves (a factor of 0) have no gradient, so that none is computed."""
    return jax.tree.map(
        lambda p, factor: p if factor else jax.lax.stop_gradient(p),
        params,
        multipliers(params, rules),
    )


def decay_mask(params: Any, exclude: str = "") -> Any:
    """True where weight decay applies: matrices and larger, no bias, norm or logit scale.

    `exclude` is a regex for further paths that must not decay. open_clip's rule: no decay below
    two dimensions.
    """
    return jax.tree.map(
        lambda name, p: p.ndim >= 2 and not (exclude and re.fullmatch(exclude, name)),
        path_names(params),
        params,
    )


def make(
    params: Any,
    *,
    rate: Callable[[Any], jax.Array],
    weight_decay: float,
    b1: float,
    b2: float,
    eps: float,
    clip_norm: float | None,
    decay_exclude: str,
    rules: Sequence[tuple[str, float]],
) -> optax.GradientTransformation:
    """AdamW with global-norm clipping; frozen parameters have no optimizer state and never move.

    `params` may be shapes. Clipping sees the gradients of trained parameters only.
    """
    factors = multipliers(params, rules)
    trained = jax.tree.map(lambda factor: factor != 0.0, factors)
    if not any(jax.tree.leaves(trained)):
        raise UsageError("config.optimizer.multipliers freezes every parameter; nothing to train")

    adamw = optax.chain(
        optax.clip_by_global_norm(clip_norm) if clip_norm else optax.identity(),
        optax.scale_by_adam(b1=b1, b2=b2, eps=eps),
        optax.add_decayed_weights(weight_decay, mask=lambda p: decay_mask(p, decay_exclude)),
        optax.stateless(lambda updates, _: _scale(updates, factors)),
        optax.scale_by_learning_rate(rate),
    )
    labels = jax.tree.map(lambda t: "trained" if t else "frozen", trained)
    return optax.partition({"trained": adamw, "frozen": optax.set_to_zero()}, labels)


def _scale(updates: Any, factors: Any) -> Any:
    """Multiplies each update by its factor; masked-out (frozen) leaves pass through."""
    return jax.tree.map(
        lambda u, f: u if isinstance(u, optax.MaskedNode) else u * f,
        updates,
        factors,
        is_leaf=lambda x: isinstance(x, optax.MaskedNode),
    )
