"""Renaming rules of BLIP: the authors' checkpoints and transformers' BlipForImageTextRetrieval.

Of a checkpoint of the authors the entry "model" is read, without its momentum encoders, queues and
decoder of captions. transformers stores no temperature: its logit scale is then the authors'
initial one, 1 / 0.07. Scores do not contain it.
"""

from collections.abc import Mapping

import numpy as np

from vlc_jax.weights import bert, rename
from vlc_jax.weights.openai import dense, norm, packed
from vlc_jax.weights.rename import Codec, Rule, rule

AUTHORS = ("model.visual_encoder.patch_embed.proj.weight", "model.itm_head.weight")
HUGGING_FACE = ("vision_model.embeddings.class_embedding", "itm_head.weight")
IGNORED = (
    r"model\.\w+_m\..*",
    r"model\.text_decoder\..*",
    r"model\.(image_queue|text_queue|idx_queue|queue_ptr|ptr_queue)",
    r"(optimizer|config)\..*",
)
# Names of the arrays of the image tower.
_AUTHORS_TOWER = {
    "class": "model.visual_encoder.cls_token",
    "positions": "model.visual_encoder.pos_embed",
    "patches": "model.visual_encoder.patch_embed.proj",
    "block": "model.visual_encoder.blocks",
    "norm": "norm",
    "attention": "attn",
    "out": "attn.proj",
    "last": "model.visual_encoder.norm",
}
_HUGGING_FACE_TOWER = {
    "class": "vision_model.embeddings.class_embedding",
    "positions": "vision_model.embeddings.position_embedding",
    "patches": "vision_model.embeddings.patch_embedding",
    "block": "vision_model.encoder.layers",
    "norm": "layer_norm",
    "attention": "self_attn",
    "out": "self_attn.projection",
    "last": "vision_model.post_layernorm",
}
_TEMPERATURE = "temp"
_FIRST_TEMPERATURE = 0.07
# a temperature and the logarithm of a scale
_AS_SCALE = Codec(
    lambda x: (-np.log(np.float64(x)).reshape(()),),
    lambda x: (np.exp(-np.float64(x)).astype(np.float32).reshape(()),),
)


def rules(*, is_authors: bool) -> list[Rule]:
    """Rules of both forms, whose image towers have other names."""
    names, prefix = (_AUTHORS_TOWER, "model.") if is_authors else (_HUGGING_FACE_TOWER, "")
    return [
        *_image_tower(names),
        *bert.rules(f"{prefix}text_encoder.", "head/bert"),
        *dense(f"{prefix}vision_proj", "head/image_projection"),
        *dense(f"{prefix}text_proj", "head/text_projection"),
        *dense(f"{prefix}itm_head", "head/match"),
        temperature(prefix),
    ]


def temperature(prefix: str) -> Rule:
    """Rule of the authors' temperature, whose inverse is our logit scale."""
    return rule(f"{prefix}{_TEMPERATURE}", "logit_scale", _AS_SCALE)


def with_temperature(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays of transformers with the temperature that the authors began with."""
    return {**arrays, _TEMPERATURE: np.float32(_FIRST_TEMPERATURE)}


def without_temperature(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays without the temperature, for which transformers has no name."""
    return {name: array for name, array in arrays.items() if name != _TEMPERATURE}


def _image_tower(names: Mapping[str, str]) -> list[Rule]:
    theirs, ours = names["block"] + ".{i}.", "image/block_{i}"
    return [
        rule(names["class"], "image/class_embedding", rename.LEADING_ONES),
        rule(names["positions"], "image/position_embedding", rename.LEADING_ONE),
        rule(f"{names['patches']}.weight", "image/patch_embedding/kernel", rename.PATCHES),
        rule(f"{names['patches']}.bias", "image/patch_embedding/bias"),
        *norm(f"{theirs}{names['norm']}1", f"{ours}/attention_norm"),
        *packed(f"{theirs}{names['attention']}.qkv.", f"{ours}/attention"),
        *dense(f"{theirs}{names['out']}", f"{ours}/attention/out"),
        *norm(f"{theirs}{names['norm']}2", f"{ours}/mlp_norm"),
        *dense(f"{theirs}mlp.fc1", f"{ours}/mlp/up"),
        *dense(f"{theirs}mlp.fc2", f"{ours}/mlp/down"),
        *norm(names["last"], "image/norm"),
    ]
