"""SPARC: fine-grained contrastive alignment of caption tokens with sparsely grouped patches.

Bica et al. 2024 (arXiv:2401.09865), equations 1 to 7; the variant on frozen CLIP towers follows
lst627/CLIP-Embeds. With patches v_p and tokens t_l, neither normalised,

    s_lp = t_l v_p,  min-max scaled over p, values below 1/P set to 0, divided by their sum: a_lp
    c_l = sum_p a_lp v_p     (language-grouped patch embedding)

The local loss (losses/sparc.py) contrasts c_l with the tokens of the same caption; the global loss
is CLIP's, on the means of patches and of tokens.
"""

from collections.abc import Mapping
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from vlc_jax import types
from vlc_jax.models import heads, layers, pooling
from vlc_jax.models.patch_head import PatchHead
from vlc_jax.types import ImageFeatures, TextFeatures

RULE = pooling.RULES["sparc"]


class SPARC(PatchHead):
    """Patch and token embedders, and a score from grouped patches.

    The fields of PatchHead, and further ones.
    scoring: local (cosine of the mean of c_l and the mean of the tokens) | global (cosine of the
      mean patch and the mean token). Training always uses global, for the global loss.
    mask_global_text: True: the mean of tokens excludes padding; False: it includes all positions,
      as in lst627/CLIP-Embeds.
    """

    scoring: Literal["local", "global"] = "local"
    mask_global_text: bool = True

    @property
    def requests(self) -> tuple[types.FeatureRequest, types.FeatureRequest]:
        """Tokens of both towers; those of the text not projected, as the authors'."""
        return types.FeatureRequest(self.stage), types.FeatureRequest("normed", is_unit=False)

    def image(self, features: ImageFeatures, *, is_training: bool = False) -> ImageFeatures:
        """`tokens`: the embedded patches, not normalised; `pooled`: their mean, of unit length."""
        patches = self.embed_patches(features.tokens, is_training)
        return ImageFeatures(layers.l2_normalize(patches.mean(axis=1)), patches)

    def text(self, features: TextFeatures, *, is_training: bool = False) -> TextFeatures:
        """`tokens`: embedded, not normalised; `pooled`: unit-length mean of unit-length tokens."""
        tokens = self.text_embedder(features.tokens, is_training=is_training)
        counts = features.mask if self.mask_global_text else jnp.ones_like(features.mask)
        pooled = _mean(layers.l2_normalize(tokens), counts)
        return features._replace(pooled=layers.l2_normalize(pooled), tokens=tokens)

    def outputs(
        self, image: ImageFeatures, texts: Mapping[str, TextFeatures]
    ) -> tuple[heads.Scores, dict[str, Array]]:
        """Also token_groups: c_l for each token of the image's caption."""
        scores, _ = super().outputs(image, texts)
        return scores, {"token_groups": jax.vmap(grouped)(image.tokens, texts["text"].tokens)}

    def training_scores(self, image: ImageFeatures, text: TextFeatures) -> tuple[Array, Array]:
        """Cosines of mean patches and mean tokens."""
        return super().score(image, text), super().score_options(image, text)

    def score(self, image: ImageFeatures, text: TextFeatures) -> Float[Array, "images texts"]:
        """Cosine of every image with every text, global or local."""
        if self.scoring == "global":
            return super().score(image, text)
        text_cosines = jax.vmap(self._local, in_axes=(None, 0, 0))
        all_cosines = jax.vmap(text_cosines, in_axes=(0, None, None))

        def local(patches: Array, texts: tuple[Array, Array]) -> Array:
            return heads.map_chunks(lambda part: all_cosines(part, *texts), patches, self.chunk)

        return types.map_sharded(local, image.tokens, (text.tokens, self._counts(text)))

    def score_options(
        self, image: ImageFeatures, text: TextFeatures
    ) -> Float[Array, "images options"]:
        """Cosine of image i with its own k texts, global or local."""
        if self.scoring == "global":
            return super().score_options(image, text)
        images = len(image.tokens)
        tokens, counts = (
            x.reshape(images, -1, *x.shape[1:]) for x in (text.tokens, self._counts(text))
        )
        text_cosines = jax.vmap(self._local, in_axes=(None, 0, 0))
        return jax.vmap(text_cosines)(image.tokens, tokens, counts)

    def patch_maps(self, image: ImageFeatures, text: TextFeatures) -> dict[str, Array]:
        """groups: a_lp; {} with global scoring."""
        if self.scoring == "global":
            return {}
        return {"groups": pooling.weights(RULE, image.tokens, text.tokens)}

    def _counts(self, text: TextFeatures) -> Bool[Array, "texts length"]:
        return text.mask if self.mask_global_text else jnp.ones_like(text.mask)

    def _local(
        self,
        patches: Float[Array, "patches embed"],
        tokens: Float[Array, "length embed"],
        counts: Bool[Array, " length"],
    ) -> Float[Array, ""]:
        groups = layers.l2_normalize(_mean(grouped(patches, tokens), counts))
        return jnp.sum(groups * layers.l2_normalize(_mean(layers.l2_normalize(tokens), counts)))


def grouped(
    patches: Float[Array, "patches embed"], tokens: Float[Array, "length embed"]
) -> Float[Array, "length embed"]:
    """c_l of one image and one text, of unit length; 0 where all patches are equally similar."""
    weights = pooling.weights(RULE, patches[None], tokens[None])[0]
    return layers.l2_normalize(jnp.einsum("pl,pe->le", weights, patches, precision="highest"))


def _mean(x: Float[Array, "*texts length embed"], counts: Bool[Array, "*texts length"]) -> Array:
    masked = jnp.where(counts[..., None], x, 0.0)
    return masked.sum(axis=-2) / counts.sum(axis=-1, keepdims=True)
