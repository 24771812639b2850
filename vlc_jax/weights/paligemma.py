"""PaliGemma's weights in big_vision's files: `.npz`, names joined by "/", layers stacked.

Only one array of the file and its parameters are in host memory at a time.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from vlc_jax.errors import WeightsError
from vlc_jax.weights import big_vision, llava_sizes, npz, rename

_BLOCK = "img/Transformer/encoderblock"
_ATTENTION = "llm/layers/attn"
_MARKERS = {"img/head/kernel", "llm/embedder/input_embedding"}  # names of no other model's file

Load = Callable[..., tuple[np.ndarray, ...]]


class _Row(NamedTuple):
    """Names in the file, our paths, and the conversion from file arrays to ours.

    A path with "{i}" stands for every layer, and `load` gets one layer at a time.
    """

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    load: Load


def _inputs_first(x: np.ndarray) -> np.ndarray:
    """(layers, heads, width, head) -> (layers, width, heads * head)."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


# Gemma: name in the file -> our paths below "lm", and the conversion of its array.
_GEMMA: dict[str, tuple[tuple[str, ...], Load]] = {
    "llm/embedder/input_embedding": (("token_embedding/embedding",), lambda x: (x,)),
    "llm/final_norm/scale": (("norm/scale",), lambda x: (x,)),
    "llm/layers/pre_attention_norm/scale": (("blocks/attention_norm/scale",), lambda x: (x,)),
    "llm/layers/pre_ffw_norm/scale": (("blocks/mlp_norm/scale",), lambda x: (x,)),
    f"{_ATTENTION}/q_einsum/w": (("blocks/query/kernel",), lambda x: (_inputs_first(x),)),
    f"{_ATTENTION}/kv_einsum/w": (
        ("blocks/key/kernel", "blocks/value/kernel"),
        lambda x: (_inputs_first(x[:, 0]), _inputs_first(x[:, 1])),
    ),
    f"{_ATTENTION}/attn_vec_einsum/w": (
        ("blocks/out/kernel",),
        lambda x: (x.reshape(len(x), -1, x.shape[-1]),),
    ),
    "llm/layers/mlp/gating_einsum": (
        ("blocks/gate/kernel", "blocks/up/kernel"),
        lambda x: (x[:, 0], x[:, 1]),
    ),
    "llm/layers/mlp/linear": (("blocks/down/kernel",), lambda x: (x,)),
}


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


def read_sizes(path: str | Path) -> dict[str, Any]:
    """Architecture of a file from the shapes of its arrays, see `llava_sizes.read`.

    big_vision has no image token; ours is the first id beyond the vocabulary, as in Hugging Face's
    files. Raises WeightsError for a file of another model.
    """
    shapes = {name: shape for name, (_, shape) in _names(Path(path)).items()}
    try:
        patch_size, _, _, width = shapes["img/embedding/kernel"]
        _, patches, _ = shapes["img/pos_embedding"]
        blocks, _, heads, _ = shapes[f"{_BLOCK}/MultiHeadDotProductAttention_0/query/kernel"]
        _, mlp_width = shapes[f"{_BLOCK}/MlpBlock_0/Dense_0/bias"]
        vocab, lm_width = shapes["llm/embedder/input_embedding"]
        depth, lm_heads, _, head = shapes[f"{_ATTENTION}/q_einsum/w"]
        _, _, kv_heads, _, _ = shapes[f"{_ATTENTION}/kv_einsum/w"]
        _, lm_mlp_width, _ = shapes["llm/layers/mlp/linear"]
    except (KeyError, ValueError) as error:
        raise WeightsError(f"{path} is no PaliGemma of big_vision: {error!r}") from error
    text = {
        "model_type": "gemma",
        "vocab_size": vocab,
        "hidden_size": lm_width,
        "num_hidden_layers": depth,
        "num_attention_heads": lm_heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head,
        "intermediate_size": lm_mlp_width,
    }
    vision = {
        "hidden_size": width,
        "num_hidden_layers": blocks,
        "num_attention_heads": heads,
        "intermediate_size": mlp_width,
        "image_size": math.isqrt(patches) * patch_size,
        "patch_size": patch_size,
    }
    config = {"model_type": "paligemma", "text_config": text, "vision_config": vision}
    return llava_sizes.read({**config, "image_token_index": vocab})


def load(
    path: str | Path,
    sizes: Mapping[str, Any],
    shapes: Mapping[str, Any],
    *,
    put: Callable[[str, np.ndarray], Any] | None = None,
    dtype: Any = None,
) -> dict[str, Any]:
    """Parameters of a file, with the arguments and errors of `llava.load`."""
    path, params = Path(path), {}
    expected = {name: tuple(x.shape) for name, x in rename.flatten(shapes).items()}
    stored = {name: whole for name, (whole, _) in _names(path).items()}
    try:
        rows = [row for row in _rows(sizes) if row.ours[0].split("/")[0] in shapes]
        rename.check_complete([name for row in rows for name in row.theirs], stored)
        for row in rows:
            for target, array in _parameters(row, path, stored, expected):
                if not np.isfinite(array).all():
                    raise WeightsError(f"{row.theirs[0]} is not finite")
                # a copy: a view would keep the whole array of the file in memory
                array = np.array(array, dtype or array.dtype, order="C")
                params[target] = array if put is None else put(target, array)
                del array
        if missing := sorted(expected.keys() - params.keys()):
            raise WeightsError(rename.listing("parameters without an array", missing))
        return rename.unflatten(params)
    except WeightsError as error:
        raise WeightsError(f"{path}: {error}") from error


def _rows(sizes: Mapping[str, Any]) -> list[_Row]:
    image = sizes["image"]
    tower = big_vision.tower_rules("img", image["heads"], image["patch_size"])
    rules = [*tower, *big_vision.dense("img/head", "projector/linear")]
    rows = [
        _Row(tuple(x.replace("block_{i}", "block") for x in theirs), ours, codec.load)
        for theirs, ours, codec in rules
    ]
    for name, (paths, make) in _GEMMA.items():
        rows.append(_Row((name,), tuple(f"lm/{path}" for path in paths), make))
    return rows


def _parameters(
    row: _Row, path: Path, stored: Mapping[str, str], expected: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields (path, array) of our parameters of a row."""
    sources = [_recovered(npz.read_one(path, stored[name])) for name in row.theirs]
    is_stack = "{i}" in row.ours[0]
    for layer in range(sources[0].shape[0] if is_stack and sources[0].ndim else 1):
        parts = rename.convert(
            row.load, row.theirs[0], [x[layer] if is_stack else x for x in sources]
        )
        for target, part in zip(row.ours, parts, strict=True):
            target = target.replace("{i}", str(layer))
            if part.shape != expected.get(target):
                raise WeightsError(
                    f"{row.theirs[0]} gives {target} {part.shape} instead of {expected.get(target)}"
                )
            yield target, part


def _recovered(array: np.ndarray) -> np.ndarray:
    """The array with its dtype: numpy saves bfloat16 as two untyped bytes (V2)."""
    if array.dtype == np.dtype("V2"):
        return array.view(ml_dtypes.bfloat16)
    if array.dtype.kind != "f":
        raise WeightsError(f"weights must be floating point; one array has dtype {array.dtype}")
    return array
