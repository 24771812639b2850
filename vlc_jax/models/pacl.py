"""PACL: patch-aligned contrastive learning, patches pooled by their similarity to the text.

Mukhoti et al. 2023 (arXiv:2212.04994), as the code of "Exploring How Generative MLLMs Perceive
More Than CLIP with the Same Vision Encoder" (ACL 2025; lst627/CLIP-Embeds) computes it: with
the embedded patches e_p of an image, not normalised, and the embedded text t of unit length,

    s_p = cos(e_p, t),   w_p = sigmoid(10 s_p),   v = sum_p w_p e_p,   score = cos(v, t).
"""

from collections.abc import Mapping
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from vlc_jax import types
from vlc_jax.models import heads, layers, patch_head, pooling
from vlc_jax.types import ImageFeatures, TextFeatures

RULE = pooling.RULES["pacl"]


class PACL(patch_head.PatchHead):
    """Patch embedder, text embedder, and cosine similarity with the patches pooled by the text.

    The fields of PatchHead, and further ones. The authors' width is the towers' (768 for L/14).
    pooling: in training. own_caption: each image is pooled by its own caption and then compared
      with all texts (as in the authors' training; the image features depend on the caption, and
      negatives never weight a patch); pairwise: each image is pooled by each text it is compared
      with, the formula above; uniform: all weights 1, as in the authors' published code.
    eval_pooling: sigmoid (the formula) | uniform (as in the published code).
    """

    pooling: Literal["own_caption", "pairwise", "uniform"] = "pairwise"
    eval_pooling: Literal["sigmoid", "uniform"] = "sigmoid"

    @property
    def requests(self) -> tuple[types.FeatureRequest, types.FeatureRequest]:
        """Tokens of the image tower, and the pooled text, not normalised."""
        return types.FeatureRequest(self.stage), types.FeatureRequest(is_unit=False)

    def image(self, features: ImageFeatures, *, is_training: bool = False) -> ImageFeatures:
        """`tokens`: the embedded patches, not normalised; `pooled`: their sum, of unit length."""
        patches = self.embed_patches(features.tokens, is_training)
        return ImageFeatures(layers.l2_normalize(patches.sum(axis=1)), patches)

    def text(self, features: TextFeatures, *, is_training: bool = False) -> TextFeatures:
        """`pooled`: the embedded text, of unit length."""
        embedded = self.text_embedder(features.pooled, is_training=is_training)
        return TextFeatures(layers.l2_normalize(embedded), None, features.mask)

    def outputs(
        self, image: ImageFeatures, texts: Mapping[str, TextFeatures]
    ) -> tuple[heads.Scores, dict[str, Array]]:
        """Scores of images that own_caption and uniform pool once for all texts."""
        if self.pooling == "uniform":
            image = ImageFeatures(image.pooled)
        elif self.pooling == "own_caption":
            weights = pooling.weights(RULE, image.tokens, texts["text"].pooled[:, None])
            pooled = jnp.einsum("ip,ipe->ie", weights[..., 0], image.tokens, precision="highest")
            image = ImageFeatures(layers.l2_normalize(pooled))
        return super().outputs(image, texts)

    def training_scores(self, image: ImageFeatures, text: TextFeatures) -> tuple[Array, Array]:
        """Scores with the pooling of training."""
        how = {"is_training": True}
        return self.score(image, text, **how), self.score_options(image, text, **how)

    def score(
        self, image: ImageFeatures, text: TextFeatures, *, is_training: bool = False
    ) -> Float[Array, "images texts"]:
        """Cosine of every image, pooled by the text, with every text."""
        if self._is_pooled(image, is_training):
            return heads.dot(image.pooled, text.pooled)

        def share(patches: Array, texts: Array) -> Array:
            return heads.map_chunks(lambda part: _cosines(part, texts), patches, self.chunk)

        return types.map_sharded(share, image.tokens, text.pooled[None])

    def score_options(
        self, image: ImageFeatures, text: TextFeatures, *, is_training: bool = False
    ) -> Float[Array, "images options"]:
        """Cosine of image i, pooled by the text, with its own k texts."""
        if self._is_pooled(image, is_training):
            return heads.dot_options(image.pooled, text.pooled)
        return _cosines(image.tokens, text.pooled.reshape(len(image.tokens), -1, self.width))

    def patch_maps(self, image: ImageFeatures, text: TextFeatures) -> dict[str, Array]:
        """weights: w_p; {} with uniform pooling."""
        if self.eval_pooling == "uniform":
            return {}
        return {"weights": pooling.weights(RULE, image.tokens, text.pooled[:, None])[..., 0]}

    def _is_pooled(self, image: ImageFeatures, is_training: bool) -> bool:
        return image.tokens is None or (self.eval_pooling == "uniform" and not is_training)


def _cosines(
    patches: Float[Array, "images patches embed"], text: Float[Array, "images_or_1 texts embed"]
) -> Float[Array, "images texts"]:
    return pooling.scores(RULE, patches, text[:, :, None])
