"""Base of heads on the patches of an image: two embedders, and rotary positions of the patches."""

from typing import Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from vlc_jax import types
from vlc_jax.models import heads, layers, rope


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


class PatchHead(heads.Head):
    """Base of PACL and SPARC: embedded patches and an embedded text.

    width: width of the shared embedding.
    stage: tokens of the image tower, normed | raw (before its last norm: LLM2CLIP's variant).
    has_class_token: whether the tower's first token is a class token, which is dropped.
    rope: none | feature_1d | feature_2d: rotary embedding of the tokens, before the embedder, with
      `rope_base` and `rope_layout` (`rope.rotate_features`; defaults: lst627/CLIP-Embeds).
    chunk: images at a time on each device, for memory; changes no result.
    """

    width: int
    stage: Literal["normed", "raw"] = "normed"
    has_class_token: bool = True
    rope: Literal["none", "feature_1d", "feature_2d"] = "none"
    rope_base: float = 10_000.0
    rope_layout: Literal["split", "interleaved", "halves"] = "split"
    dropout: float = 0.1
    chunk: int = 32

    def setup(self) -> None:
        self.patch_embedder = PatchEmbedder(self.width, self.dropout)
        self.text_embedder = TextEmbedder(self.width, self.dropout)

    def _patches(
        self, tokens: Float[Array, "images tokens width"]
    ) -> Float[Array, "images patches width"]:
        """Inputs of the patch embedder: rotated tokens, without the class token."""
        patches = tokens[:, 1:] if self.has_class_token else tokens
        if self.rope == "none":
            return patches
        return rope.rotate_features(patches, self.rope, self.rope_base, self.rope_layout)

    def embed_patches(
        self, tokens: Float[Array, "images tokens width"], is_training: bool
    ) -> Float[Array, "images patches embed"]:
        """Embedded patches, not normalised, about `chunk` images at a time on each device, since
        activations are several times as large as the result."""
        embedder = self.patch_embedder
        # lax.map below cannot create parameters
        if embedder.is_initializing():
            return embedder(self._patches(tokens), is_training=is_training)
        variables, unbound = embedder.variables, embedder.clone(parent=None)
        key = embedder.make_rng("dropout") if is_training and self.dropout else None

        def share(rows: tuple[Array, Array], whole: tuple) -> Array:
            variables, key = whole

            def part(rows: tuple[Array, Array]) -> Array:
                if key is None:
                    patches = self._patches(rows[0])
                    return unbound.apply(variables, patches, is_training=is_training)
                # a key per image, so that dropout does not depend on chunks and devices
                return jax.vmap(with_dropout)(*rows)

            def with_dropout(image: Array, index: Array) -> Array:
                rngs = {"dropout": jax.random.fold_in(key, index)}
                patches = self._patches(image[None])
                return unbound.apply(variables, patches, is_training=True, rngs=rngs)[0]

            return heads.map_chunks(part, rows, self.chunk)

        return types.map_sharded(share, (tokens, jnp.arange(len(tokens))), (variables, key))
