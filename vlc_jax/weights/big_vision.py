"""Renaming rules of big_vision's two-tower SigLIP checkpoints (`.npz`, names joined by "/"), and of
OpenVision's, whose training code descends from big_vision.

Its models with `scan=True` stack the blocks of a tower, layers on axis 0 of each array: `unstacked`
and `stacked` convert from and to these names.
"""

import re
from collections.abc import Callable, Mapping

import numpy as np

from vlc_jax.errors import WeightsError
from vlc_jax.weights import rename
from vlc_jax.weights.rename import Codec, Rule, rule

# A flax convolution is (row, column, channel, width), our matrix without a transpose.
_PATCHES = Codec(lambda x: (x.reshape(-1, x.shape[-1]),), lambda x: (rename.unflattened(x),))


def rules(
    heads: Mapping[str, int], patches: Codec = _PATCHES, positions: Codec = rename.LEADING_ONE
) -> list[Rule]:
    """Rules of SigLIP.

    heads: attention heads of each tower, {"image": ..., "text": ...}.   patches, positions: of the
    image tower, others in NaFlex.
    """
    image, text = "params/img", "params/txt"
    pool = f"{image}/MAPHead_0"
    return [
        *tower_rules(image, heads["image"], patches, positions),
        # MAP head: attention pooling with a learned query (the probe), then a residual MLP.
        rule(f"{pool}/probe", "image/pooling/probe", rename.LEADING_ONE),
        *_attention(pool, "image/pooling/attention", heads["image"]),
        *_norm(f"{pool}/LayerNorm_0", "image/pooling/norm"),
        *_mlp(f"{pool}/MlpBlock_0", "image/pooling/mlp"),
        rule(f"{text}/Embed_0/embedding", "text/token_embedding/embedding"),
        rule(f"{text}/pos_embedding", "text/position_embedding", rename.LEADING_ONE),
        *_blocks(f"{text}/Encoder_0", "text/block_{i}", heads["text"]),
        *_norm(f"{text}/Encoder_0/encoder_norm", "text/norm"),
        *dense(f"{text}/head", "text/projection"),
        # A log, as OpenAI's, but of shape (1,).
        rule("params/t", "logit_scale", rename.SCALAR_OF_ONE),
        rule("params/b", "logit_bias", rename.SCALAR_OF_ONE),
    ]


def openvision_rules(sincos: Callable[[], np.ndarray] | None) -> list[Rule]:
    """Rules of OpenVision (Li et al. 2025, arXiv:2505.04601).

    sincos: makes the image tower's table of positions without the class token. The authors' model
    computes it and its checkpoints lack it; the class token has the position 0.
    """
    image, text = "params/img", "params/txt"

    def with_positions(cls: np.ndarray) -> tuple[np.ndarray, ...]:
        table = sincos() if sincos else np.zeros((0, cls.shape[-1]), np.float32)
        return cls.squeeze((0, 1)), np.concatenate([np.zeros_like(table[:1]), table])

    cls = Codec(with_positions, lambda cls, _: (cls[None, None],))
    return [
        rule(f"{image}/cls", ["image/class_embedding", "image/position_embedding"], cls),
        rule(f"{image}/embedding/kernel", "image/patch_embedding/kernel", _PATCHES),
        *_blocks(f"{image}/Transformer", "image/block_{i}", None),
        *_norm(f"{image}/encoder_norm", "image/norm"),
        rule(f"{image}/head/kernel", "image/projection/kernel"),
        rule(f"{text}/Embed_0/embedding", "text/token_embedding/embedding"),
        rule(f"{text}/pos_embedding", "text/position_embedding", rename.LEADING_ONE),
        *_blocks(f"{text}/Transformer", "text/block_{i}", None),
        *_norm(f"{text}/encoder_norm", "text/norm"),
        rule(f"{text}/head/kernel", "text/projection/kernel"),
        rule("params/t", "logit_scale", rename.SCALAR_OF_ONE),
        rule("params/b", "logit_bias", rename.SCALAR_OF_ONE),
    ]


def tower_rules(
    image: str, heads: int, patches: Codec = _PATCHES, positions: Codec = rename.LEADING_ONE
) -> list[Rule]:
    """Rules of the image tower `image` without its pooling."""
    return [
        rule(f"{image}/embedding/kernel", "image/patch_embedding/kernel", patches),
        rule(f"{image}/embedding/bias", "image/patch_embedding/bias"),
        rule(f"{image}/pos_embedding", "image/position_embedding", positions),
        *_blocks(f"{image}/Transformer", "image/block_{i}", heads),
        *_norm(f"{image}/Transformer/encoder_norm", "image/norm"),
    ]


MAX_LAYERS = 1_000  # per tower; the shape of an empty array may claim any number


def check_stack(name: str, shape: tuple[int, ...]) -> None:
    """Raises WeightsError for an array without a reasonable axis of layers."""
    if not shape or shape[0] > MAX_LAYERS:
        raise WeightsError(
            f"{name} of shape {shape} is no stack of layers (at most {MAX_LAYERS:,})"
        )


def unstacked(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Splits stacked blocks into one array per block. Raises WeightsError without a layer axis."""
    single = {}
    for name, array in arrays.items():
        if "/encoderblock/" not in name:
            single[name] = array
            continue
        check_stack(name, array.shape)
        for i, layer in enumerate(array):
            single[name.replace("/encoderblock/", f"/encoderblock_{i}/")] = layer
    return single


def stacked(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Stacks the arrays of single blocks, layers on axis 0; the inverse of `unstacked`."""
    others, blocks = {}, {}
    for name, array in arrays.items():
        match = re.fullmatch(r"(.*/encoderblock)_(\d+)(/.*)", name)
        if match is None:
            others[name] = array
        else:
            blocks.setdefault(match[1] + match[3], {})[int(match[2])] = array
    return others | {
        name: np.stack([layers[i] for i in range(len(layers))]) for name, layers in blocks.items()
    }


def _norm(theirs: str, ours: str) -> list[Rule]:
    return [rule(f"{theirs}/{part}", f"{ours}/{part}") for part in ("scale", "bias")]


def dense(theirs: str, ours: str) -> list[Rule]:
    """Rules of a flax Dense with bias."""
    return [rule(f"{theirs}/{part}", f"{ours}/{part}") for part in ("kernel", "bias")]


def _mlp(theirs: str, ours: str) -> list[Rule]:
    return [*dense(f"{theirs}/Dense_0", f"{ours}/up"), *dense(f"{theirs}/Dense_1", f"{ours}/down")]


def _attention(theirs: str, ours: str, heads: int | None) -> list[Rule]:
    """Rules of flax's MultiHeadDotProductAttention.

    Its kernels are (width, heads, head), its biases (heads, head), the output kernel is (heads,
    head, width); ours are matrices. heads: None for OpenVision, whose files have either form.
    """

    def split(x: np.ndarray) -> np.ndarray:
        return x if heads is None else x.reshape(*x.shape[:-1], heads, -1)

    attention = f"{theirs}/MultiHeadDotProductAttention_0"
    rules = []
    for kind, before in (("kernel", 1), ("bias", 0)):  # axes before those of the heads

        def merged(x: np.ndarray, before: int = before) -> np.ndarray:
            return x.reshape(*x.shape[:before], -1)

        query = Codec(lambda x, merged=merged: (merged(x),), lambda x: (split(x),))
        # One matrix, since ours multiplies keys and values at once; queries can have fewer tokens.
        key_value = Codec(
            lambda key, value, merged=merged: (
                np.concatenate([merged(key), merged(value)], axis=-1),
            ),
            lambda x: tuple(split(part) for part in np.split(x, 2, axis=-1)),
        )
        names = [f"{attention}/{part}/{kind}" for part in ("key", "value")]
        rules += [
            rule(f"{attention}/query/{kind}", f"{ours}/query/{kind}", query),
            rule(names, f"{ours}/key_value/{kind}", key_value),
        ]
    out = Codec(
        lambda x: (x.reshape(-1, x.shape[-1]),),
        lambda x: (x if heads is None else x.reshape(heads, -1, x.shape[-1]),),
    )
    return [
        *rules,
        rule(f"{attention}/out/kernel", f"{ours}/out/kernel", out),
        rule(f"{attention}/out/bias", f"{ours}/out/bias"),
    ]


def _blocks(theirs: str, ours: str, heads: int | None) -> list[Rule]:
    block = f"{theirs}/encoderblock_{{i}}"
    return [
        *_norm(f"{block}/LayerNorm_0", f"{ours}/attention_norm"),
        *_attention(block, f"{ours}/attention", heads),
        *_norm(f"{block}/LayerNorm_1", f"{ours}/mlp_norm"),
        *_mlp(f"{block}/MlpBlock_0", f"{ours}/mlp"),
    ]
