"""Implementation of attention: by XLA, or by the flash attention of NVIDIA's cuDNN."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from vlc_jax.errors import UsageError, known

REQUESTS = ("auto", "xla", "cudnn")
# Tokens masked out: none, all later ones, or the padding behind each example's text.
MASKS = ("none", "causal", "lengths")
# absolute and relative; bfloat16 alone leaves up to .015 on values up to 4
TOLERANCE = 0.03
QUERY_BLOCK = 512  # queries of `padded_attention` at a time


class Choice(NamedTuple):
    """implementation: xla | cudnn, as jax.nn.dot_product_attention has it."""

    implementation: str
    reason: str


def choose(
    request: str,
    *,
    platform: str,
    dtype: str,
    head_dim: int,
    mask: str,
    probe: Callable[[], str | None],
) -> Choice:
    """The attention implementation of a tower; "auto" is cuDNN wherever it works, else XLA.

    request: one of REQUESTS.   probe: returns why cuDNN fails on this machine, None if it works;
    called only if all known conditions are met. Raises UsageError if "cudnn" does not work.
    """
    known("config.model.attention", request, REQUESTS)
    known("mask of attention", mask, MASKS)
    if request == "xla":
        return Choice("xla", "set by config.model.attention")
    refusal = why_not_cudnn(platform, dtype, head_dim, mask) or probe()
    if refusal is None:
        return Choice("cudnn", f"{dtype}, {head_dim} channels a head, mask {mask}")
    if request == "cudnn":
        raise UsageError(f"config.model.attention=cudnn: {refusal}; use auto or xla")
    return Choice("xla", refusal)


def why_not_cudnn(platform: str, dtype: str, head_dim: int, mask: str) -> str | None:
    """The first known condition of cuDNN's attention that is not met; None if all are."""
    if platform != "gpu":
        return f"cuDNN is of NVIDIA GPUs, this is {platform}"
    if dtype not in ("bfloat16", "float16"):
        return f"cuDNN takes bfloat16 and float16, not {dtype}"
    # newer GPUs support more; no published tower has more
    if head_dim % 8 or head_dim > 128:
        return f"cuDNN takes multiples of 8 up to 128 channels a head, not {head_dim}"
    if mask == "lengths":
        return "masks of padding are left to XLA"
    return None


def full_attention(
    query: Float[Array, "batch length heads head"],
    key: Float[Array, "batch length heads head"],
    value: Float[Array, "batch length heads head"],
    is_causal: bool,
    implementation: str,
) -> Float[Array, "batch length heads head"]:
    """softmax(query key^T / sqrt(head)) value, with queries from every token.

    For cuDNN an odd length is padded by one masked token: JAX refuses the gradient for odd lengths
    (up to 0.12.0.1 it mistakes the absent bias for a trained one).
    """
    length = query.shape[1]
    if implementation == "xla" and query.dtype.itemsize == 2:
        return short_attention(query, key, value, is_causal)
    if implementation == "xla" or length % 2 == 0:
        return jax.nn.dot_product_attention(
            query, key, value, is_causal=is_causal, implementation=implementation
        )
    query, key, value = (
        jnp.pad(array, ((0, 0), (0, 1), (0, 0), (0, 0))) for array in (query, key, value)
    )
    # a causal mask already hides the padding token
    lengths = None if is_causal else jnp.full(query.shape[0], length, jnp.int32)
    mixed = jax.nn.dot_product_attention(
        query,
        key,
        value,
        is_causal=is_causal,
        key_value_seq_lengths=lengths,
        implementation=implementation,
    )
    return mixed[:, :length]


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def short_attention(
    query: Float[Array, "batch length heads head"],
    key: Float[Array, "batch length heads head"],
    value: Float[Array, "batch length heads head"],
    is_causal: bool,
) -> Float[Array, "batch length heads head"]:
    """`full_attention` of 16-bit arrays, all logits at once; exp(logits - max) is kept in 16 bits.

    Logits, sums and differences are float32; products round their inputs to 16 bits, as all do.
    JAX's own attention keeps float32 logits, a TPU's largest arrays, and reads them six times.
    """
    return _forward(query, key, value, is_causal)[0]


def _forward(query: Array, key: Array, value: Array, is_causal: bool) -> tuple[Array, Any]:
    logits = jnp.einsum("bqhd,bkhd->bhqk", query, key, preferred_element_type=jnp.float32)
    logits *= query.shape[-1] ** -0.5
    if is_causal:
        visible = jnp.tri(query.shape[1], dtype=bool)[None, None]
        logits = jnp.where(visible, logits, -jnp.inf)
    exps = jnp.exp(logits - logits.max(axis=-1, keepdims=True)).astype(value.dtype)
    # of the rounded ones, so that the weights add up to 1
    total = exps.astype(jnp.float32).sum(axis=-1, keepdims=True)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", exps, value, preferred_element_type=jnp.float32)
    mixed /= jnp.swapaxes(total, 1, 2)
    return mixed.astype(value.dtype), (query, key, value, exps, total, mixed)


def _backward(is_causal: bool, kept: Any, cotangent: Array) -> tuple[Array, Array, Array]:
    query, key, value, exps, total, mixed = kept
    scaled = (cotangent / jnp.swapaxes(total, 1, 2)).astype(cotangent.dtype)
    # the sum of weights times slopes; of a 16-bit `mixed` the gradients err by a third more
    mean = jnp.swapaxes((cotangent * mixed).sum(axis=-1, keepdims=True), 1, 2)
    slopes = jnp.einsum("bqhd,bkhd->bhqk", cotangent, value, preferred_element_type=jnp.float32)
    slopes = exps * (slopes - mean) * (query.shape[-1] ** -0.5 / total)
    slopes = slopes.astype(query.dtype)
    return (
        jnp.einsum("bhqk,bkhd->bqhd", slopes, key),
        jnp.einsum("bhqk,bqhd->bkhd", slopes, query),
        jnp.einsum("bhqk,bqhd->bkhd", exps, scaled),
    )


short_attention.defvjp(_forward, _backward)


def padded_attention(
    query: Float[Array, "batch queries heads head"],
    key: Float[Array, "batch length heads head"],
    value: Float[Array, "batch length heads head"],
    lengths: Int[Array, " batch"],
) -> Float[Array, "batch queries heads head"]:
    """softmax(query key^T / sqrt(head)) value over the first `lengths` tokens of each example.

    Many queries (large images) are computed QUERY_BLOCK at a time: scores of 7,200 tokens with each
    other and 16 heads take 3.3 GB for each image.
    """

    def mix(query: jax.Array) -> jax.Array:
        how = {"key_value_seq_lengths": lengths, "implementation": "xla"}
        return jax.nn.dot_product_attention(query, key, value, **how)

    count = query.shape[1]
    if count <= 2 * QUERY_BLOCK:
        return mix(query)
    rest = -count % QUERY_BLOCK
    blocks = jnp.pad(query, ((0, 0), (0, rest), (0, 0), (0, 0)))
    blocks = blocks.reshape(len(query), -1, QUERY_BLOCK, *query.shape[2:])
    mixed = jax.lax.map(jax.checkpoint(mix), jnp.moveaxis(blocks, 1, 0))
    return jnp.moveaxis(mixed, 0, 1).reshape(len(query), count + rest, *query.shape[2:])[:, :count]


def failure(
    implementation: str, *, dtype: str, head_dim: int, length: int, is_causal: bool
) -> str | None:
    """The reason why `implementation` fails on this machine; None if it works.

    It works if outputs and gradients on two random examples of `length` tokens equal XLA's within
    TOLERANCE.
    """
    rng = np.random.default_rng(0)
    shape = (2, length, 2, head_dim)
    *arrays, weights = (jnp.asarray(rng.normal(size=shape), dtype) for _ in range(4))

    def run(implementation: str) -> list[np.ndarray]:
        def total(query: jax.Array, key: jax.Array, value: jax.Array) -> Any:
            mixed = full_attention(query, key, value, is_causal, implementation)
            return (mixed.astype(jnp.float32) * weights.astype(jnp.float32)).sum(), mixed

        gradients, mixed = jax.jit(jax.grad(total, argnums=(0, 1, 2), has_aux=True))(*arrays)
        return [np.asarray(array, np.float32) for array in (mixed, *gradients)]

    try:
        outputs = run(implementation)
    except (RuntimeError, ValueError) as error:  # from JAX's checks or the compiler
        return f"{implementation} fails: {str(error).strip().splitlines()[0]}"
    for array, expected in zip(outputs, run("xla"), strict=True):
        if not np.allclose(array, expected, rtol=TOLERANCE, atol=TOLERANCE):
            return f"{implementation} gives results that differ from XLA's"
    return None
