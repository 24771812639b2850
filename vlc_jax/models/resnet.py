"""The ResNet image towers of OpenAI's CLIP (Radford et al. 2021, section 2.4 and table 19)."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from vlc_jax import types
from vlc_jax.models import layers
from vlc_jax.models.tower import check_pixels, scaled, tokens_of
from vlc_jax.types import ImageFeatures

STRIDE = 32  # pixels per feature and axis: the stem divides by 4, three of the stages by 2
EPSILON = 1e-5  # of torch.nn.BatchNorm2d


class FrozenBatchNorm(nn.Module):
    """Batch norm with stored statistics: (x - mean) / sqrt(variance + 1e-5) * scale + bias.

    `mean` and `variance` are parameters without a gradient, so that weights and checkpoints hold
    them and no optimizer changes them; `scale` and `bias` are trained.
    """

    dtype: Any = jnp.float32
    scale_init: layers.Initializer = nn.initializers.ones

    @nn.compact
    def __call__(
        self, x: Float[Array, "batch height width channels"]
    ) -> Float[Array, "batch height width channels"]:
        size = x.shape[-1:]
        mean = self.param("mean", nn.initializers.zeros, size)
        variance = self.param("variance", nn.initializers.ones, size)
        mean, variance = map(jax.lax.stop_gradient, (mean, variance))
        factor = self.param("scale", self.scale_init, size) * jax.lax.rsqrt(variance + EPSILON)
        shift = self.param("bias", nn.initializers.zeros, size) - mean * factor
        factor, shift = (part.astype(self.dtype).reshape(1, 1, 1, -1) for part in (factor, shift))
        return x * factor + shift


def _norm(dtype: Any, name: str) -> FrozenBatchNorm:
    # the last norm of a block starts at 0: the block is then the identity, as in OpenAI's code
    init = nn.initializers.zeros if name == "norm_3" else nn.initializers.ones
    return FrozenBatchNorm(dtype, init, name=name)


def _convolution(features: int, dtype: Any, name: str, stride: int = 1) -> nn.Conv:
    init = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")  # torch.nn.Conv2d's default
    return nn.Conv(
        features,
        (3, 3),
        strides=stride,
        padding=1,
        use_bias=False,
        dtype=dtype,
        kernel_init=init,
        name=name,
    )


def _average(
    x: Float[Array, "batch height width channels"], stride: int
) -> Float[Array, "batch rows columns channels"]:
    return nn.avg_pool(x, (stride, stride), (stride, stride)) if stride > 1 else x


class Bottleneck(nn.Module):
    """A residual block of three convolutions, 1x1, 3x3 and 1x1 with four times the channels.

    stride: of an average pooling behind the second convolution and in front of the shortcut's, in
      place of strided convolutions (anti-aliasing; Zhang 2019, arXiv:1904.11486).
    """

    channels: int
    stride: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self, x: Float[Array, "batch height width channels"]
    ) -> Float[Array, "batch rows columns out"]:
        out = 4 * self.channels

        def dense(features: int, name: str) -> layers.Dense:  # a convolution of 1x1
            init = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
            return layers.Dense(features, False, self.dtype, init, name=name)

        y = nn.relu(_norm(self.dtype, "norm_1")(dense(self.channels, "conv_1")(x)))
        y = _convolution(self.channels, self.dtype, "conv_2")(y)
        y = _average(nn.relu(_norm(self.dtype, "norm_2")(y)), self.stride)
        y = _norm(self.dtype, "norm_3")(dense(out, "conv_3")(y))
        if self.stride > 1 or x.shape[-1] != out:
            x = dense(out, "shortcut")(_average(x, self.stride))
            x = _norm(self.dtype, "shortcut_norm")(x)
        return types.shard_batch(nn.relu(x + y))


class AttentionPool(nn.Module):
    """Attention of the mean feature over itself and all features, positions added.

    __call__ gives the pooled value and the value of each feature alone, before the projection.
    """

    heads: int
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "batch patches embed"],
        positions: Float[Array, "length embed"],
        values_too: bool,
    ) -> tuple[Float[Array, "batch embed"], Float[Array, "batch patches embed"] | None]:
        batch, _, width = x.shape
        init = nn.initializers.normal(width**-0.5)
        query = layers.Dense(width, True, self.dtype, init, name="query")
        key_value = layers.Dense(2 * width, True, self.dtype, init, name="key_value")
        y = jnp.concatenate([x.mean(axis=1, keepdims=True), x], axis=1)
        y = y + positions.astype(y.dtype)[None]
        keys, values = (
            part.reshape(batch, -1, self.heads, width // self.heads)
            for part in jnp.split(key_value(y), 2, axis=-1)
        )
        queries = query(y[:, :1]).reshape(batch, 1, self.heads, -1)
        pooled = jax.nn.dot_product_attention(queries, keys, values, implementation="xla")
        # without positions, as MaskCLIP's dense features
        alone = key_value(x)[..., width:] if values_too else None
        return pooled.reshape(batch, width), alone


class ResNet(nn.Module, kw_only=True):
    """CLIP's ResNet-D over normalised pixels: three-layer stem, four stages, attention pooling.

    Its batch norm uses stored statistics always, so that a training run must start from weights
    (`setup.validate`); torch's training mode, which normalises by the batch, is not there.

    image_size: side of the square input, pixels, a multiple of 32.
    width: channels of the first stage; features have 32 times as many.
    stages: blocks of each stage.   heads: of the attention pooling.
    projection: width of the shared embedding; None: that of the features.
    dtype, remat: as in `Tower`, remat for each block.
    """

    image_size: int
    width: int
    stages: tuple[int, ...]
    heads: int
    patch_size: int = STRIDE
    projection: int | None = None
    dtype: Any = jnp.float32
    remat: str = "none"

    has_class_token: ClassVar[bool] = False

    @property
    def embed(self) -> int:
        """Width of the embedding."""
        return self.projection or 32 * self.width

    @property
    def depth(self) -> int:
        """Blocks of all stages."""
        return sum(self.stages)

    @property
    def grid(self) -> int:
        """Features per side."""
        return self.image_size // STRIDE

    @nn.compact
    def __call__(
        self,
        image: Float[Array, "batch height width channels"],
        request: types.FeatureRequest = types.POOLED_ONLY,
    ) -> ImageFeatures:
        """Pooled features (batch, embed) and, if requested, the last feature map row by row,
        (batch, patches, embed).

        A projected token is projection(value(feature)), as MaskCLIP computes dense features (Zhou
        et al. 2022, arXiv:2112.01071). There is no last norm: normed tokens are the raw ones.
        """
        check_pixels(image, self)
        x = self._stem(image.astype(self.dtype))
        make = layers.rematerialised(Bottleneck, self.remat)
        for stage, blocks in enumerate(self.stages):
            for index in range(blocks):
                stride = 2 if stage and not index else 1
                name = f"stage_{stage + 1}_block_{index}"
                x = make(self.width * 2**stage, stride, self.dtype, name=name)(x)
        raw = x.reshape(x.shape[0], -1, x.shape[-1])
        positions = self.param(
            "position_embedding",
            nn.initializers.normal(raw.shape[-1] ** -0.5),
            (self.grid**2 + 1, raw.shape[-1]),
        )
        pool = AttentionPool(self.heads, self.dtype, name="pooling")
        pooled, values = pool(raw, positions, request.tokens == "projected")
        init = nn.initializers.normal(raw.shape[-1] ** -0.5)
        dense = layers.Dense(self.embed, True, self.dtype, init, name="projection")
        tokens = tokens_of(request, raw, raw, lambda _: scaled(dense(values), request))
        return ImageFeatures(scaled(dense(pooled), request), tokens)

    def _stem(
        self, x: Float[Array, "batch height width channels"]
    ) -> Float[Array, "batch rows columns out"]:
        for index, channels in enumerate((self.width // 2, self.width // 2, self.width)):
            x = _convolution(channels, self.dtype, f"stem_{index}", stride=1 if index else 2)(x)
            x = nn.relu(_norm(self.dtype, f"stem_norm_{index}")(x))
        return types.shard_batch(_average(x, 2))
