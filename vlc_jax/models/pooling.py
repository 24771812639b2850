"""Text-conditioned pooling: the patches of an image pooled for each query of a text.

With patches v_p and queries t_q of unit length (the pooled text, or its tokens),

    c_q = sum_p a_qp v_p,     score = reduce over q of cos(c_q, t_q)

RULES is the table of queries, weights a_qp and reductions. cos(c_q, t_q) needs no c_q: c_q t_q =
sum_p a_qp v_p t_q, and |c_q|^2 = a' G a with the Gram matrix G of the patches, so no array has
images x queries x embed elements.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from vlc_jax.types import Scalar

# below any squared length that is not zero
EPSILON = 1e-12
# added to both divisors of `minmax`, as in the code of SPARC's reproduction
SPAN = 1e-8
MASKED = -1e30  # exp underflows to 0, and unlike -inf it has a gradient

Products = Float[Array, "images patches queries"]


class Rule(NamedTuple):
    """A row of `RULES`.

    query: the pooled text (one query), or every real token of the text.
    weigh: (v_p t_q, 1 / |v_p|) -> a_qp; None: a_qp is 1 for the patch of the largest v_p t_q.
    has_unit_patches: whether v_p is scaled to unit length.
    reduce: only (the one query) | mean (over tokens) | logsumexp (over tokens, of the logits).
    """

    query: Literal["pooled", "tokens"]
    weigh: Callable[[Products, Array], Products] | None
    has_unit_patches: bool
    reduce: Literal["only", "mean", "logsumexp"]


def sigmoid(products: Products, inverse_length: Array) -> Products:
    """PACL's weights, sigmoid(10 cos(v_p, t_q))."""
    return jax.nn.sigmoid(10.0 * (products * inverse_length))


def minmax(
    similarity: Float[Array, "rows patches *queries"], threshold: float | None = None
) -> Float[Array, "rows patches *queries"]:
    """Similarities over patches (axis 1) scaled to 0 ... 1, those below `threshold` set to 0, and
    divided by their sum; all 0 where all patches are equally similar, where the code of FSC-CLIP
    divides 0 by 0."""
    low = similarity.min(axis=1, keepdims=True)
    span = similarity.max(axis=1, keepdims=True) - low
    scaled = (similarity - low) / (span + SPAN)
    if threshold is not None:
        scaled = jnp.where(scaled >= threshold, scaled, 0.0)
    return scaled / (scaled.sum(axis=1, keepdims=True) + SPAN)


RULES: dict[str, Rule] = {
    # Pham et al. 2026; the code scales patches and text to unit length, the softmax has no scale
    "c2lip": Rule("pooled", lambda s, _: jax.nn.softmax(s, axis=1), True, "only"),
    # Oh et al. 2024; the attention has no gradient
    "fsc": Rule("tokens", lambda s, _: minmax(jax.lax.stop_gradient(s)), False, "logsumexp"),
    # MaxSim of ColBERT (Khattab and Zaharia 2020), text to image in FILIP (Yao et al. 2022)
    "maxsim": Rule("tokens", None, True, "mean"),
    # without the embedders of models/pacl.py and models/sparc.py
    "pacl": Rule("pooled", sigmoid, False, "only"),
    "sparc": Rule("tokens", lambda s, _: minmax(s, 1 / s.shape[1]), False, "mean"),
}


def scores(
    rule: Rule,
    patches: Float[Array, "images patches embed"],
    queries: Float[Array, "images_or_1 texts length embed"],
    mask: Bool[Array, "images_or_1 texts length"] | None = None,
    logit_scale: Scalar = 1.0,
) -> Float[Array, "images texts"]:
    """Scores of images with texts, or with the image's own texts, before the logit scale.

    mask: True on queries that count; unused where there is only one. logit_scale: only for
    logsumexp, which is of logits: the score is logsumexp_q(logit_scale cos_q) / logit_scale.
    """
    count, texts, length, embed = queries.shape
    dots = products(patches, queries.reshape(count, texts * length, embed))
    if rule.weigh is None:
        cosines = dots.max(axis=1)
    else:
        cosines = pooled_cosines(patches, rule.weigh(dots, inverse_length(patches)), dots)
    cosines = cosines.reshape(-1, texts, length)
    if rule.reduce == "only":
        return cosines[..., 0]
    if rule.reduce == "logsumexp":
        logits = jnp.where(mask, logit_scale * cosines, MASKED)
        return jax.nn.logsumexp(logits, axis=-1) / logit_scale
    # at least 1: a text without a real token has score 0, not 0 / 0
    return jnp.where(mask, cosines, 0.0).sum(axis=-1) / jnp.maximum(mask.sum(axis=-1), 1)


def weights(
    rule: Rule,
    patches: Float[Array, "images patches embed"],
    queries: Float[Array, "images length embed"],
) -> Float[Array, "images patches length"]:
    """a_qp of each image and its own queries."""
    dots = products(patches, queries)
    if rule.weigh is None:
        return jax.nn.one_hot(dots.argmax(axis=1), dots.shape[1], axis=1)
    return rule.weigh(dots, inverse_length(patches))


def pooled_cosines(
    patches: Float[Array, "images patches embed"],
    weights: Float[Array, "images patches queries"],
    products: Float[Array, "images patches queries"],
) -> Float[Array, "images queries"]:
    """cos(c_q, t_q) of queries of unit length; 0 where all weights are 0."""
    dot = jnp.sum(weights * products, axis=1)
    squared = squared_length(patches, weights)
    # the maximum: rounding may make a' G a zero or negative
    return dot * jax.lax.rsqrt(jnp.maximum(squared, EPSILON))


def squared_length(
    patches: Float[Array, "images patches embed"], weights: Float[Array, "images patches queries"]
) -> Float[Array, "images queries"]:
    """|c_q|^2 of every image pooled for every query; for more queries than patches as a' G a."""
    if weights.shape[2] <= patches.shape[1]:  # pooling costs less than G
        pooled = jnp.einsum("ipq,ipe->iqe", weights, patches, precision="highest")
        return jnp.sum(pooled * pooled, axis=-1)
    gram = jnp.einsum("ipe,iqe->ipq", patches, patches, precision="highest")
    return quadratic(gram, weights)


@jax.custom_vjp
def quadratic(
    gram: Float[Array, "images patches patches"], weights: Float[Array, "images patches queries"]
) -> Float[Array, "images queries"]:
    """a' G a for every query. The custom VJP reuses G a: since G is symmetric, it is 2 G a."""
    return _quadratic_forward(gram, weights)[0]


def _quadratic_forward(gram: Array, weights: Array) -> tuple[Array, tuple[Array, Array]]:
    spread = jnp.einsum("ipq,iqt->ipt", gram, weights, precision="highest")
    return jnp.sum(weights * spread, axis=1), (weights, spread)


def _quadratic_backward(
    saved: tuple[Array, Array], gradient: Float[Array, "images queries"]
) -> tuple[Array, Array]:
    weights, spread = saved
    scaled = weights * gradient[:, None]
    gram = jnp.einsum("ipt,iqt->ipq", scaled, weights, precision="highest")
    return gram, 2 * spread * gradient[:, None]


quadratic.defvjp(_quadratic_forward, _quadratic_backward)


def inverse_length(x: Float[Array, "images patches embed"]) -> Float[Array, "images patches 1"]:
    """1 / length of each patch, the factor of `layers.l2_normalize`."""
    return jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + 1e-12)


def products(
    patches: Float[Array, "images patches embed"],
    queries: Float[Array, "images_or_1 queries embed"],
) -> Float[Array, "images patches queries"]:
    """v_p t_q of every image and every query, or the image's own queries."""
    # highest: accelerators would round float32 operands to bfloat16 or TF32
    if len(queries) == 1:
        return jnp.einsum("ipe,te->ipt", patches, queries[0], precision="highest")
    return jnp.einsum("ipe,ite->ipt", patches, queries, precision="highest")
