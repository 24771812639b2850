"""AdamW as open_clip configures it: schedule, decay mask, learning-rate multipliers by regex."""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from vlc_jax.errors import UsageError, known

MU_DTYPES = ("float32", "bfloat16")
SCHEDULES = ("cosine", "linear", "constant")


def schedule(
    name: str, peak: float, steps: int, warmup_steps: int = 0
) -> Callable[[Any], jax.Array]:
    """The learning rate as a function of the step, counted from 0.

    Warmup is linear, peak * (step + 1) / warmup_steps, as in open_clip; then
      cosine    peak / 2 * (1 + cos(pi * t)),  t from 0 to 1 over the remaining steps
      linear    peak * (1 - t)
      constant  peak
    """
    known("schedule", name, SCHEDULES)
    if warmup_steps >= steps > 0 and name in ("cosine", "linear"):
        raise UsageError(
            f"warmup_steps {warmup_steps} must be below the total of {steps} steps: set "
            f"--config.optimizer.warmup_steps={steps // 10}, and where a run trains its CLIP first "
            "the same field of pretrain"
        )

    def rate(step: Any) -> jax.Array:
        step = jnp.asarray(step, jnp.float32)
        t = jnp.clip((step - warmup_steps) / max(steps - warmup_steps, 1), 0.0, 1.0)
        after = {
            "cosine": peak * 0.5 * (1.0 + jnp.cos(jnp.pi * t)),
            "linear": peak - peak * t,
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


def multipliers(params: Any, rules: Sequence[Sequence[Any]]) -> Any:
    """A tree of learning rate multipliers, by the first rule whose regex matches the whole path.

    Parameters without a matching rule have 1. Raises UsageError for a rule that matches no
    parameter (a misspelt regex would train at the full rate) and for a factor that is not positive.
    """
    names = path_names(params)
    paths = jax.tree.leaves(names)
    unused = [regex for regex, _ in rules if not any(re.fullmatch(regex, path) for path in paths)]
    if unused:
        listed = "\n  ".join(paths[:40])
        raise UsageError(f"multiplier rules {unused} match no parameter; parameters:\n  {listed}")
    for regex, factor in rules:
        if not 0 < factor < float("inf"):
            raise UsageError(
                f"the learning rate multiplier of {regex!r} must be a positive number; got "
                f"{factor}; to freeze parameters name them in config.frozen"
            )

    def multiplier(path: str) -> float:
        return next((float(f) for regex, f in rules if re.fullmatch(regex, path)), 1.0)

    return jax.tree.map(multiplier, names)


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


class AdamW(NamedTuple):
    """Options of AdamW.

    clip_norm: of the gradient of all trained parameters; 0 or None: no clipping.
    decay_exclude, learning_rate_multipliers: see `decay_mask` and `multipliers`.
    mu_dtype: of the stored first moment, float32 | bfloat16; updates are float32.
    """

    weight_decay: float
    b1: float = 0.9
    b2: float = 0.98
    eps: float = 1e-6
    clip_norm: float | None = None
    decay_exclude: str = ""
    learning_rate_multipliers: Sequence[Sequence[Any]] = ()  # (regex, factor); lists from JSON
    mu_dtype: str = "float32"


def make(
    params: Any, learning_rate: Callable[[Any], jax.Array], options: AdamW
) -> optax.GradientTransformation:
    """AdamW with clipping by the global norm, for trained parameters or their shapes."""
    known("mu_dtype", options.mu_dtype, MU_DTYPES)
    factors = multipliers(params, options.learning_rate_multipliers)
    moments = {"b1": options.b1, "b2": options.b2, "eps": options.eps}
    return optax.chain(
        optax.clip_by_global_norm(options.clip_norm) if options.clip_norm else optax.identity(),
        optax.scale_by_adam(**moments, mu_dtype=options.mu_dtype),
        optax.add_decayed_weights(
            options.weight_decay, mask=lambda p: decay_mask(p, options.decay_exclude)
        ),
        # after the decay: a multiplier scales update and decay alike, as a learning rate does
        optax.stateless(lambda updates, _: jax.tree.map(lambda u, f: u * f, updates, factors)),
        optax.scale_by_learning_rate(learning_rate),
    )
