"""SPARC's local loss (Bica et al. 2024, arXiv:2401.09865, equation 6).

Within one pair of image and caption, the patches grouped for a token are contrasted with the tokens
of the same caption, and the token with the groups:

    loss_il = 1/2 [logsumexp_k(c_l t_k) + logsumexp_k(c_k t_l)] / tau - c_l t_l / tau
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

NOTHING = -1e30  # a logit that no sum of exponentials notices


def local(
    groups: Float[Array, "batch length embed"],
    tokens: Float[Array, "batch length embed"],
    mask: Bool[Array, "batch length"],
    logit_scale: Float[Array, ""],
) -> Float[Array, "batch"]:
    """The mean over the real tokens of each example, times their number over its mean in the batch.

    So the mean over the batch is that over all its tokens, as the paper's pseudo-code and the code
    of lst627/CLIP-Embeds have it; equation 6 divides by the number of tokens of each caption.
    """
    tokens = tokens * jax.lax.rsqrt(jnp.sum(tokens**2, axis=-1, keepdims=True) + 1e-12)
    logits = logit_scale * jnp.einsum("ile,ike->ilk", groups, tokens, precision="highest")
    own = jnp.diagonal(logits, axis1=1, axis2=2)
    both = mask[:, :, None] & mask[:, None]
    real = jnp.where(both, logits, NOTHING)
    sums = jax.nn.logsumexp(real, axis=2) + jax.nn.logsumexp(real, axis=1)
    each = jnp.where(mask, sums / 2 - own, 0.0)
    return each.sum(axis=1) * (len(mask) / jnp.maximum(mask.sum(), 1))
