"""SPARC's local loss (Bica et al. 2024, arXiv:2401.09865, equation 6).

Within one pair of image and caption, the patches grouped for a token are contrasted with the tokens
of the same caption, and the token with the groups:

    loss_il = 1/2 [logsumexp_k(c_l t_k) + logsumexp_k(c_k t_l)] / tau - c_l t_l / tau
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from vlc_jax.losses.masks import MASKED_LOGIT


def local(
    groups: Float[Array, "batch length embed"],
    tokens: Float[Array, "batch length embed"],
    mask: Bool[Array, "batch length"],
    logit_scale: Float[Array, ""],
) -> Float[Array, " batch"]:
    """Sum of loss_il over the real tokens l of each example i, divided by the mean caption length.

    `mask` is the padding mask of the tokens.
    """
    # 1e-12: at a token of zeros the norm has no gradient, and 0 / 0 would be NaN
    tokens = tokens * jax.lax.rsqrt(jnp.sum(tokens**2, axis=-1, keepdims=True) + 1e-12)
    logits = logit_scale * jnp.einsum("ile,ike->ilk", groups, tokens, precision="highest")
    matched = jnp.diagonal(logits, axis1=1, axis2=2)
    masked = jnp.where(mask[:, :, None] & mask[:, None], logits, MASKED_LOGIT)
    sums = jax.nn.logsumexp(masked, axis=2) + jax.nn.logsumexp(masked, axis=1)
    per_token = jnp.where(mask, sums / 2 - matched, 0.0)
    # the mean over examples is then the mean over all tokens of the batch, as in the paper's
    # pseudo-code and in lst627/CLIP-Embeds; equation 6 divides by each caption's own length
    return per_token.sum(axis=1) * (len(mask) / jnp.maximum(mask.sum(), 1))
