"""Losses: one literal table of formulas, and `total`, the weighted sum that is minimised."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float

from vlc_jax import errors, types
from vlc_jax.losses import infonce, sigmoid

PerExample = Callable[..., Float[Array, "batch"]]

# name -> implementation -> per-example loss of (outputs, mask, **options). `chunked` and `ring`
# read the embeddings, so they hold for models whose score is the dot product.
LOSSES: dict[str, dict[str, PerExample]] = {
    "infonce": {
        "dense": lambda o, m: infonce.dense(o.scores, o.logit_scale, m),
        "chunked": lambda o, m, **k: infonce.chunked(*_embeddings(o), o.logit_scale, m, **k),
        "ring": lambda o, m, **k: infonce.ring(*_embeddings(o), o.logit_scale, m, **k),
    },
    "sigmoid": {
        "dense": lambda o, m: sigmoid.dense(o.scores, o.logit_scale, _bias(o), m),
        "chunked": lambda o, m, **k: sigmoid.chunked(
            *_embeddings(o), o.logit_scale, _bias(o), m, **k
        ),
        "ring": lambda o, m, **k: sigmoid.ring(*_embeddings(o), o.logit_scale, _bias(o), m, **k),
    },
}
OPTIONS = ("weight", "implementation", "chunk")


def total(
    config_losses: Mapping[str, Mapping[str, Any]],
    outputs: types.Outputs,
    batch: Mapping[str, Array],
    mesh: Mesh | None = None,
) -> tuple[Float[Array, ""], dict[str, tuple[Array, Array]]]:
    """The scalar to minimise, and {name: (sum over real examples, their number)}.

    config_losses: name of `LOSSES` -> {"weight": float, "implementation": "dense" (when absent)
      | "chunked" | "ring", "chunk": images at a time, for chunked}.
    batch: its "mask" says which examples are real; each loss is a mean over those.
    mesh: for ring; the batch is sharded over all its axes.

        total({"infonce": {"weight": 1.0}}, outputs, batch)

    Raises UsageError for an unknown loss, implementation or option.
    """
    mask = batch["mask"]
    value, parts = jnp.zeros(()), {}
    for name, options in config_losses.items():
        for option in options:
            errors.known(f"option of the loss {name}", option, OPTIONS)
        if "weight" not in options:
            raise errors.UsageError(f"the loss {name} needs a weight, got {dict(options)}")
        per_example = _per_example(name, outputs, mask, mesh, **options)
        parts[name] = (jnp.where(mask, per_example, 0.0).sum(), mask.sum())
        value += options["weight"] * parts[name][0] / jnp.maximum(parts[name][1], 1)
    return value, parts


def _per_example(
    name: str,
    outputs: types.Outputs,
    mask: Bool[Array, "batch"],
    mesh: Mesh | None,
    *,
    weight: float,
    implementation: str = "dense",
    chunk: int | None = None,
) -> Float[Array, "batch"]:
    del weight  # `total` applies it
    implementations = LOSSES[errors.known("loss", name, LOSSES)]
    errors.known(f"implementation of the loss {name}", implementation, implementations)
    loss = implementations[implementation]
    if (chunk is None) == (implementation == "chunked"):
        raise errors.UsageError(
            f"chunk, the images at a time, goes with implementation 'chunked' and with no other; "
            f"the loss {name} has implementation {implementation!r} and chunk {chunk}"
        )
    if implementation == "chunked":
        return loss(outputs, mask, chunk=chunk)
    if implementation == "ring":
        if mesh is None:
            raise errors.UsageError(f"a ring {name} runs over a mesh; use 'dense' or 'chunked'")
        return loss(outputs, mask, mesh=mesh, axes=tuple(mesh.axis_names))
    return loss(outputs, mask)


def _embeddings(outputs: types.Outputs) -> tuple[jax.Array, jax.Array]:
    return outputs.image.pooled, outputs.text.pooled


def _bias(outputs: types.Outputs) -> jax.Array:
    if outputs.logit_bias is None:
        raise errors.UsageError(
            "the sigmoid loss needs a model with a logit bias: set the model's logit_bias_init "
            "(SigLIP starts at -10, with a logit_scale_init of 10)"
        )
    return outputs.logit_bias
