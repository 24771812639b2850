"""Language models in GGUF files of llama.cpp: the architecture `llama` (Llama, Mistral, SmolLM2).

Arrays appear under Hugging Face's names, as float32 where the file quantises them, and metadata as
Hugging Face's config.json, so that `llava.load` and `llava_sizes.read` read a file like a folder.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from vlc_jax.errors import WeightsError
from vlc_jax.input_pipeline.stores import gguf
from vlc_jax.weights import sizes
from vlc_jax.weights.sections import Key

SUFFIX = ".gguf"
_NAMES = {  # theirs -> Hugging Face's; "{i}" is the index of a layer
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    **{
        f"blk.{{i}}.{theirs}": f"model.layers.{{i}}.{name}"
        for theirs, name in {
            "attn_norm": "input_layernorm",
            "attn_q": "self_attn.q_proj",
            "attn_k": "self_attn.k_proj",
            "attn_v": "self_attn.v_proj",
            "attn_output": "self_attn.o_proj",
            "ffn_norm": "post_attention_layernorm",
            "ffn_gate": "mlp.gate_proj",
            "ffn_up": "mlp.up_proj",
            "ffn_down": "mlp.down_proj",
        }.items()
    },
}
_HEADS = "llama.attention.head_count"
_CONFIG = {  # key of config.json -> key of the metadata; a list has one number per layer
    "max_position_embeddings": Key("llama.context_length", int),
    "hidden_size": Key("llama.embedding_length", int),
    "num_hidden_layers": Key("llama.block_count", int),
    "intermediate_size": Key("llama.feed_forward_length", int),
    "num_attention_heads": Key(_HEADS, int),
    "num_key_value_heads": Key(f"{_HEADS}_kv", int, other=_HEADS),
    "rms_norm_eps": Key("llama.attention.layer_norm_rms_epsilon", float),
    "rope_theta": Key("llama.rope.freq_base", 1e4),
}
# weights whose rows are rotated -> number of their heads
_ROTATED = {
    "self_attn.q_proj.weight": _CONFIG["num_attention_heads"],
    "self_attn.k_proj.weight": _CONFIG["num_key_value_heads"],
}


class Kind(NamedTuple):
    """A type of ggml: `size` bytes hold a block of `values` numbers.

    unpack: uint8 (blocks, size) -> (blocks, values).
    """

    name: str
    values: int
    size: int
    unpack: Callable[[np.ndarray], np.ndarray]


def _number(dtype: Any) -> Callable[[np.ndarray], np.ndarray]:
    return lambda blocks: blocks.view(dtype)


def _half(blocks: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(blocks).view("<f2").astype(np.float32)


def _nibbles(blocks: np.ndarray) -> np.ndarray:
    """Low halves of all bytes, then high halves."""
    return np.concatenate([blocks & 15, blocks >> 4], axis=1).astype(np.float32)


# Formulas of ggml-quants.c; d and m are float16
KINDS = {
    0: Kind("F32", 1, 4, _number("<f4")),
    1: Kind("F16", 1, 2, _number("<f2")),
    2: Kind("Q4_0", 32, 18, lambda b: _half(b[:, :2]) * (_nibbles(b[:, 2:]) - 8)),
    3: Kind("Q4_1", 32, 20, lambda b: _half(b[:, :2]) * _nibbles(b[:, 4:]) + _half(b[:, 2:4])),
    8: Kind("Q8_0", 32, 34, lambda b: _half(b[:, :2]) * b[:, 2:].view(np.int8)),
    30: Kind("BF16", 1, 2, _number(ml_dtypes.bfloat16)),
}


class Arrays(Mapping[str, np.ndarray]):
    """The arrays of a file by Hugging Face's names, dequantised at access.

    Arrays without a name there keep their own. Raises WeightsError for a damaged file, and for
    types other than KINDS.
    """

    def __init__(self, path: str | Path) -> None:
        header = _header(path)
        self._path, self._metadata = path, header.metadata
        self.stored = {_hugging_face(name): array for name, array in header.arrays.items()}
        self._bytes = np.memmap(path, np.uint8, "r")
        for name, array in self.stored.items():
            if array.kind not in KINDS:
                known = ", ".join(f"{kind.name} ({n})" for n, kind in KINDS.items())
                raise self._error(name, f"has ggml's type {array.kind}; known: {known}")
            kind, row = KINDS[array.kind], array.shape[-1] if array.shape else 1
            if row % kind.values:
                raise self._error(name, f"has rows of {row}, no whole blocks of {kind.name}")
            if array.offset + _size(array) > len(self._bytes) or _size(array) < 0:
                raise self._error(name, "ends behind the end of the file")

    def __getitem__(self, name: str) -> np.ndarray:
        array = self.stored[name]
        kind = KINDS[array.kind]
        packed = self._bytes[array.offset : array.offset + _size(array)].reshape(-1, kind.size)
        values = kind.unpack(packed).reshape(array.shape)
        for suffix, key in _ROTATED.items():
            if name.endswith(suffix):
                heads = key.read(self._metadata, str(self._path))
                if values.ndim != 2 or len(values) % (2 * heads):
                    raise self._error(name, f"of shape {array.shape} is no {heads} even heads")
                return _half_split(values, heads)
        return values

    def _error(self, name: str, problem: str) -> WeightsError:
        return WeightsError(f"{self._path}: array {name[:50]!r} {problem}")

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)


def read(path: Path, only_shapes: bool) -> dict[str, np.ndarray]:
    """All arrays, or placeholders of their shapes."""
    arrays = Arrays(path)
    if only_shapes:
        return {name: sizes.placeholder(array.shape) for name, array in arrays.stored.items()}
    return dict(arrays)


def config(path: str | Path) -> dict[str, Any]:
    """The fields of a Hugging Face config.json. Raises WeightsError for other architectures."""
    header = _header(path)
    values = header.metadata
    if (family := values.get("general.architecture")) != "llama":
        family = f"{family!r:.50}"
        raise WeightsError(f"{path}: general.architecture is {family}; only 'llama' is supported")
    scaling, experts = values.get("llama.rope.scaling.type", "none"), "llama.expert_count"
    if scaling != "none" or "rope_freqs.weight" in header.arrays or values.get(experts):
        raise WeightsError(
            f"{path} has scaled RoPE frequencies or experts, which the reader of GGUF lacks: use "
            "the model's Hugging Face folder"
        )
    embedding = header.arrays.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise WeightsError(f"{path} has no matrix token_embd.weight")
    fields = {name: key.read(values, str(path)) for name, key in _CONFIG.items()}
    head = fields["hidden_size"] // fields["num_attention_heads"]
    head = Key("llama.attention.key_length", head).read(values, str(path))
    rotated = Key("llama.rope.dimension_count", head).read(values, str(path))
    ends = [values.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot")]
    return {
        "model_type": "llama",
        **fields,
        "vocab_size": embedding.shape[0],
        "head_dim": head,
        "partial_rotary_factor": rotated / head,
        "tie_word_embeddings": "output.weight" not in header.arrays,
        "eos_token_id": sorted({end for end in ends if end is not None}) or None,
    }


def _header(path: str | Path) -> gguf.Header:
    try:
        return gguf.read_header(path)
    except ValueError as error:
        raise WeightsError(str(error)) from error


def _size(array: gguf.Stored) -> int:
    """Bytes of an array."""
    kind = KINDS[array.kind]
    return int(np.prod(array.shape, dtype=object)) // kind.values * kind.size


def _hugging_face(name: str) -> str:
    layer = re.match(r"blk\.(\d+)\.", name)
    stem, _, kind = name.rpartition(".")
    if layer:
        stem = f"blk.{{i}}.{stem[layer.end() :]}"
    if kind != "weight" or stem not in _NAMES:
        return name
    return f"{_NAMES[stem]}.weight".replace("{i}", layer[1] if layer else "")


def _half_split(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of queries or keys in the order of models.rope.

    llama.cpp rotates neighbouring features of a head, models.lm feature j and j + width/2: its
    converter has interleaved the halves.
    """
    width = weight.shape[0] // heads
    pairs = weight.reshape(heads, width // 2, 2, weight.shape[1])
    return pairs.swapaxes(1, 2).reshape(weight.shape)
