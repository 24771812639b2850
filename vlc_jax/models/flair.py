"""FLAIR: patches pooled for each text by a learned attention.

Xiao et al. 2025 (arXiv:2412.03561; ExplainableML/flair): with v_p the projected patches and t the
projected text, neither normalised,

    q = W_q LN(t),   k_p = W_k LN(v_p),   u_p = W_u LN(v_p)
    c = W_o (sum_p a_p u_p),   score = cos(c, t)

per attention head, where a is the softmax over p of q k_p / sqrt(width of a head) and of one more
logit, 0, of a token whose u is zero: a text that no patch shows may attend to nothing.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from vlc_jax import types
from vlc_jax.models import heads, layers
from vlc_jax.types import ImageFeatures, TextFeatures


class FLAIR(heads.Head):
    """Cosine of a text with the patches pooled by attention to it; in training also the dot product
    of pooled features, for the multi-positive loss.

    width: of the towers' embeddings.   attention_heads: the authors have 8.
    has_class_token: whether the tower's first token is a class token, which is dropped.
    chunk: images and texts at a time on each device, for memory; changes no result.
    """

    width: int
    attention_heads: int = 8
    has_class_token: bool = True
    chunk: int = 32

    def setup(self) -> None:
        for name in ("query", "key", "value"):
            setattr(self, f"{name}_norm", layers.layer_norm(1e-5, jnp.float32))
            setattr(self, name, layers.Dense(self.width))
        self.out = layers.Dense(self.width)

    @property
    def requests(self) -> tuple[types.FeatureRequest, types.FeatureRequest]:
        """Projected patches, and the pooled text, not normalised."""
        return types.FeatureRequest("projected", is_unit=False), types.FeatureRequest(is_unit=False)

    @property
    def reads_pooled(self) -> tuple[bool, bool]:
        """Neither."""
        return False, False

    def image(self, features: ImageFeatures, *, is_training: bool = False) -> ImageFeatures:
        """`pooled`, of unit length; `tokens`: key and value of each patch, side by side."""
        patches = features.tokens[:, int(self.has_class_token) :]
        keys, values = self.key(self.key_norm(patches)), self.value(self.value_norm(patches))
        tokens = jnp.concatenate([keys, values], axis=-1)
        return ImageFeatures(layers.l2_normalize(features.pooled), tokens)

    def text(self, features: TextFeatures, *, is_training: bool = False) -> TextFeatures:
        """`pooled`, of unit length; `tokens`: the query."""
        query = self.query(self.query_norm(features.pooled))
        pooled = layers.l2_normalize(features.pooled)
        return TextFeatures(pooled, query[:, None])

    def local(
        self, image: ImageFeatures, texts: Mapping[str, TextFeatures], logit_scale: Float[Array, ""]
    ) -> heads.Scores:
        """Scores of pooled patches, for the text-conditioned loss."""
        return {
            kind: (self.score(image, text), self.score_options(image, text))
            for kind, text in texts.items()
        }

    def training_scores(self, image: ImageFeatures, text: TextFeatures) -> tuple[Array, Array]:
        """Dot products of pooled features."""
        return super().score(image, text), super().score_options(image, text)

    def score(self, image: ImageFeatures, text: TextFeatures) -> Float[Array, "images texts"]:
        """Scores of every image with every text."""
        queries = text.tokens[:, 0], text.pooled
        if self.is_initializing():  # lax.map cannot create parameters
            return self._cosines(self.out, image.tokens, *(x[None] for x in queries))
        out, variables = self.out.clone(parent=None), self.out.variables

        def score(tokens: Array, texts: tuple[Array, Array], variables: Any) -> Array:
            return self._cosines(lambda x: out.apply(variables, x), tokens, *texts)

        return heads.map_pairs(score, image.tokens, queries, variables, self.chunk)

    def score_options(
        self, image: ImageFeatures, text: TextFeatures
    ) -> Float[Array, "images options"]:
        """Scores of image i with its own k texts."""
        queries = (x.reshape(len(image.tokens), -1, self.width) for x in (text.tokens, text.pooled))
        return self._cosines(self.out, image.tokens, *queries)

    def patch_maps(self, image: ImageFeatures, text: TextFeatures) -> dict[str, Array]:
        """weights: a_p, the mean over attention heads."""
        weights, _ = self._attend(image.tokens, text.tokens)
        return {"weights": weights[:, :, 0].mean(axis=1)}

    def _attend(
        self,
        tokens: Float[Array, "images patches features"],
        queries: Float[Array, "images_or_1 texts embed"],
    ) -> tuple[Float[Array, "images heads texts patches"], Array]:
        """a_p of every head, and u_p."""
        head = self.width // self.attention_heads

        def split(x: Array) -> Array:
            return x.reshape(*x.shape[:2], self.attention_heads, head)

        keys, values = map(split, jnp.split(tokens, 2, axis=-1))
        queries = split(queries)
        letters = "thd" if len(queries) == 1 else "ithd"
        queries = queries[0] if len(queries) == 1 else queries
        logits = jnp.einsum(f"{letters},iphd->ihtp", queries, keys, precision="highest")
        # the zero token, last
        logits = jnp.pad(logits * head**-0.5, [(0, 0), (0, 0), (0, 0), (0, 1)])
        return jax.nn.softmax(logits, axis=-1)[..., :-1], values

    def _cosines(
        self,
        out: Callable[[Array], Array],
        tokens: Float[Array, "images patches features"],
        queries: Float[Array, "images_or_1 texts embed"],
        texts: Float[Array, "images_or_1 texts embed"],
    ) -> Float[Array, "images texts"]:
        weights, values = self._attend(tokens, queries)
        pooled = jnp.einsum("ihtp,iphd->ithd", weights, values, precision="highest")
        pooled = layers.l2_normalize(out(pooled.reshape(*pooled.shape[:2], self.width)))
        return jnp.sum(pooled * jnp.broadcast_to(texts, pooled.shape), axis=-1)
