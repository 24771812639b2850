"""Renaming rules of Qwen3-VL and Qwen3-VL-Embedding in Hugging Face's folders.

The output matrix of a decoder that does not share its embeddings is not read: the embedder has no
logits.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from vlc_jax.errors import WeightsError
from vlc_jax.weights.openai import dense, norm, packed
from vlc_jax.weights.rename import Codec, Rule, rule


def _still(weight: np.ndarray) -> tuple[np.ndarray, ...]:
    """The patch embedding of a still image, which is two equal frames: the sum over frames."""
    # float32: the sum of bfloat16 numbers would be rounded
    both = weight.astype(np.float32).sum(axis=2)
    return (both.transpose(2, 3, 1, 0).reshape(-1, len(weight)),)


def _no_video(kernel: np.ndarray) -> tuple[np.ndarray, ...]:
    raise WeightsError("Qwen3-VL is read, and not written: its two frames are summed")


def rules(sizes: Mapping[str, Any]) -> list[Rule]:
    """Rules of the image tower, by the names common to all layouts (weights.llava)."""
    theirs, ours = "visual.blocks.{i}", "image/block_{i}"
    mergers = [("visual.merger", "image/merger")]
    mergers += [
        (f"visual.deepstack_merger_list.{i}", f"image/deep_merger_{i}")
        for i in range(len(sizes["image"]["deepstack"]))
    ]
    return [
        rule(
            "visual.patch_embed.proj.weight",
            "image/patch_embedding/kernel",
            Codec(_still, _no_video),
        ),
        rule("visual.patch_embed.proj.bias", "image/patch_embedding/bias"),
        rule("visual.pos_embed.weight", "image/position_embedding"),
        *norm(f"{theirs}.norm1", f"{ours}/attention_norm"),
        *packed(f"{theirs}.attn.qkv.", f"{ours}/attention"),
        *dense(f"{theirs}.attn.proj", f"{ours}/attention/out"),
        *norm(f"{theirs}.norm2", f"{ours}/mlp_norm"),
        *dense(f"{theirs}.mlp.linear_fc1", f"{ours}/mlp/up"),
        *dense(f"{theirs}.mlp.linear_fc2", f"{ours}/mlp/down"),
        *(
            each
            for name, path in mergers
            for each in (
                *norm(f"{name}.norm", f"{path}/norm"),
                *dense(f"{name}.linear_fc1", f"{path}/up"),
                *dense(f"{name}.linear_fc2", f"{path}/down"),
            )
        ),
    ]
