"""The tokenizer in a GGUF file of llama.cpp, as a Hugging Face tokenizer.json."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.input_pipeline.stores import gguf

SUFFIX = ".gguf"
_CONTROL, _USER_DEFINED = 3, 4  # types of tokens that the text is split at
_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
# tokenizer.ggml.pre -> pre-tokenizers of the same models on Hugging Face
_SPLITS: dict[str, list[dict[str, Any]]] = {
    "gpt-2": [_BYTES],
    "smollm": [{"type": "Digits", "individual_digits": True}, _BYTES],
}


def tokenizer_json(path: str | Path) -> bytes:
    """The equivalent tokenizer.json.

    Raises ValueError for a damaged file, and for tokenizers other than byte-level BPE of _SPLITS.
    """
    values = gguf.read_header(path).metadata
    kind = (_get(values, "model", str, path), values.get("tokenizer.ggml.pre"))
    if kind[0] != "gpt2" or kind[1] not in _SPLITS:
        raise ValueError(
            f"{path} has a tokenizer of kind {kind[0]!r:.50}, {kind[1]!r:.50}; known are 'gpt2' "
            f"with {', '.join(_SPLITS)}: use the model's own tokenizer.json or tokenizer.model"
        )
    tokens = _get(values, "tokens", list, path)
    none = {"tokenizer.ggml.token_type": np.array([])}
    types = _get(none | values, "token_type", np.ndarray, path)
    added = [
        {"id": i, "content": tokens[i], "special": int(types[i]) == _CONTROL}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for i in range(min(len(types), len(tokens)))
        if types[i] in (_CONTROL, _USER_DEFINED)
    ]
    model = {
        "type": "BPE",
        "vocab": {token: i for i, token in enumerate(tokens)},
        "merges": _get(values, "merges", list, path),
    }
    document = {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": _SPLITS[kind[1]]},
        "post_processor": _start(values, tokens, path),
        "decoder": _BYTES,
        "model": model,
    }
    return json.dumps(document, ensure_ascii=False).encode("utf-8")


def declared(kind: str, path: Path) -> str | None:
    """The token that the file declares as "eos_token" or "pad_token"; None without one."""
    values = gguf.read_header(path).metadata
    tokens = _get(values, "tokens", list, path)
    name = {"eos_token": "eos", "pad_token": "padding"}[kind]
    number = values.get(f"tokenizer.ggml.{name}_token_id")
    return tokens[number] if isinstance(number, int) and 0 <= number < len(tokens) else None


def _get(values: dict[str, Any], name: str, kind: type, path: str | Path) -> Any:
    value = values.get(f"tokenizer.ggml.{name}")
    if not isinstance(value, kind):
        raise ValueError(f"{path}: tokenizer.ggml.{name} is a {kind.__name__}; got {value!r:.50}")
    return value


def _start(values: dict[str, Any], tokens: list[str], path: str | Path) -> dict[str, Any] | None:
    """The post-processor that prepends the start token, if the file adds it."""
    number = values.get("tokenizer.ggml.bos_token_id")
    if not values.get("tokenizer.ggml.add_bos_token") or not isinstance(number, int):
        return None
    if not 0 <= number < len(tokens):
        raise ValueError(f"{path}: bos_token_id is {number}, and there are {len(tokens)} tokens")
    name = tokens[number]
    special = {"SpecialToken": {"id": name, "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [special, text],
        "pair": [special, text, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]}},
    }
