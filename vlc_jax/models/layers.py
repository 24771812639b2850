"""Transformer layers of both towers: dense, attention, MLP, block, initialisers.

Parameters of the towers are always float32; `dtype` is the type of matrix products and activations.
Softmax and layer norms are computed in float32 for every `dtype`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Int

from vlc_jax import types
from vlc_jax.models import attention, lora, rope

Initializer = Callable[..., jax.Array]


def quick_gelu(x: jax.Array) -> jax.Array:
    """x * sigmoid(1.702 x), the GELU of OpenAI's CLIP weights."""
    return x * jax.nn.sigmoid(1.702 * x)


def exact_gelu(x: jax.Array) -> jax.Array:
    """x * Phi(x), the GELU of torch.nn and of most open_clip weights."""
    return jax.nn.gelu(x, approximate=False)


def tanh_gelu(x: jax.Array) -> jax.Array:
    """The tanh approximation of GELU, used by SigLIP."""
    return jax.nn.gelu(x, approximate=True)


ACTIVATIONS = {"quick_gelu": quick_gelu, "gelu": exact_gelu, "gelu_tanh": tanh_gelu}
SWIGLU = "swiglu"  # of MLPs only, see MLP
# Activations of a transformer block saved for the backward pass, besides its input; all others are
# recomputed. offload: the same as dots, in pinned host memory.
REMAT = {
    "none": None,
    "minimal": jax.checkpoint_policies.dots_saveable,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "block": jax.checkpoint_policies.nothing_saveable,
    "offload": jax.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host"),
}


def rematerialised(block: type[nn.Module], remat: str, **options: Any) -> type[nn.Module]:
    """The class of a block whose backward pass recomputes activations.

    remat: a key of REMAT.   options: of flax.linen.remat.
    """
    policy = REMAT[remat]
    return block if policy is None else nn.remat(block, policy=policy, **options)


def l2_normalize(x: Float[Array, "*axes embed"]) -> Float[Array, "*axes embed"]:
    """`x` scaled to length 1 along the last axis, in float32; a zero vector stays zero."""
    x = x.astype(jnp.float32)
    # 1e-12 inside the root: at a zero vector the gradient stays finite, too
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + 1e-12)


class Initialisers(NamedTuple):
    """Initialisers of the matrices of one transformer block, and of its MLP biases."""

    query: Initializer
    key_value: Initializer
    out: Initializer
    up: Initializer
    down: Initializer
    mlp_bias: Initializer


def initialisers(scheme: str, width: int, depth: int) -> Initialisers:
    """The initialisers of a block of `width` in a tower of `depth` blocks.

    clip: normal, std width**-.5 for queries, keys, values, (2 width)**-.5 for the MLP's first
      matrix, (2 width depth)**-.5 for the two matrices that write to the residual stream; zero
      biases. OpenAI's code uses it in the text tower only and torch's defaults in the image tower;
      here both towers use it.
    big_vision: Xavier uniform (query, key and value separately), MLP biases of std 1e-6.
    """
    if scheme == "clip":
        residual = nn.initializers.normal((2 * width * depth) ** -0.5)
        inner = nn.initializers.normal(width**-0.5)
        return Initialisers(
            query=inner,
            key_value=inner,
            out=residual,
            up=nn.initializers.normal((2 * width) ** -0.5),
            down=residual,
            mlp_bias=nn.initializers.zeros,
        )
    if scheme == "big_vision":
        xavier = nn.initializers.xavier_uniform()
        bias = nn.initializers.normal(1e-6)
        return Initialisers(xavier, side_by_side(xavier, width), xavier, xavier, xavier, bias)
    raise ValueError(f"initialisation is 'clip' or 'big_vision', got {scheme!r}")


def side_by_side(init: Initializer, width: int) -> Initializer:
    """`init` for several matrices of `width` columns stored as one, each initialised separately."""

    def make(key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
        keys = jax.random.split(key, shape[-1] // width)
        return jnp.concatenate([init(k, (*shape[:-1], width), dtype) for k in keys], axis=-1)

    return make


class Dense(nn.Module):
    """`nn.Dense`, also into or out of attention heads; its kernel is one matrix.

    In float32, the dtype of CPUs, one product of two matrices with all leading axes merged: with
    unmerged axes, XLA on CPU (jax 0.10) takes a fifth longer for a step of the mini model. In 16
    bits no axes are merged or split after the product, which copies every activation on a TPU.

    heads: each output is (*axes, heads, features / parts / heads).   has_heads: so is the input.
    parts: more than 1 for a tuple of outputs, each the product with a part of the kernel's columns.
    """

    features: int
    use_bias: bool = True
    dtype: Any = jnp.float32
    kernel_init: Initializer = nn.initializers.lecun_normal()
    bias_init: Initializer = nn.initializers.zeros
    param_dtype: Any = jnp.float32
    heads: int | None = None
    has_heads: bool = False
    parts: int = 1

    @nn.compact
    def __call__(
        self, x: Float[Array, "... features"]
    ) -> Float[Array, "... out"] | tuple[Float[Array, "... out"], ...]:
        first = x.ndim - 1 - self.has_heads
        axes, inputs = x.shape[:first], x.shape[first:]
        matrix, width = (math.prod(inputs), self.features), self.features // self.parts
        outputs = (width,) if self.heads is None else (self.heads, width // self.heads)
        kernel = self.param("kernel", self.kernel_init, matrix, self.param_dtype)
        adapter = self.get_variable("params", lora.ATTACHED)
        is_merged = jnp.dtype(self.dtype) == jnp.float32
        bias = None
        if self.use_bias:
            bias = self.param("bias", self.bias_init, (self.features,), self.param_dtype)
            bias = bias.astype(self.dtype)
        x = x.astype(self.dtype)
        if is_merged or adapter is not None:
            x = x.reshape(*((-1,) if is_merged else axes), matrix[0])
            y = jnp.dot(x, kernel.astype(self.dtype))
            if adapter is not None:
                y = lora.adapted(x, y, kernel, adapter)
            y = y if bias is None else y + bias[(None,) * (y.ndim - 1)]
            ys = _parts(y, self.parts)
        else:
            kernels = _parts(kernel.astype(self.dtype), self.parts)
            kernels = [part.reshape(*inputs, *outputs) for part in kernels]
            ys = [jnp.tensordot(x, part, len(inputs)) for part in kernels]
            if bias is not None:
                bias = bias.reshape(self.parts, *(1,) * first, *outputs)
                ys = [y + bias[index] for index, y in enumerate(ys)]
        ys = tuple(y.reshape(*axes, *outputs) for y in ys)
        return ys if self.parts > 1 else ys[0]


def _parts(x: jax.Array, parts: int) -> list[jax.Array]:
    """Equal parts of the last axis."""
    return [x] if parts == 1 else jnp.split(x, parts, axis=-1)


def layer_norm(epsilon: float, dtype: Any, name: str | None = None) -> nn.LayerNorm:
    """A layer norm with float32 statistics.

    E[x^2] - E[x]^2 cancels in float32; bfloat16's 8 bits cannot hold a deviation so small beside
    the mean, and one pass reads less.
    """
    is_fast = jnp.dtype(dtype) == jnp.bfloat16
    return nn.LayerNorm(epsilon=epsilon, dtype=dtype, use_fast_variance=is_fast, name=name)


class MLP(nn.Module):
    """Two dense layers with an activation between them.

    swiglu (Shazeer 2020, arXiv:2002.05202): silu of a third dense layer times the first one.
    inner_norm: epsilon of a layer norm before the last dense layer (sub-LN); None for none.
    """

    hidden: int
    activation: str
    initial: Initialisers
    dtype: Any = jnp.float32
    inner_norm: float | None = None

    @nn.compact
    def __call__(self, x: Float[Array, "batch length embed"]) -> Float[Array, "batch length embed"]:
        init = self.initial

        def dense(features: int, kernel_init: Initializer, name: str) -> Dense:
            return Dense(
                features,
                dtype=self.dtype,
                kernel_init=kernel_init,
                bias_init=init.mlp_bias,
                name=name,
            )

        y = dense(self.hidden, init.up, "up")(x)
        if self.activation == SWIGLU:
            y *= jax.nn.silu(dense(self.hidden, init.up, "gate")(x))
        else:
            y = ACTIVATIONS[self.activation](y)
        if self.inner_norm is not None:
            y = layer_norm(self.inner_norm, self.dtype, "norm")(y)
        return dense(x.shape[-1], init.down, "down")(y)


class Attention(nn.Module):
    """Multi-head attention of `queries` over `x`; softmax in float32.

    Queries of batch 1 are shared by all examples. With `positions`, a query sees only the tokens up
    to the position of its example. `rotations`: RoPE of queries and of keys.

    key_bias: False for keys without a bias (EVA-02). It matters for rotated keys only: otherwise
      the bias adds a constant to all scores of a query, which the softmax cancels.
    inner_norm: epsilon of a layer norm before the output matrix (sub-LN); None for none.
    implementation: xla | cudnn (models/attention.py), used if queries come from every token, all
      of which are real.
    """

    heads: int
    initial: Initialisers
    dtype: Any = jnp.float32
    key_bias: bool = True
    inner_norm: float | None = None
    implementation: str = "xla"

    @nn.compact
    def __call__(
        self,
        queries: Float[Array, "_ queries embed"],
        x: Float[Array, "batch length _"],
        *,
        is_causal: bool = False,
        positions: Int[Array, " batch"] | None = None,
        rotations: tuple[rope.Rotation, rope.Rotation] | None = None,
    ) -> Float[Array, "batch queries embed"]:
        # the width of the queries: in cross attention, `x` may have another one
        batch, length, width = *x.shape[:2], queries.shape[-1]
        head = width // self.heads

        def dense(features: int, init: Initializer, name: str, **options: Any) -> Dense:
            return Dense(features, dtype=self.dtype, kernel_init=init, name=name, **options)

        query = dense(width, self.initial.query, "query", heads=self.heads)(queries)
        query = jnp.broadcast_to(query, (batch, *query.shape[1:]))
        options = {"use_bias": self.key_bias, "heads": self.heads, "parts": 2}
        key, value = dense(2 * width, self.initial.key_value, "key_value", **options)(x)
        if not self.key_bias:
            bias = self.param("value_bias", nn.initializers.zeros, (width,))
            value += bias.astype(self.dtype).reshape(1, 1, self.heads, head)
        if rotations is not None:
            query, key = map(rope.rotate, (query, key), rotations)
        if positions is None and query.shape[1] == length:
            mixed = attention.full_attention(query, key, value, is_causal, self.implementation)
        elif positions is not None and not is_causal:
            mixed = attention.padded_attention(query, key, value, positions + 1)
        else:  # one query per example: too few scores for flash attention to pay off
            mixed = jax.nn.dot_product_attention(
                query,
                key,
                value,
                is_causal=is_causal,
                key_value_seq_lengths=None if positions is None else positions + 1,
                implementation="xla",
            )
        has_heads = self.inner_norm is None
        if not has_heads:
            mixed = mixed.reshape(batch, -1, width)
            mixed = layer_norm(self.inner_norm, self.dtype, "norm")(mixed)
        return dense(width, self.initial.out, "out", has_heads=has_heads)(mixed)


class Block(nn.Module):
    """A pre-norm transformer block: x + attention(norm(x)), then x + mlp(norm(x)).

    sub_norm: another layer norm before the last matrix of the attention and of the MLP (sub-LN;
      Wang et al. 2022, arXiv:2210.06423).
    post_norm: x + norm(attention(x)), then x + norm(mlp(x)) instead (EVA02-E; Swin V2's residual
      post-norm, Liu et al. 2022, arXiv:2111.09883).
    layer_scale: both summands are multiplied by a learned number per channel (DINOv2; Touvron et
      al. 2021, arXiv:2103.17239).
    """

    heads: int
    mlp_width: int
    is_causal: bool
    activation: str
    epsilon: float
    initial: Initialisers
    dtype: Any = jnp.float32
    key_bias: bool = True
    sub_norm: bool = False
    post_norm: bool = False
    implementation: str = "xla"
    layer_scale: bool = False

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "batch length embed"],
        positions: Int[Array, " batch"] | None = None,
        rotation: rope.Rotation | None = None,
        ends: Int[Array, " batch"] | None = None,
    ) -> Float[Array, "batch queries embed"]:
        """Features of all tokens, or with `positions` of one token per example, (batch, 1, embed),
        without the work for the others. `rotation`: RoPE of queries and keys. `ends`: position of
        the last real token of each example; no token attends to the padding after it."""
        norm = self.epsilon if self.sub_norm else None
        attention = Attention(
            self.heads,
            self.initial,
            self.dtype,
            self.key_bias,
            norm,
            self.implementation,
            name="attention",
        )
        mlp = MLP(self.mlp_width, self.activation, self.initial, self.dtype, norm, name="mlp")
        attention_norm = layer_norm(self.epsilon, self.dtype, "attention_norm")
        mlp_norm = layer_norm(self.epsilon, self.dtype, "mlp_norm")
        before, after = (_same, attention_norm) if self.post_norm else (attention_norm, _same)
        y = before(x)
        if positions is None:
            rotations = None if rotation is None else (rotation, rotation)
            z = attention(y, y, is_causal=self.is_causal, positions=ends, rotations=rotations)
        else:
            rotations = None if rotation is None else (rope.at(rotation, positions), rotation)
            # as key lengths: a causal mask would treat the single query as the first token
            last = positions if self.is_causal else ends
            z = attention(at(y, positions), y, positions=last, rotations=rotations)
            x = at(x, positions)
        x = x + self._scaled("attention_scale", after(z))
        x = x + self._scaled("mlp_scale", mlp_norm(mlp(x)) if self.post_norm else mlp(mlp_norm(x)))
        return types.shard_batch(x)

    def _scaled(self, name: str, x: Float[Array, "batch length embed"]) -> jax.Array:
        if not self.layer_scale:
            return x
        scale = self.param(name, nn.initializers.ones, x.shape[-1:])
        return x * scale.astype(x.dtype).reshape(1, 1, -1)


def _same(x: jax.Array) -> jax.Array:
    return x


def at(
    x: Float[Array, "batch length embed"], positions: Int[Array, " batch"]
) -> Float[Array, "batch 1 embed"]:
    """The features at one position of each example."""
    return jnp.take_along_axis(x, positions[:, None, None], axis=1)
