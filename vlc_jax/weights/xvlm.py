"""Renaming rules of X-VLM's checkpoints with a Swin Transformer, pretrained and finetuned.

Of a checkpoint the entry "model" is read, without the head of boxes and that of masked words, which
pretraining alone has; its text encoder has a level "bert" that finetuned ones lack.
"""

import re
from collections.abc import Mapping

import numpy as np

from vlc_jax.weights import bert, blip, rename
from vlc_jax.weights.openai import dense, norm, packed
from vlc_jax.weights.rename import Rule, rule

NAMES = ("model.vision_encoder.patch_embed.proj.weight", "model.itm_head.3.weight")
IGNORED = (
    r"model\..*\.relative_position_index",
    r"model\.(bbox_head|text_encoder\.cls)\..*",
    r"(optimizer|lr_scheduler|config)\..*",
)
STAGES = 4
PATCH = 4  # pixels, of the first stage; every Swin has them


def unpacked(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays with the names of finetuned checkpoints."""
    return {
        re.sub(r"^(model\.text_encoder\.)bert\.", r"\1", name): array
        for name, array in arrays.items()
    }


def rules() -> list[Rule]:
    """Rules of the model."""
    theirs = "model.vision_encoder"
    made = [
        rule(f"{theirs}.patch_embed.proj.weight", "image/patch_embedding/kernel", rename.PATCHES),
        rule(f"{theirs}.patch_embed.proj.bias", "image/patch_embedding/bias"),
        *norm(f"{theirs}.patch_embed.norm", "image/patch_norm"),
        *norm(f"{theirs}.norm", "image/norm"),
        *bert.rules("model.text_encoder.", "head/bert"),
        *dense("model.vision_proj", "head/image_projection"),
        *dense("model.text_proj", "head/text_projection"),
        *dense("model.itm_head.0", "head/match/up"),
        *norm("model.itm_head.1", "head/match/norm"),
        *dense("model.itm_head.3", "head/match/down"),
        blip.temperature("model."),
    ]
    for stage in range(STAGES):
        made += _stage(f"{theirs}.layers.{stage}", stage)
    return made


def _stage(theirs: str, stage: int) -> list[Rule]:
    """Rules of the blocks of a stage and of the merging behind them."""
    block, ours = f"{theirs}.blocks.{{i}}", f"image/stage_{stage + 1}_block_{{i}}"
    table = f"{block}.attn.relative_position_bias_table"
    merge, our_merge = f"{theirs}.downsample", f"image/merge_{stage + 1}"
    return [
        *norm(f"{block}.norm1", f"{ours}/attention_norm"),
        *packed(f"{block}.attn.qkv.", f"{ours}/attention"),
        rule(table, f"{ours}/attention/position_bias"),
        *dense(f"{block}.attn.proj", f"{ours}/attention/out"),
        *norm(f"{block}.norm2", f"{ours}/mlp_norm"),
        *dense(f"{block}.mlp.fc1", f"{ours}/mlp/up"),
        *dense(f"{block}.mlp.fc2", f"{ours}/mlp/down"),
        *norm(f"{merge}.norm", f"{our_merge}_norm"),
        rule(f"{merge}.reduction.weight", f"{our_merge}/kernel", rename.TRANSPOSED),
    ]
