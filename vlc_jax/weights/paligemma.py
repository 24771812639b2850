"""PaliGemma's weights in big_vision's files: `.npz`, names joined by "/", layers stacked."""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from vlc_jax.errors import WeightsError
from vlc_jax.weights import big_vision, llava_sizes, npz
from vlc_jax.weights.rename import AtAccess, Codec, Rule, rule

_BLOCK = "img/Transformer/encoderblock"
_ATTENTION = "llm/layers/attn"
_MARKERS = {"img/head/kernel", "llm/embedder/input_embedding"}  # names of no other model's file
_STACK = re.compile(rf"({_BLOCK}|llm/layers)/(.*)")  # names of arrays with an axis of layers


def is_paligemma(path: str | Path) -> bool:
    """True if a file is a PaliGemma of big_vision, by its array names."""
    path = Path(path)
    return path.suffix == ".npz" and path.is_file() and _names(path).keys() >= _MARKERS


def _names(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Names without the optional prefix "params/" -> (names in the file, shapes)."""
    arrays = npz.read(path, only_shapes=True)
    names = {name.removeprefix("params/"): (name, x.shape) for name, x in arrays.items()}
    if len(names) < len(arrays):
        raise WeightsError(f"{path} holds a parameter twice, with and without params/")
    return names


def open_arrays(path: Path) -> AtAccess:
    """The arrays of a file, read at access; a layer of a stack at a time, as "llm/layers_3/...".

    At most two stacks of layers are in memory: keys and values, which one rule reads.
    """
    places: dict[str, tuple[str, int | None]] = {}  # name -> (in the file, layer)
    for name, (whole, shape) in _names(path).items():
        match = _STACK.fullmatch(name)
        if match is None:
            places[name] = whole, None
            continue
        big_vision.check_stack(name, shape)
        places |= {f"{match[1]}_{i}/{match[2]}": (whole, i) for i in range(shape[0])}
    stacks: dict[str, np.ndarray] = {}

    def read(place: tuple[str, int | None]) -> np.ndarray:
        whole, layer = place
        if layer is None:
            return _recovered(npz.read_one(path, whole))
        if whole not in stacks:
            while len(stacks) > 1:
                del stacks[next(iter(stacks))]
            stacks[whole] = _recovered(npz.read_one(path, whole))
        return stacks[whole][layer]

    return AtAccess(places, read)


_MHA = f"{_BLOCK}/MultiHeadDotProductAttention_0"
# Key of config.json -> array, number of its axes, and the axis of this length.
_TEXT_SIZES = {
    "vocab_size": ("llm/embedder/input_embedding", 2, 0),
    "hidden_size": ("llm/embedder/input_embedding", 2, 1),
    "num_hidden_layers": (f"{_ATTENTION}/q_einsum/w", 4, 0),
    "num_attention_heads": (f"{_ATTENTION}/q_einsum/w", 4, 1),
    "head_dim": (f"{_ATTENTION}/q_einsum/w", 4, 3),
    "num_key_value_heads": (f"{_ATTENTION}/kv_einsum/w", 5, 2),
    "intermediate_size": ("llm/layers/mlp/linear", 3, 1),
}
_IMAGE_SIZES = {
    "hidden_size": ("img/embedding/kernel", 4, 3),
    "patch_size": ("img/embedding/kernel", 4, 0),
    "image_size": ("img/pos_embedding", 3, 1),  # in patches of the whole image
    "num_hidden_layers": (f"{_MHA}/query/kernel", 4, 0),
    "num_attention_heads": (f"{_MHA}/query/kernel", 4, 2),
    "intermediate_size": (f"{_BLOCK}/MlpBlock_0/Dense_0/bias", 2, 1),
}


def read_sizes(path: str | Path) -> dict[str, Any]:
    """Architecture of a file from the shapes of its arrays, see `llava_sizes.read`.

    big_vision has no image token; ours is the first id beyond the vocabulary, as in Hugging Face's
    files. Raises WeightsError for a file of another model.
    """
    shapes = {name: shape for name, (_, shape) in _names(Path(path)).items()}

    def length(name: str, axes: int, axis: int) -> int:
        if len(shapes.get(name, ())) != axes:
            found = shapes.get(name, "missing")
            raise WeightsError(f"{path} is no PaliGemma of big_vision: {name} is {found}")
        return shapes[name][axis]

    text = {key: length(*place) for key, place in _TEXT_SIZES.items()}
    vision = {key: length(*place) for key, place in _IMAGE_SIZES.items()}
    vision["image_size"] = math.isqrt(vision["image_size"]) * vision["patch_size"]
    return llava_sizes.read(
        {
            "model_type": "paligemma",
            "text_config": {"model_type": "gemma", **text},
            "vision_config": vision,
            "image_token_index": text["vocab_size"],
        },
        str(path),
    )


def rules(sizes: Mapping[str, Any]) -> list[Rule]:
    """Rules of the names of `open_arrays`."""
    layers = range(sizes["lm"]["depth"])
    theirs, ours = "llm/layers_{i}", "lm/blocks"
    key_value = [f"{ours}/{name}/kernel" for name in ("key", "value")]
    gate_up = [f"{ours}/{name}/kernel" for name in ("gate", "up")]
    blocks = [
        rule(f"{theirs}/pre_attention_norm/scale", f"{ours}/attention_norm/scale"),
        rule(f"{theirs}/pre_ffw_norm/scale", f"{ours}/mlp_norm/scale"),
        rule(f"{theirs}/attn/q_einsum/w", f"{ours}/query/kernel", _read(lambda x: [_joined(x)])),
        rule(f"{theirs}/attn/kv_einsum/w", key_value, _read(lambda x: map(_joined, x))),
        rule(
            f"{theirs}/attn/attn_vec_einsum/w",
            f"{ours}/out/kernel",
            _read(lambda x: [x.reshape(-1, x.shape[-1])]),
        ),
        rule(f"{theirs}/mlp/gating_einsum", gate_up, _read(tuple)),
        rule(f"{theirs}/mlp/linear", f"{ours}/down/kernel"),
    ]
    return [
        *big_vision.tower_rules("img", sizes["image"]["heads"]),
        *big_vision.dense("img/head", "projector/linear"),
        rule("llm/embedder/input_embedding", "lm/token_embedding/embedding"),
        rule("llm/final_norm/scale", "lm/norm/scale"),
        *(each._replace(layers=layers) for each in blocks),
    ]


def _joined(x: np.ndarray) -> np.ndarray:
    """(heads, width, head) -> (width, heads * head)."""
    return x.transpose(1, 0, 2).reshape(x.shape[1], -1)


def _read(load: Any) -> Codec:
    """The codec of a conversion that has no inverse here."""

    def save(*_: np.ndarray) -> tuple[np.ndarray, ...]:
        raise WeightsError("PaliGemma is not written in big_vision's format")

    return Codec(lambda x: tuple(load(x)), save)


def _recovered(array: np.ndarray) -> np.ndarray:
    """The array with its dtype: numpy saves bfloat16 as two untyped bytes (V2)."""
    if array.dtype == np.dtype("V2"):
        return array.view(ml_dtypes.bfloat16)
    if array.dtype.kind != "f":
        raise WeightsError(f"weights must be floating point; one array has dtype {array.dtype}")
    return array
