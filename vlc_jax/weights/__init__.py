"""Weights of other projects in and out: `load` and `save`, one table of formats."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.errors import WeightsError
from vlc_jax.weights import (
    big_vision,
    dcsm,
    files,
    huggingface,
    metadata,
    open_clip,
    openai,
    peft,
    position,
    rename,
)
from vlc_jax.weights.rename import Rule, flatten, unflatten

__all__ = [
    "FORMATS",
    "Architecture",
    "Format",
    "dcsm",
    "detect",
    "fitted",
    "flatten",
    "load",
    "metadata",
    "peft",
    "save",
    "unflatten",
]


class Architecture(NamedTuple):
    """What must be known of a model and cannot be read off its shapes."""

    patch_size: int
    heads: dict[str, int]  # of "image" and "text"
    may_cut_text: bool = False  # whether a text never reads what follows its end


class Format(NamedTuple):
    """`marks`: names that only this format has, all of them; `ignored`: names without weights."""

    marks: tuple[str, ...]
    rules: Callable[[Architecture], list[Rule]]
    ignored: tuple[str, ...] = ()


# Looked through in this order: the first whose marks are all in the file.
FORMATS: dict[str, Format] = {
    "open_clip": Format(
        ("visual.conv1.weight", "text.token_embedding.weight"),
        lambda a: openai.rules(a.patch_size, "text."),
        openai.IGNORED,
    ),
    "openai": Format(
        ("visual.conv1.weight", "token_embedding.weight"),
        lambda a: openai.rules(a.patch_size),
        openai.IGNORED,
    ),
    "open_clip_siglip": Format(
        ("visual.trunk.attn_pool.latent", "text.token_embedding.weight"),
        lambda a: open_clip.siglip_rules(a.patch_size),
        openai.IGNORED,
    ),
    "open_clip_eva02": Format(
        ("visual.trunk.blocks.0.mlp.fc1_g.weight", "text.token_embedding.weight"),
        lambda a: open_clip.eva02_rules(a.patch_size),
        openai.IGNORED,
    ),
    "hf_clip": Format(
        ("vision_model.embeddings.class_embedding", "text_projection.weight"),
        lambda a: huggingface.clip_rules(a.patch_size),
        huggingface.IGNORED,
    ),
    "hf_siglip": Format(
        ("vision_model.head.probe", "text_model.head.weight"),
        lambda a: huggingface.siglip_rules(a.patch_size),
        huggingface.IGNORED,
    ),
    "big_vision": Format(
        ("params/img/MAPHead_0/probe", "params/txt/Embed_0/embedding"),
        lambda a: big_vision.rules(a.heads, a.patch_size),
    ),
}


def detect(arrays: Mapping[str, np.ndarray]) -> str:
    """The format whose names these are. Raises WeightsError if there is none."""
    for name, each in FORMATS.items():
        if all(mark in arrays for mark in each.marks):
            return name
    raise WeightsError(
        f"weights of no known format ({', '.join(FORMATS)}); the first names are "
        f"{', '.join(list(arrays)[: rename.SHOWN])}"
    )


def load(
    path: str | Path, shapes: Mapping[str, Any], architecture: Architecture
) -> tuple[dict[str, Any], str]:
    """The parameters in a file or folder as a tree like `shapes`, float32, and their format.

    shapes: our parameter tree, of arrays or jax.ShapeDtypeStruct, or its image tower alone. Nothing
    else is left over and nothing missing: raises WeightsError otherwise, and for damaged files.
    Position embeddings are brought to the model's resolution and context (`position.fit`).
    """
    arrays = files.read(path)
    try:
        name = detect(arrays)
    except WeightsError as error:
        raise WeightsError(f"{path}: {error}") from error
    wanted = {key: tuple(value.shape) for key, value in flatten(shapes).items()}
    try:
        rules, ignored = FORMATS[name].rules(architecture), FORMATS[name].ignored
        if "text" not in shapes:
            ignored = (*ignored, *rename.names(r for r in rules if not r.is_of("image")))
        flat = rename.load(rules, arrays, wanted, ignored)
        return fitted(unflatten(flat), shapes, architecture), name
    except WeightsError as error:
        raise WeightsError(f"{path} ({name}): {error}") from error


def fitted(
    params: Mapping[str, Any], shapes: Mapping[str, Any], architecture: Architecture
) -> dict[str, Any]:
    """`params` with the position embeddings of `shapes`, where the resolution or the context
    differs. Raises WeightsError for other parameters than those of `shapes`, or broken ones.
    """
    flat = flatten(params)
    wanted = {key: tuple(value.shape) for key, value in flatten(shapes).items()}
    rename.check_names(flat, wanted)
    flat = position.fit(flat, wanted, may_cut_text=architecture.may_cut_text)
    rename.check_values(flat, wanted)
    return unflatten(flat)


def save(params: Mapping[str, Any], name: str, architecture: Architecture) -> dict[str, np.ndarray]:
    """Our parameters under the names of format `name`. Raises WeightsError if it lacks some."""
    return rename.save(FORMATS[name].rules(architecture), flatten(params))
