"""Losses: one literal table of formulas, and `total`, the weighted sum that is minimised."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float

from vlc_jax import errors, types
from vlc_jax.losses import dac, infonce, masks, sigmoid, sparc, svlc

PerExample = Callable[..., Float[Array, "batch"]]

# name -> implementation -> per-example loss of (outputs, members, **options). `chunked` and `ring`
# read the embeddings, so they hold for models whose score is the dot product.
#
# Whether hard negatives are also contrasted with all images of the batch is a choice between two
# names: infonce or negclip, sigmoid or sigmoid_negatives. svlc_negative goes with either.
LOSSES: dict[str, dict[str, PerExample]] = {
    "infonce": {
        "dense": lambda o, m: infonce.dense(o.scores, o.logit_scale, m),
        "chunked": lambda o, m, **k: infonce.chunked(*_embeddings(o), o.logit_scale, m, **k),
        "ring": lambda o, m, **k: infonce.ring(*_embeddings(o), o.logit_scale, m, **k),
    },
    "negclip": {
        "dense": lambda o, m: infonce.dense(o.scores, o.logit_scale, m, o.negative_scores),
        "chunked": lambda o, m, **k: infonce.chunked(
            *_embeddings(o), o.logit_scale, m, o.negative_text.pooled, **k
        ),
        "ring": lambda o, m, **k: infonce.ring(
            *_embeddings(o), o.logit_scale, m, o.negative_text.pooled, **k
        ),
    },
    "sigmoid": {
        "dense": lambda o, m: sigmoid.dense(o.scores, o.logit_scale, _bias(o), m),
        "chunked": lambda o, m, **k: sigmoid.chunked(
            *_embeddings(o), o.logit_scale, _bias(o), m, **k
        ),
        "ring": lambda o, m, **k: sigmoid.ring(*_embeddings(o), o.logit_scale, _bias(o), m, **k),
    },
    "sigmoid_negatives": {
        "dense": lambda o, m: sigmoid.dense(
            o.scores, o.logit_scale, _bias(o), m, o.negative_scores
        ),
        "chunked": lambda o, m, **k: sigmoid.chunked(
            *_embeddings(o), o.logit_scale, _bias(o), m, o.negative_text.pooled, **k
        ),
        "ring": lambda o, m, **k: sigmoid.ring(
            *_embeddings(o), o.logit_scale, _bias(o), m, o.negative_text.pooled, **k
        ),
    },
    "svlc_negative": {
        "dense": lambda o, m: svlc.negative(
            o.own_scores, o.own_negative_scores, o.logit_scale, masks.own_negatives(m)
        ),
    },
    "analogy": {"dense": lambda o, m: svlc.analogy(*_analogy(o, m))},
    "analogy_symmetric": {"dense": lambda o, m: svlc.analogy_symmetric(*_analogy(o, m))},
    "dac_mil": {
        "dense": lambda o, m: dac.mil(o.positive_scores, o.logit_scale, masks.positives(m)),
    },
    "dac_negative_bag": {
        "dense": lambda o, m: dac.negative_bag(
            o.own_positive_scores,
            o.own_negative_scores,
            o.logit_scale,
            masks.own_positives(m),
            masks.own_negatives(m),
        ),
    },
    "sparc_local": {
        "dense": lambda o, m: sparc.local(
            _groups(o), o.text.tokens, o.text.mask & m.mask[:, None], o.logit_scale
        ),
    },
}
OPTIONS = ("weight", "implementation", "chunk", "duplicates", "slots")

# Texts besides the caption that a loss needs in the batch.
TEXTS: dict[str, tuple[str, ...]] = {
    "negclip": ("negative",),
    "sigmoid_negatives": ("negative",),
    "svlc_negative": ("negative",),
    "analogy": ("positive",),
    "analogy_symmetric": ("positive",),
    "dac_mil": ("positive",),
    "dac_negative_bag": ("positive", "negative"),
}
# Losses that say nothing of an example without such texts: their mean is over the others.
OF_OWN_TEXTS = ("svlc_negative", "analogy", "analogy_symmetric", "dac_mil", "dac_negative_bag")


def total(
    config_losses: Mapping[str, Mapping[str, Any]],
    outputs: types.Outputs,
    batch: Mapping[str, Array],
    mesh: Mesh | None = None,
) -> tuple[Float[Array, ""], dict[str, tuple[Array, Array]]]:
    """The scalar to minimise, and {name: (sum over the examples that count, their number)}.

    config_losses: name of `LOSSES` -> {"weight": float, "implementation": "dense" (when absent)
      | "chunked" | "ring", "chunk": images at a time, for chunked, "duplicates": "keep" (when
      absent) | "mask" (losses/masks.py), "slots": (first, last + 1 or None) of an example's hard
      negatives that the loss is about (all when absent)}.
    batch: its "mask" says which examples are real; each loss is a mean over those, or
      (`OF_OWN_TEXTS`) over those of them that have the hard negatives or positives it is about.
    mesh: for ring; the batch is sharded over all its axes.

        total({"infonce": {"weight": 1.0}}, outputs, batch)

    Raises UsageError for an unknown loss, implementation or option, and for texts that a loss needs
    and the batch lacks.
    """
    value, parts = jnp.zeros(()), {}
    for name, options in config_losses.items():
        for option in options:
            errors.known(f"option of the loss {name}", option, OPTIONS)
        if not 0 <= options.get("weight", -1) < float("inf"):
            raise errors.UsageError(
                f"the loss {name} needs a weight from 0 on; got {dict(options)}"
            )
        per_example, counted = _per_example(name, outputs, batch, mesh, **options)
        parts[name] = (jnp.where(counted, per_example, 0.0).sum(), counted.sum())
        value += options["weight"] * parts[name][0] / jnp.maximum(parts[name][1], 1)
    return value, parts


def _per_example(
    name: str,
    outputs: types.Outputs,
    batch: Mapping[str, Array],
    mesh: Mesh | None,
    *,
    weight: float,
    implementation: str = "dense",
    chunk: int | None = None,
    duplicates: str = "keep",
    slots: tuple[int, int | None] = (0, None),
) -> tuple[Float[Array, "batch"], Bool[Array, "batch"]]:
    """The loss of each example, and which of them count in its mean."""
    del weight  # `total` applies it
    implementations = LOSSES[errors.known("loss", name, LOSSES)]
    errors.known(f"implementation of the loss {name}", implementation, implementations)
    loss = implementations[implementation]
    for text in TEXTS.get(name, ()):
        if f"{text}_text" not in batch:
            raise errors.UsageError(
                f"the loss {name} needs hard {text}s and the batch has none: set "
                f"config.input.{text}s.count to at least 1"
            )
    if (chunk is None) == (implementation == "chunked"):
        raise errors.UsageError(
            f"chunk, the images at a time, goes with implementation 'chunked' and with no other; "
            f"the loss {name} has implementation {implementation!r} and chunk {chunk}"
        )
    members, options = masks.members(batch, duplicates, slots), {}
    if implementation == "chunked":
        options = {"chunk": chunk}
    if implementation == "ring":
        if mesh is None:
            raise errors.UsageError(f"a ring {name} runs over a mesh; use 'dense' or 'chunked'")
        options = {"mesh": mesh, "axes": tuple(mesh.axis_names)}
    return loss(outputs, members, **options), _counted(name, members)


def _counted(name: str, members: masks.Members) -> Bool[Array, "batch"]:
    counted = members.mask
    if name in OF_OWN_TEXTS:
        own = {"negative": masks.own_negatives, "positive": masks.own_positives}
        for text in TEXTS[name]:
            counted &= own[text](members).any(axis=1)
    return counted


def _embeddings(outputs: types.Outputs) -> tuple[jax.Array, jax.Array]:
    return outputs.image.pooled, outputs.text.pooled


def _analogy(outputs: types.Outputs, members: masks.Members) -> tuple[jax.Array, ...]:
    """Captions and hard positives are compared by their embeddings, whatever the model's score."""
    text_scores = jnp.einsum(
        "ie,tpe->itp", outputs.text.pooled, outputs.positive_text.pooled, precision="highest"
    )
    return outputs.positive_scores, text_scores, outputs.logit_scale, masks.positives(members)


def _groups(outputs: types.Outputs) -> Float[Array, "batch length embed"]:
    if outputs.token_groups is None:
        raise errors.UsageError(
            "the loss sparc_local needs patches grouped for tokens: set config.model.name='sparc'"
        )
    return outputs.token_groups


def _bias(outputs: types.Outputs) -> jax.Array:
    if outputs.logit_bias is None:
        raise errors.UsageError(
            "the sigmoid loss needs a model with a logit bias: set the model's logit_bias_init "
            "(SigLIP starts at -10, with a logit_scale_init of 10)"
        )
    return outputs.logit_bias
