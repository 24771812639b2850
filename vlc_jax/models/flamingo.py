"""Perceiver resampler and gated cross attention of Flamingo (Alayrac et al. 2022,
arXiv:2204.14198), as OpenFlamingo (Awadalla et al. 2023, arXiv:2308.01390) and Otter (Li et al.
2023, arXiv:2305.03726) have them.

No image token is in the text: a text holds the token <image> in the place of each image. The
resampler turns the patches of an image into 64 latents, and before every n-th block of the decoder
the tokens of the text attend to the latents of the last image before them:

    x += tanh(a) attention(norm(x), latents),  x += tanh(b) mlp(norm(x))

A token before the first image attends to nothing; the second term is added for it, too.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Bool, Float, Int

from vlc_jax.models import layers

# Sizes in the code of OpenFlamingo and Otter, which no config names; the MLPs are 4 times wider.
LATENTS, DEPTH = 64, 6
HEADS, HEAD = 8, 64
EPSILON = 1e-5
# The scope of cross attention: train/flops.py divides its count by the number behind the name.
SCOPE = "one_layer_in_"


class Media(NamedTuple):
    """Latents of the images of each text, in their order, and the image that each slot sees.

    seen: the number of the last image whose token is at or before a slot, from 1; 0 for none.
    """

    latents: Float[Array, "batch images patches features"]
    seen: Int[Array, "batch slots"]


class _Layer(nn.Module):
    """Parts of a block of the resampler and of a block of cross attention; no biases but those of
    layer norms."""

    dtype: Any = jnp.float32
    param_dtype: Any = jnp.float32

    def _dense(self, features: int, name: str) -> layers.Dense:
        init = nn.initializers.lecun_normal()
        return layers.Dense(
            features, False, self.dtype, init, param_dtype=self.param_dtype, name=name
        )

    def _norm(self, name: str) -> nn.LayerNorm:
        return layers.layer_norm(EPSILON, self.dtype, name)

    def _attention(
        self,
        queries: Float[Array, "batch queries _"],
        x: Float[Array, "batch length features"],
        mask: Bool[Array, "batch queries length"] | None = None,
    ) -> Float[Array, "batch queries _"]:
        def heads(x: jax.Array, name: str) -> jax.Array:
            return self._dense(HEADS * HEAD, name)(x).reshape(*x.shape[:2], HEADS, HEAD)

        parts = heads(queries, "query"), heads(x, "key"), heads(x, "value")
        mixed = jax.nn.dot_product_attention(
            *parts, mask=None if mask is None else mask[:, None], scale=HEAD**-0.5
        )
        if mask is not None:  # else a token that sees nothing gets the mean of everything
            mixed = jnp.where(mask.any(axis=-1)[..., None, None], mixed, 0)
        mixed = mixed.reshape(*queries.shape[:2], HEADS * HEAD)
        return self._dense(queries.shape[-1], "out")(mixed)

    def _mlp(self, x: Float[Array, "batch queries _"]) -> Float[Array, "batch queries _"]:
        y = layers.exact_gelu(self._dense(4 * x.shape[-1], "up")(self._norm("mlp_norm")(x)))
        return self._dense(x.shape[-1], "down")(y)


class _ResamplerBlock(_Layer):
    """Latents attend to the patches and to themselves."""

    @nn.compact
    def __call__(
        self,
        latents: Float[Array, "images latents features"],
        x: Float[Array, "images patches features"],
    ) -> Float[Array, "images latents features"]:
        queries, patches = self._norm("latent_norm")(latents), self._norm("norm")(x)
        everything = jnp.concatenate([patches, queries], axis=1)
        latents = latents + self._attention(queries, everything)
        return latents + self._mlp(latents)


class Resampler(nn.Module):
    """The 64 latents of each image, in the width of its patches."""

    dtype: Any = jnp.float32
    param_dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, x: Float[Array, "images patches features"]
    ) -> Float[Array, "images latents features"]:
        shape = (LATENTS, x.shape[-1])
        latents = self.param("latents", nn.initializers.normal(1.0), shape, self.param_dtype)
        # from x: on a mesh of explicit axes both have its sharding
        latents = jnp.zeros_like(x[:, :1], self.dtype) + latents.astype(self.dtype)[None]
        for index in range(DEPTH):
            block = _ResamplerBlock(self.dtype, self.param_dtype, name=f"block_{index}")
            latents = block(latents, x.astype(self.dtype))
        return layers.layer_norm(EPSILON, self.dtype, "norm")(latents)


class CrossAttention(_Layer):
    """The block before a block of the decoder; its gates start at 0, where it does nothing."""

    @nn.compact
    def __call__(
        self, x: Float[Array, "batch length embed"], media: Media | None
    ) -> Float[Array, "batch length embed"]:
        """media: `seen` of the tokens of x; None: no token sees an image."""

        def gate(name: str) -> jax.Array:
            value = self.param(name, nn.initializers.zeros, (1,), self.param_dtype)
            return jnp.tanh(value.astype(jnp.float32)).astype(self.dtype)[None, None]

        if media is not None:
            batch, images, latents, features = media.latents.shape
            number = jnp.repeat(jnp.arange(images) + 1, latents)
            mask = media.seen[:, :, None] == number[None, None]
            seen = media.latents.reshape(batch, -1, features).astype(self.dtype)
            x = x + gate("attention_gate") * self._attention(self._norm("norm")(x), seen, mask)
        return x + gate("mlp_gate") * self._mlp(x)


def init_stack(
    block: CrossAttention, key: jax.Array, count: int, width: int, features: int
) -> dict[str, Any]:
    """Random parameters of `count` blocks, stacked on axis 0.

    width: of the decoder.   features: of the latents.
    """
    media = Media(jnp.zeros((1, 1, 1, features)), jnp.ones((1, 1), jnp.int32))

    def one(key: jax.Array) -> dict[str, Any]:
        return block.init(key, jnp.zeros((1, 1, width)), media)["params"]

    return jax.vmap(one)(jax.random.split(key, count))


def before_block(
    block: CrossAttention,
    stack: Any,
    every: int,
    layer: Int[Array, ""],
    x: Float[Array, "batch length embed"],
    media: Media | None,
) -> Float[Array, "batch length embed"]:
    """x before block `layer` of the decoder: after cross attention in every `every`-th layer."""

    def run(x: jax.Array) -> jax.Array:
        index = layer // every
        own = jax.tree.map(lambda leaf: jax.lax.dynamic_index_in_dim(leaf, index, 0, False), stack)
        return block.apply({"params": own}, x, media)

    with jax.named_scope(f"{SCOPE}{every}"):
        return jax.lax.cond((layer + 1) % every == 0, run, lambda x: x, x)
