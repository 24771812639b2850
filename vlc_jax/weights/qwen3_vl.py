"""Qwen3-VL and Qwen3-VL-Embedding in Hugging Face's folders: renaming rules, config.json -> sizes.

The output matrix of a decoder that does not share its embeddings is not read: the embedder has no
logits.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from vlc_jax.errors import WeightsError
from vlc_jax.weights import config_keys
from vlc_jax.weights.openai import dense, norm, packed
from vlc_jax.weights.rename import Codec, Rule, rule

KIND = "qwen3_vl"
TEXT = "qwen3_vl_text"  # model_type of its decoder
# Our fields of the image tower -> theirs, and the defaults of transformers' class.
_IMAGE = {
    "width": "hidden_size",
    "depth": "depth",
    "heads": "num_heads",
    "mlp_width": "intermediate_size",
    "out_width": "out_hidden_size",
    "deepstack": "deepstack_visual_indexes",
}
_DEFAULTS = {
    "hidden_size": 1152,
    "depth": 27,
    "num_heads": 16,
    "intermediate_size": 4304,
    "out_hidden_size": 3584,
    "deepstack_visual_indexes": (8, 16, 24),
    "num_position_embeddings": 2304,
}
_FIXED = {
    "hidden_act": ("gelu_pytorch_tanh",),
    "in_channels": (3,),
    "patch_size": (16,),
    "spatial_merge_size": (2,),
    "temporal_patch_size": (2,),
}
_READ = config_keys.names("image_token_id text_config tie_word_embeddings vision_config")
_HARMLESS = config_keys.TRANSFORMERS | config_keys.names(
    "hidden_size video_token_id vision_end_token_id vision_start_token_id vocab_size"
)


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


def read(config: Mapping[str, Any], lm: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of a config.json beside those of its language model (`lm`), see `llava_sizes.read`.

    Raises WeightsError for an image tower that models.qwen3_vl does not support.
    """
    config_keys.check(config, "config.json", read=_READ, fixed={}, harmless=_HARMLESS)
    vision = config.get("vision_config") or {}
    if not isinstance(vision, Mapping):
        raise WeightsError(f"vision_config holds the fields of an image tower; got {vision!r}")
    where = "config.json, vision_config"
    read = (*_IMAGE.values(), "num_position_embeddings")
    harmless = (*config_keys.TRANSFORMERS, "rope_parameters")
    config_keys.check(vision, where, read=read, fixed=_FIXED, harmless=harmless)
    rope = vision.get("rope_parameters") or {}
    config_keys.check(
        rope, where, read=(), fixed={"rope_theta": (1e4,), "rope_type": ("axial", "default")}
    )
    filled = {**_DEFAULTS, **vision}
    image = {ours: filled[theirs] for ours, theirs in _IMAGE.items()}
    positions = filled["num_position_embeddings"]
    side, deepstack = round(positions**0.5), tuple(image["deepstack"])
    if side**2 != positions:
        raise WeightsError(f"{where}: num_position_embeddings is a square; got {positions}")
    if list(deepstack) != sorted({*deepstack} & {*range(image["depth"])}):
        raise WeightsError(
            f"{where}: deepstack_visual_indexes are ascending blocks of {image['depth']}; got "
            f"{deepstack}"
        )
    if image["out_width"] != lm["width"] or len(deepstack) > lm["depth"]:
        raise WeightsError(
            f"{where}: out_hidden_size {image['out_width']} is the width of the decoder, "
            f"{lm['width']}, and its {lm['depth']} blocks are as many as deepstack_visual_indexes "
            "or more"
        )
    return {
        "kind": KIND,
        "image": {**image, "deepstack": deepstack, "position_grid": side},
        "layer": -1,
        "image_id": config.get("image_token_id", 151_655),
        "select": "patch",
    }
