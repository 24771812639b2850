"""Two towers and a dot product: CLIP (Radford et al. 2021) and SigLIP (Zhai et al. 2023)."""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vlc_jax import types


class CLIP(nn.Module):
    """An image tower and a text tower that share an embedding; the score is the cosine.

    logit_scale_init: linear, 1/0.07 for CLIP and 10 for SigLIP; the parameter `logit_scale` is
      its logarithm.   logit_bias_init: -10 for SigLIP; None for a model without one.
    """

    image: nn.Module
    text: nn.Module
    logit_scale_init: float = 1 / 0.07
    logit_bias_init: float | None = None

    @nn.compact
    def __call__(self, batch: Mapping[str, Array]) -> types.Outputs:
        """All a loss may want of `batch["image"]` (normalised, float) and `batch["text"]`, and of
        `batch["negative_text"]` and `batch["positive_text"]` (batch, texts of one example, length)
        if they are there.

        `scores` are always there; XLA drops their computation when no loss reads them.
        """
        image, texts = self.encode_image(batch["image"]), self._encode_texts(batch)
        constant = nn.initializers.constant
        log_scale = self.param("logit_scale", constant(math.log(self.logit_scale_init)), ())
        bias = None
        if self.logit_bias_init is not None:
            bias = self.param("logit_bias", constant(self.logit_bias_init), ())
        more = {}
        for kind in (key for key in texts if key != "text"):
            name, own = kind.replace("text", "scores"), jax.tree.map(_joined, texts[kind])
            more[kind] = texts[kind]
            more[name] = self.score(image, own).reshape(-1, *batch[kind].shape[:2])
            more[f"own_{name}"] = self.score_options(image, own)
        return types.Outputs(
            image=image,
            text=texts["text"],
            scores=self.score(image, texts["text"]),
            logit_scale=jnp.exp(log_scale),
            logit_bias=bias,
            own_scores=self.score_options(image, texts["text"])[:, 0],
            **more,
        )

    def encode_image(
        self, image: Float[Array, "batch height width channels"], *, tokens: bool = False
    ) -> types.ImageFeatures:
        """Features of normalised pixels, see ImageTower; needs only its parameters."""
        return self.image(image, tokens=tokens)

    def encode_text(
        self, text: Int[Array, "batch length"], *, tokens: bool = False
    ) -> types.TextFeatures:
        """Features of token ids, see TextTower; needs only its parameters."""
        return self.text(text, tokens=tokens)

    def _encode_texts(self, batch: Mapping[str, Array]) -> dict[str, types.TextFeatures]:
        """Features of all texts of a batch, from one pass of the tower.

        The texts of one example lie together on the way, so that a batch split over devices stays
        where it is.
        """
        keys = [key for key in ("text", "negative_text", "positive_text") if key in batch]
        groups = [batch[key] if batch[key].ndim == 3 else batch[key][:, None] for key in keys]
        text = jnp.concatenate(groups, axis=1)
        features = self.encode_text(_joined(text))
        features = jax.tree.map(lambda x: x.reshape(*text.shape[:2], *x.shape[1:]), features)
        ends = np.cumsum([group.shape[1] for group in groups])
        parts = {
            key: jax.tree.map(lambda x, end=end, n=group.shape[1]: x[:, end - n : end], features)
            for key, group, end in zip(keys, groups, ends, strict=True)
        }
        return {**parts, "text": jax.tree.map(lambda x: x[:, 0], parts["text"])}

    def score(
        self, image: types.ImageFeatures, text: types.TextFeatures
    ) -> Float[Array, "images texts"]:
        """Cosine of every image with every text."""
        # HIGHEST: accelerators would round float32 operands to bfloat16 or TF32
        return jnp.einsum("ie,te->it", image.pooled, text.pooled, precision="highest")

    def score_options(
        self, image: types.ImageFeatures, text: types.TextFeatures
    ) -> Float[Array, "images options"]:
        """Cosine of image i with its own k texts, which are rows i*k to i*k + k - 1 of `text`."""
        images, embed = image.pooled.shape
        options = text.pooled.reshape(images, -1, embed)
        return jnp.einsum("ie,ioe->io", image.pooled, options, precision="highest")


def _joined(texts: Array) -> Array:
    """(batch, texts of one example, ...) as (batch * texts, ...)."""
    return texts.reshape(-1, *texts.shape[2:])


def clamp_logit_scale(
    params: Mapping[str, Any], maximum: float | None, minimum: float | None = 1.0
) -> dict[str, Any]:
    """`params` with the (linear) logit scale brought into [minimum, maximum]; None is no bound.

    A scale that is frozen, and hence not among the trained `params`, stays what it is.

    CLIP clamps to [1, 100] after every optimizer step. Published SigLIP weights have a scale of
    about 117, so finetuning them needs `maximum=None`.
    """
    if "logit_scale" not in params:
        return dict(params)
    bounds = [None if bound is None else math.log(bound) for bound in (minimum, maximum)]
    return {**params, "logit_scale": jnp.clip(params["logit_scale"], *bounds)}
