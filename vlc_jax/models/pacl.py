"""PACL: patch-aligned contrastive learning, patches pooled by their similarity to the text.

Mukhoti et al. 2023 (arXiv:2212.04994), as the code of "Exploring How Generative MLLMs Perceive
More Than CLIP with the Same Vision Encoder" (ACL 2025; lst627/CLIP-Embeds) computes it: with
the embedded patches e_p of an image, not normalised, and the embedded text t of unit length,

    s_p = cos(e_p, t),   w_p = sigmoid(10 s_p),   v = sum_p w_p e_p,   score = cos(v, t).
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from vlc_jax import types
from vlc_jax.models import heads, layers, rope

EPSILON = 1e-12  # below any squared length that is not zero


class PatchEmbedder(nn.Module):
    """Patch embedder: layer norm, dropout, then a linear map plus a two-layer MLP."""

    width: int
    dropout: float = 0.1

    @nn.compact
    def __call__(
        self, tokens: Float[Array, "images patches width"], *, is_training: bool
    ) -> Float[Array, "images patches embed"]:
        x = layers.layer_norm(1e-5, jnp.float32, "norm")(tokens)
        x = nn.Dropout(self.dropout, deterministic=not is_training)(x)
        hidden = nn.gelu(layers.Dense(self.width, name="up")(x), approximate=False)
        linear = layers.Dense(self.width, name="linear")(x)
        return linear + layers.Dense(self.width, name="down")(hidden)


class TextEmbedder(nn.Module):
    """Text (or token) embedder: layer norm, dropout, a linear map."""

    width: int
    dropout: float = 0.1

    @nn.compact
    def __call__(
        self, text: Float[Array, "*texts width"], *, is_training: bool
    ) -> Float[Array, "*texts embed"]:
        x = layers.layer_norm(1e-5, jnp.float32, "norm")(text)
        x = nn.Dropout(self.dropout, deterministic=not is_training)(x)
        return layers.Dense(self.width, name="linear")(x)


def embed_patches(
    embedder: PatchEmbedder,
    tokens: Float[Array, "images tokens width"],
    chunk: int,
    is_training: bool,
    rotate: Callable[[Array], Array],
) -> Float[Array, "images patches embed"]:
    """`embedder(rotate(tokens))`, about `chunk` images at a time on each device, since activations
    are several times as large as the result."""
    if embedder.is_initializing():
        return embedder(rotate(tokens), is_training=is_training)
    variables, unbound = embedder.variables, embedder.clone(parent=None)
    key = embedder.make_rng("dropout") if is_training and embedder.dropout else None

    def share(rows: tuple[Array, Array], whole: tuple) -> Array:
        variables, key = whole

        def part(rows: tuple[Array, Array]) -> Array:
            if key is None:
                return unbound.apply(variables, rotate(rows[0]), is_training=is_training)
            # a key per image, so that dropout does not depend on chunks and devices
            return jax.vmap(with_dropout)(*rows)

        def with_dropout(image: Array, index: Array) -> Array:
            rngs = {"dropout": jax.random.fold_in(key, index)}
            return unbound.apply(variables, rotate(image[None]), is_training=True, rngs=rngs)[0]

        return heads.map_chunks(part, rows, chunk)

    return types.map_sharded(share, (tokens, jnp.arange(len(tokens))), (variables, key))


class PACL(heads.Head):
    """Patch embedder, text embedder, and cosine similarity with the patches pooled by the text.

    width: width of the shared embedding; the authors use the towers' width (768 for L/14).
    pooling: in training. own_caption: each image is pooled by its own caption and then compared
      with all texts (as in the authors' training; the image features depend on the caption, and
      negatives never weight a patch); pairwise: each image is pooled by each text it is compared
      with, the formula above; uniform: all weights 1, as in the authors' published code.
    eval_pooling: sigmoid (the formula) | uniform (as in the published code).
    stage: tokens of the image tower, normed | raw (before its last norm: LLM2CLIP's variant).
    has_class_token: whether the tower's first token is a class token, which is dropped.
    rope: none | feature_1d | feature_2d: rotary embedding of the tokens, before the embedder, with
      `rope_base` and `rope_layout` (`rope.rotate_features`; defaults: the authors').
      rope_after: rotate the embedded patches instead, in s_p only.
    sharpness: the 10 of the formula.
    chunk: images at a time on each device, for memory; changes no result.
    """

    width: int
    pooling: Literal["own_caption", "pairwise", "uniform"] = "pairwise"
    eval_pooling: Literal["sigmoid", "uniform"] = "sigmoid"
    stage: Literal["normed", "raw"] = "normed"
    has_class_token: bool = True
    rope: Literal["none", "feature_1d", "feature_2d"] = "none"
    rope_base: float = 10_000.0
    rope_layout: Literal["split", "interleaved", "halves"] = "split"
    rope_after: bool = False
    sharpness: float = 10.0
    dropout: float = 0.1
    chunk: int = 32

    def setup(self) -> None:
        self.patch_embedder = PatchEmbedder(self.width, self.dropout)
        self.text_embedder = TextEmbedder(self.width, self.dropout)

    @property
    def requests(self) -> tuple[types.FeatureRequest, types.FeatureRequest]:
        """Tokens of the image tower, and the pooled text, not normalised."""
        return types.FeatureRequest(self.stage), types.FeatureRequest(is_unit=False)

    def image(
        self, features: types.ImageFeatures, *, is_training: bool = False
    ) -> types.ImageFeatures:
        """`tokens`: the embedded patches, not normalised; `pooled`: their sum, of unit length."""

        def rotate(tokens: Array) -> Array:
            tokens = tokens[:, 1:] if self.has_class_token else tokens
            return tokens if self.rope == "none" or self.rope_after else self._rotated(tokens)

        patches = embed_patches(
            self.patch_embedder, features.tokens, self.chunk, is_training, rotate
        )
        return types.ImageFeatures(layers.l2_normalize(patches.sum(axis=1)), patches)

    def text(
        self, features: types.TextFeatures, *, is_training: bool = False
    ) -> types.TextFeatures:
        """`pooled`: the embedded text, of unit length."""
        embedded = self.text_embedder(features.pooled, is_training=is_training)
        return types.TextFeatures(layers.l2_normalize(embedded), None, features.mask)

    def condition_on_own_captions(
        self, image: types.ImageFeatures, text: types.TextFeatures
    ) -> types.ImageFeatures:
        """Images pooled once for all texts, with own_caption and uniform."""
        if self.pooling == "pairwise":
            return image
        if self.pooling == "uniform":
            return types.ImageFeatures(image.pooled)
        weights = self.weights(image.tokens, text.pooled[:, None])[..., 0]
        pooled = jnp.einsum("ip,ipe->ie", weights, image.tokens, precision="highest")
        return types.ImageFeatures(layers.l2_normalize(pooled))

    def flops(self, sizes: heads.FlopInputs) -> int:
        """FLOPs of both embedders, and of pooling the image by every text or by its own caption."""
        patches, width = sizes.patches - self.has_class_token, self.width
        embedders = patches * (2 * sizes.image + width) * width + sizes.texts * sizes.text * width
        if self.pooling != "pairwise":
            return 6 * (embedders + 2 * patches * width + sizes.pairs * width)
        pairs = sizes.pairs * patches * width
        if sizes.pairs <= patches:
            return 6 * (embedders + 2 * pairs)
        gram = 3 * patches**2 * width + 2 * sizes.pairs * patches**2  # see _quadratic
        return 6 * (embedders + pairs) + 2 * gram

    def score(
        self, image: types.ImageFeatures, text: types.TextFeatures, *, is_training: bool = False
    ) -> Float[Array, "images texts"]:
        """Cosine of every image, pooled by the text, with every text."""
        if self._is_pooled(image, is_training):
            return heads.dot(image.pooled, text.pooled)

        def share(patches: Array, texts: Array) -> Array:
            return heads.map_chunks(lambda part: self._cosines(part, texts), patches, self.chunk)

        return types.map_sharded(share, image.tokens, text.pooled[None])

    def score_options(
        self, image: types.ImageFeatures, text: types.TextFeatures, *, is_training: bool = False
    ) -> Float[Array, "images options"]:
        """Cosine of image i, pooled by the text, with its own k texts."""
        if self._is_pooled(image, is_training):
            return heads.dot_options(image.pooled, text.pooled)
        return self._cosines(image.tokens, text.pooled.reshape(len(image.tokens), -1, self.width))

    def patch_maps(self, image: types.ImageFeatures, text: types.TextFeatures) -> dict[str, Array]:
        """weights: w_p; {} with uniform pooling."""
        if self.eval_pooling == "uniform":
            return {}
        return {"weights": self.weights(image.tokens, text.pooled[:, None])[..., 0]}

    def weights(
        self,
        patches: Float[Array, "images patches embed"],
        text: Float[Array, "images_or_1 texts embed"],
    ) -> Float[Array, "images patches texts"]:
        """w_p of every image for every text, or for the image's own texts."""
        return self._weigh(patches, text)[0]

    def _weigh(
        self,
        patches: Float[Array, "images patches embed"],
        text: Float[Array, "images_or_1 texts embed"],
    ) -> tuple[Array, Array]:
        """w_p and e_p t of every image and every text, or the image's own texts; the products,
        most of the work, are computed once."""
        products = _products(patches, text)
        if self.rope_after and self.rope != "none":
            rotated = self._rotated(patches)
            cosines = _products(rotated, text) * _inverse_length(rotated)
        else:
            cosines = products * _inverse_length(patches)
        return jax.nn.sigmoid(self.sharpness * cosines), products

    def _rotated(self, tokens: Float[Array, "images patches width"]) -> Array:
        return rope.rotate_features(tokens, self.rope, self.rope_base, self.rope_layout)

    def _is_pooled(self, image: types.ImageFeatures, is_training: bool) -> bool:
        return image.tokens is None or (self.eval_pooling == "uniform" and not is_training)

    def _cosines(
        self,
        patches: Float[Array, "images patches embed"],
        text: Float[Array, "images_or_1 texts embed"],
    ) -> Float[Array, "images texts"]:
        """cos(v, t), without v: v t = sum_p w_p e_p t, and |v| by `_squared_length`."""
        weights, products = self._weigh(patches, text)
        dot = jnp.sum(weights * products, axis=1)
        squared = _squared_length(patches, weights)
        return dot * jax.lax.rsqrt(jnp.maximum(squared, EPSILON))


def _squared_length(
    patches: Float[Array, "images patches embed"], weights: Float[Array, "images patches texts"]
) -> Float[Array, "images texts"]:
    """|v|^2 of every image pooled for every text.

    For more texts than patches it is computed as w' G w with the Gram matrix G of the image's
    patches, so that no array has images x texts x embed elements.
    """
    if weights.shape[2] <= patches.shape[1]:  # pooling costs less than G
        pooled = jnp.einsum("ipt,ipe->ite", weights, patches, precision="highest")
        return jnp.sum(pooled * pooled, axis=-1)
    gram = jnp.einsum("ipe,iqe->ipq", patches, patches, precision="highest")
    return _quadratic(gram, weights)


@jax.custom_vjp
def _quadratic(
    gram: Float[Array, "images patches patches"], weights: Float[Array, "images patches texts"]
) -> Float[Array, "images texts"]:
    """w' G w for every text. The custom VJP reuses G w: since G is symmetric, it is 2 G w."""
    return _quadratic_forward(gram, weights)[0]


def _quadratic_forward(gram: Array, weights: Array) -> tuple[Array, tuple[Array, Array]]:
    spread = jnp.einsum("ipq,iqt->ipt", gram, weights, precision="highest")
    return jnp.sum(weights * spread, axis=1), (weights, spread)


def _quadratic_backward(
    saved: tuple[Array, Array], gradient: Float[Array, "images texts"]
) -> tuple[Array, Array]:
    weights, spread = saved
    scaled = weights * gradient[:, None]
    of_gram = jnp.einsum("ipt,iqt->ipq", scaled, weights, precision="highest")
    return of_gram, 2 * spread * gradient[:, None]


_quadratic.defvjp(_quadratic_forward, _quadratic_backward)


def _inverse_length(x: Float[Array, "images patches embed"]) -> Float[Array, "images patches 1"]:
    """1 / length of each patch, the factor of `layers.l2_normalize`."""
    return jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + 1e-12)


def _products(
    patches: Float[Array, "images patches embed"],
    text: Float[Array, "images_or_1 texts embed"],
) -> Float[Array, "images patches texts"]:
    if len(text) == 1:
        return jnp.einsum("ipe,te->ipt", patches, text[0], precision="highest")
    return jnp.einsum("ipe,ite->ipt", patches, text, precision="highest")
