"""Renaming rules of OpenAI's CLIP, and of open_clip's ViTs and ResNets of the same names."""

from collections.abc import Mapping, Sequence

import numpy as np

from vlc_jax.weights import rename
from vlc_jax.weights.rename import Rule, rule


def norm(theirs: str, ours: str) -> list[Rule]:
    """Rules of a layer norm."""
    return [rule(f"{theirs}.weight", f"{ours}/scale"), rule(f"{theirs}.bias", f"{ours}/bias")]


def dense(theirs: str, ours: str) -> list[Rule]:
    """Rules of a torch Linear with bias."""
    return [
        rule(f"{theirs}.weight", f"{ours}/kernel", rename.TRANSPOSED),
        rule(f"{theirs}.bias", f"{ours}/bias"),
    ]


def packed(prefix: str, ours: str) -> list[Rule]:
    """Rules of the query, key and value of an attention in one array; prefix: before "weight"."""
    kernels, biases = (rename.query_key_value(ours, kind) for kind in ("kernel", "bias"))
    return [
        rule(f"{prefix}weight", kernels, rename.PACKED_WEIGHT),
        rule(f"{prefix}bias", biases, rename.PACKED_BIAS),
    ]


def separate(theirs: Sequence[str], ours: str) -> list[Rule]:
    """Rules of the query, key and value of an attention, three torch Linears with bias."""
    kernels, biases = (rename.query_key_value(ours, kind) for kind in ("kernel", "bias"))
    return [
        rule([f"{name}.weight" for name in theirs], kernels, rename.SEPARATE_WEIGHT),
        rule([f"{name}.bias" for name in theirs], biases, rename.SEPARATE_BIAS),
    ]


def attention(theirs: str, ours: str) -> list[Rule]:
    """Rules of a torch.nn.MultiheadAttention."""
    return [*packed(f"{theirs}.in_proj_", ours), *dense(f"{theirs}.out_proj", f"{ours}/out")]


def blocks(theirs: str, ours: str) -> list[Rule]:
    """Rules of a stack of transformer blocks; "{i}" is the index of the block."""
    return [
        *norm(f"{theirs}.ln_1", f"{ours}/attention_norm"),
        *attention(f"{theirs}.attn", f"{ours}/attention"),
        *norm(f"{theirs}.ln_2", f"{ours}/mlp_norm"),
        *dense(f"{theirs}.mlp.c_fc", f"{ours}/mlp/up"),
        *dense(f"{theirs}.mlp.c_proj", f"{ours}/mlp/down"),
    ]


def text_tower(prefix: str = "") -> list[Rule]:
    """Rules of the text transformer without its projection."""
    return [
        rule(f"{prefix}token_embedding.weight", "text/token_embedding/embedding"),
        rule(f"{prefix}positional_embedding", "text/position_embedding"),
        *blocks(f"{prefix}transformer.resblocks.{{i}}", "text/block_{i}"),
        *norm(f"{prefix}ln_final", "text/norm"),
    ]


def rules(text_prefix: str = "") -> list[Rule]:
    """Rules of CLIP with a ViT; text_prefix: "text." in open_clip's custom-text models."""
    return [
        rule("visual.class_embedding", "image/class_embedding"),
        rule("visual.positional_embedding", "image/position_embedding"),
        rule("visual.conv1.weight", "image/patch_embedding/kernel", rename.PATCHES),
        *norm("visual.ln_pre", "image/pre_norm"),
        *blocks("visual.transformer.resblocks.{i}", "image/block_{i}"),
        *norm("visual.ln_post", "image/norm"),
        # Both projections are bare parameters (inputs, outputs), not Linear layers: no transpose.
        rule("visual.proj", "image/projection/kernel"),
        *_text_and_scale(text_prefix),
    ]


_PROJECTION, _ZERO = "visual.proj", "visual.proj.bias"


def pe_rules() -> list[Rule]:
    """Rules of PE-Core as its authors publish it: OpenAI's names, and attention pooling."""
    pool, ours = "visual.attn_pool", "image/pooling"
    return [
        *rules(),
        rule(_ZERO, "image/projection/bias"),
        rule(f"{pool}.probe", f"{ours}/probe", rename.LEADING_ONE),
        *attention(f"{pool}.attn", f"{ours}/attention"),
        *norm(f"{pool}.layernorm", f"{ours}/norm"),
        *dense(f"{pool}.mlp.c_fc", f"{ours}/mlp/up"),
        *dense(f"{pool}.mlp.c_proj", f"{ours}/mlp/down"),
    ]


def with_projection_bias(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays of PE-Core with the bias 0 that timm's projection has and its authors' has not."""
    width = arrays[_PROJECTION].shape[-1:] if _PROJECTION in arrays else ()
    return {**arrays, _ZERO: np.zeros(width, np.float32)}


def _text_and_scale(prefix: str = "") -> list[Rule]:
    return [
        *text_tower(prefix),
        rule(f"{prefix}text_projection", "text/projection/kernel"),
        rule("logit_scale", "logit_scale", rename.SCALAR),
        rule("logit_bias", "logit_bias", rename.SCALAR),  # of models trained with the sigmoid loss
    ]


def resnet_rules() -> list[Rule]:
    """Rules of CLIP with a ResNet."""
    pool = "visual.attnpool"
    rules = [
        rule(f"{pool}.positional_embedding", "image/position_embedding"),
        *separate([f"{pool}.{part}_proj" for part in "qkv"], "image/pooling"),
        *dense(f"{pool}.c_proj", "image/projection"),
        *_text_and_scale(),
    ]
    for index in range(3):
        rules += [
            rule(
                f"visual.conv{index + 1}.weight", f"image/stem_{index}/kernel", rename.CONVOLUTION
            ),
            *_batch_norm(f"visual.bn{index + 1}", f"image/stem_norm_{index}"),
        ]
    for stage in range(1, 5):
        theirs, ours = f"visual.layer{stage}.{{i}}", f"image/stage_{stage}_block_{{i}}"
        for number, codec in (
            (1, rename.POINTWISE),
            (2, rename.CONVOLUTION),
            (3, rename.POINTWISE),
        ):
            rules += [
                rule(f"{theirs}.conv{number}.weight", f"{ours}/conv_{number}/kernel", codec),
                *_batch_norm(f"{theirs}.bn{number}", f"{ours}/norm_{number}"),
            ]
        rules += [
            rule(f"{theirs}.downsample.0.weight", f"{ours}/shortcut/kernel", rename.POINTWISE),
            *_batch_norm(f"{theirs}.downsample.1", f"{ours}/shortcut_norm"),
        ]
    return rules


def _batch_norm(theirs: str, ours: str) -> list[Rule]:
    return [
        *norm(theirs, ours),
        rule(f"{theirs}.running_mean", f"{ours}/mean"),
        rule(f"{theirs}.running_var", f"{ours}/variance"),
    ]
