"""Prompts of the plain LLaVA model, the reference of parity tests (runs use Captioner.prompt)."""

from functools import partial
from typing import Any

import jax
from jaxtyping import Array, Bool, Float, Int

from vlc_jax.models import llava
from vlc_jax.models.continuation import Prompt


@partial(jax.jit, static_argnames="model")
def image_tokens(
    model: llava.LLaVA, params: Any, image: Float[Array, "batch height width channels"]
) -> Float[Array, "batch patches embed"]:
    """Image tokens of normalised pixels, which prompts with the same image can share."""
    return model.apply({"params": params}, image, method="image_tokens")


@partial(jax.jit, static_argnames="model")
def embed_prompt(
    model: llava.LLaVA,
    params: Any,
    ids: Int[Array, "batch length"],
    valid: Bool[Array, "batch length"],
    tokens: Float[Array, "batch patches embed"] | None,
) -> Prompt:
    """Prompts of token ids, with the image tokens of row i at its image slots.

    tokens: None for prompts without their images, as M3ID needs them; the image slots then hold no
      token.
    """
    if tokens is None:
        valid = valid & (ids != model.image_id)
    embeds = model.apply({"params": params}, ids, tokens, method="embed")
    return Prompt(embeds, valid, model.prefix(ids))
