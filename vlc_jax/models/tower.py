"""Base of both towers: a stack of transformer blocks, a projection, and the requested tokens."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vlc_jax import errors, types
from vlc_jax.models import layers, lora, rope


class Tower(nn.Module, kw_only=True):
    """Base of the image and the text tower: a stack of transformer blocks and a projection.

    mlp_width: hidden width of the MLPs; None is 4 x width.   epsilon: for every layer norm.
    activation: activation of the MLPs, a name of ACTIVATIONS or swiglu.
    key_bias, sub_norm, post_norm, layer_scale: see Attention and Block; EVA has no key bias, EVA-02
      has sub-LN, its largest model post-norm, DINOv2 layer scale.
    projection: width of the shared embedding; None: features are the output of the last norm.
    initialisation: clip | big_vision, see `initialisers`.
    dtype: type of activations and matrix products.
    remat: activations that the backward pass recomputes, in order of decreasing memory: none |
      minimal (all but matrix products: norms, activations, softmax) | dots (all but dense layers,
      so attention too) | block (all) | offload (as dots, the saved ones in host memory).
    attention: xla | cudnn, attention of the blocks, see models/attention.py.
    scan_layers: blocks of all tokens are one loop, which compiles several times faster.
    """

    width: int
    depth: int
    heads: int
    mlp_width: int | None = None
    activation: str = "quick_gelu"
    epsilon: float = 1e-5
    projection: int | None = None
    projection_bias: bool = False
    key_bias: bool = True
    sub_norm: bool = False
    post_norm: bool = False
    layer_scale: bool = False
    initialisation: str = "clip"
    dtype: Any = jnp.float32
    remat: str = "none"
    # not in the repr, the key of cached features: these fields do not change the results
    attention: str = dataclasses.field(default="xla", repr=False)
    scan_layers: bool = dataclasses.field(default=False, repr=False)

    @property
    def embed(self) -> int:
        """Width of the embedding."""
        return self.projection or self.width

    def _blocks(
        self,
        x: Float[Array, "batch length embed"],
        *,
        is_causal: bool,
        positions: Int[Array, " batch"] | None = None,
        rotation: rope.Rotation | None = None,
        ends: Int[Array, " batch"] | None = None,
    ) -> Float[Array, "batch queries embed"]:
        """The stack of blocks; with `positions` the last block computes one token per example,
        (batch, 1, embed); `ends` as in `Block`.
        """
        last = self.depth - 1
        fields = {
            "heads": self.heads,
            "mlp_width": self.mlp_width or 4 * self.width,
            "is_causal": is_causal,
            "activation": self.activation,
            "epsilon": self.epsilon,
            "initial": layers.initialisers(self.initialisation, self.width, self.depth),
            "dtype": self.dtype,
            "key_bias": self.key_bias,
            "sub_norm": self.sub_norm,
            "post_norm": self.post_norm,
            "layer_scale": self.layer_scale,
            "implementation": self.attention,
        }
        # init makes the blocks one by one, so that parameters do not depend on scan_layers
        scanned = 0
        if self.scan_layers and last > 0 and not self.is_initializing():
            # one token per example is another program
            scanned = self.depth if positions is None else last
            # parent=None: the loop calls one block as a pure function of each block's parameters
            x = self._scan(layers.Block(**fields, parent=None), scanned, x, rotation, ends)
        make = layers.rematerialised(layers.Block, self.remat)
        for index in range(scanned, self.depth):
            block = make(**fields, name=f"block_{index}")
            x = block(x, positions if index == last else None, rotation, ends)
        return x

    def _scan(
        self,
        block: layers.Block,
        count: int,
        x: Float[Array, "batch length embed"],
        rotation: rope.Rotation | None,
        ends: Int[Array, " batch"] | None,
    ) -> Float[Array, "batch length embed"]:
        """The first `count` blocks as one loop, which is compiled once.

        Parameters stay those of single blocks and are stacked here, in each step: weights, adapters
        and checkpoints need no other layout, at the price of a copy of the tower's parameters, of
        kernels and their gradients in `dtype`.
        """
        blocks = [self.variables["params"][f"block_{index}"] for index in range(count)]
        params = [_kernels_in(self.dtype, block) for block in blocks]

        def body(x: jax.Array, params: Any) -> tuple[jax.Array, None]:
            return block.apply({"params": params}, x, None, rotation, ends), None

        if (policy := layers.REMAT[self.remat]) is not None:
            body = jax.checkpoint(body, policy=policy, prevent_cse=False)  # a scan needs none
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *params)
        return jax.lax.scan(body, x, stacked)[0]

    def _norm(self, name: str) -> nn.LayerNorm:
        return layers.layer_norm(self.epsilon, self.dtype, name)

    def _projection(self, request: types.FeatureRequest) -> Callable[[jax.Array], jax.Array]:
        """The projection into the shared embedding, float32, of unit length if requested."""
        if self.projection is None:
            return lambda x: scaled(x, request)
        dense = layers.Dense(
            self.projection,
            use_bias=self.projection_bias,
            dtype=self.dtype,
            kernel_init=nn.initializers.normal(self.width**-0.5),
            name="projection",
        )
        return lambda x: scaled(dense(x), request)


def _kernels_in(dtype: Any, params: Any) -> Any:
    """Parameters of a block, kernels in the type in which Dense multiplies them.

    Not where an adapter is attached: the length of a DoRA column is taken in float32."""
    if not isinstance(params, Mapping):
        return params
    cast = {name: _kernels_in(dtype, leaf) for name, leaf in params.items()}
    if "kernel" in cast and lora.ATTACHED not in cast:
        cast["kernel"] = cast["kernel"].astype(dtype)
    return cast


def image_shape(tower: nn.Module) -> tuple[int, int, int]:
    """(height, width, 3) of an image tower's images: squares, or mosaics with the row of a grid."""
    side = tower.image_size
    return (side + bool(getattr(tower, "position_grid", None)), side, 3)


def check_pixels(
    image: Float[Array, "batch height width channels"], tower: nn.Module, is_crop: bool = False
) -> None:
    """Raises UsageError for images of another shape than those of the tower.

    is_crop: squares of any side.
    """
    shape = (image.shape[1], image.shape[1], 3) if is_crop else image_shape(tower)
    if image.shape[1:] != shape:
        raise errors.UsageError(
            f"this image tower takes images of shape {shape}, got {image.shape[1:]}; "
            "resize the input or set the model's image_size"
        )


def scaled(x: Float[Array, "*axes embed"], request: types.FeatureRequest) -> jax.Array:
    """Features in float32, of unit length if requested."""
    return layers.l2_normalize(x) if request.is_unit else x.astype(jnp.float32)


def tokens_of(
    request: types.FeatureRequest,
    raw: Float[Array, "batch length embed"],
    normed: Float[Array, "batch length embed"],
    project: Callable[[jax.Array], jax.Array],
) -> Float[Array, "batch length _"] | None:
    """The requested tokens of a tower, float32; None without a request."""
    if not request.has_tokens:
        return None
    if request.tokens == "projected":
        return project(normed)
    return {"raw": raw, "normed": normed}[request.tokens].astype(jnp.float32)
