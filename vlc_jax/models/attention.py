"""Implementation of attention: by XLA, or by the flash attention of NVIDIA's cuDNN."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from vlc_jax.errors import UsageError, known

WANTED = ("auto", "xla", "cudnn")
# What hides tokens: nothing, all later tokens, or the end of each example's text.
MASKS = ("none", "causal", "lengths")
TOLERANCE = 0.03  # absolute and relative; bfloat16 alone leaves up to .015 on values up to 4


class Choice(NamedTuple):
    """implementation: xla | cudnn, as jax.nn.dot_product_attention has it."""

    implementation: str
    reason: str


def choose(
    wanted: str,
    *,
    platform: str,
    dtype: str,
    head_dim: int,
    mask: str,
    probe: Callable[[], str | None],
) -> Choice:
    """The implementation for a tower: of "auto", cuDNN where nothing is against it.

    probe: why cuDNN does not work here, None if it does; called where all else speaks for cuDNN.
    Raises UsageError for "cudnn" where something is against it.
    """
    known("config.model.attention", wanted, WANTED)
    known("mask of attention", mask, MASKS)
    if wanted == "xla":
        return Choice("xla", "asked for")
    refusal = why_not_cudnn(platform, dtype, head_dim, mask) or probe()
    if refusal is None:
        return Choice("cudnn", f"{dtype}, {head_dim} channels a head, mask {mask}")
    if wanted == "cudnn":
        raise UsageError(f"config.model.attention=cudnn: {refusal}; say auto or xla")
    return Choice("xla", refusal)


def why_not_cudnn(platform: str, dtype: str, head_dim: int, mask: str) -> str | None:
    """The first known condition of cuDNN's attention that is not met; None if all are."""
    if platform != "gpu":
        return f"cuDNN is of NVIDIA GPUs, this is {platform}"
    if dtype not in ("bfloat16", "float16"):
        return f"cuDNN takes bfloat16 and float16, not {dtype}"
    if head_dim % 8 or head_dim > 128:  # newer GPUs take more, which no published tower has
        return f"cuDNN takes multiples of 8 up to 128 channels a head, not {head_dim}"
    if mask == "lengths":
        return "masks of padding are left to XLA"
    return None


def of_all_tokens(
    query: Float[Array, "batch length heads head"],
    key: Float[Array, "batch length heads head"],
    value: Float[Array, "batch length heads head"],
    is_causal: bool,
    implementation: str,
) -> Float[Array, "batch length heads head"]:
    """softmax(query key^T / sqrt(head)) value, where every token asks.

    For cuDNN an odd number of tokens gets one more, which no other token sees: JAX refuses the
    gradient of an odd number (up to 0.12.0.1 it takes the absent bias for one that is trained).
    """
    length = query.shape[1]
    if implementation == "xla" or length % 2 == 0:
        return jax.nn.dot_product_attention(
            query, key, value, is_causal=is_causal, implementation=implementation
        )
    query, key, value = (
        jnp.pad(array, ((0, 0), (0, 1), (0, 0), (0, 0))) for array in (query, key, value)
    )
    # a causal mask hides the last token already
    seen = None if is_causal else jnp.full(query.shape[0], length, jnp.int32)
    mixed = jax.nn.dot_product_attention(
        query,
        key,
        value,
        is_causal=is_causal,
        key_value_seq_lengths=seen,
        implementation=implementation,
    )
    return mixed[:, :length]


def failure(
    implementation: str, *, dtype: str, head_dim: int, length: int, is_causal: bool
) -> str | None:
    """The reason why `implementation` does not work here; None if it does.

    It works if the output and the gradients of two random examples of `length` tokens are those of
    XLA within TOLERANCE.
    """
    rng = np.random.default_rng(0)
    shape = (2, length, 2, head_dim)
    *arrays, weights = (jnp.asarray(rng.normal(size=shape), dtype) for _ in range(4))

    def run(implementation: str) -> list[np.ndarray]:
        def total(query: jax.Array, key: jax.Array, value: jax.Array) -> Any:
            mixed = of_all_tokens(query, key, value, is_causal, implementation)
            return (mixed.astype(jnp.float32) * weights.astype(jnp.float32)).sum(), mixed

        gradients, mixed = jax.jit(jax.grad(total, argnums=(0, 1, 2), has_aux=True))(*arrays)
        return [np.asarray(array, np.float32) for array in (mixed, *gradients)]

    try:
        found = run(implementation)
    except (RuntimeError, ValueError) as error:  # of JAX's checks, or of the compiler
        return f"{implementation} fails: {str(error).strip().splitlines()[0]}"
    for array, expected in zip(found, run("xla"), strict=True):
        if not np.allclose(array, expected, rtol=TOLERANCE, atol=TOLERANCE):
            return f"{implementation} gives other numbers than XLA"
    return None
