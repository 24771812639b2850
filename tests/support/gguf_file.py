"""A writer of GGUF files, version 3, after ggml's docs/gguf.md."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

U32, F32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9
TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8, "BF16": 30}
BLOCK = 32


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value(x: Any) -> bytes:
    """Type and value."""
    if isinstance(x, bool):
        return struct.pack("<I?", BOOL, x)
    if isinstance(x, str):
        return struct.pack("<I", STRING) + text(x)
    if isinstance(x, float | int):
        return struct.pack("<If", F32, x) if isinstance(x, float) else struct.pack("<II", U32, x)
    if isinstance(x[0], str):
        return struct.pack("<IIQ", ARRAY, STRING, len(x)) + b"".join(map(text, x))
    return struct.pack("<IIQ", ARRAY, U32, len(x)) + np.asarray(x, "<u4").tobytes()


def random_blocks(kind: str, blocks: int, rng: np.random.Generator) -> tuple[bytes, list[float]]:
    """Bytes of random blocks of 32 numbers, and the numbers, one at a time from the formulas of
    ggml-quants.c."""
    data, numbers = b"", []
    for _ in range(blocks):
        scale, least = np.float16(rng.normal()), np.float16(rng.normal())
        if kind == "Q8_0":
            whole = rng.integers(-128, 128, BLOCK)
            data += scale.tobytes() + whole.astype(np.int8).tobytes()
            numbers += [float(np.float32(scale) * np.float32(q)) for q in whole]
            continue
        whole = rng.integers(0, 16, BLOCK)  # number j and j + 16 share byte j, j its low half
        packed = bytes(int(whole[j]) + 16 * int(whole[j + 16]) for j in range(16))
        data += scale.tobytes() + (least.tobytes() if kind == "Q4_1" else b"") + packed
        for q in whole:
            if kind == "Q4_1":
                numbers.append(float(np.float32(scale) * np.float32(q) + np.float32(least)))
            else:
                numbers.append(float(np.float32(scale) * np.float32(q - 8)))
    return data, numbers


def packed(array: np.ndarray, kind: str) -> bytes:
    """Bytes of a float array in one of the types that are not quantised."""
    types = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
    return array.astype(types[kind]).tobytes()


def write(
    path: Path,
    metadata: Mapping[str, Any],
    arrays: Mapping[str, tuple[tuple[int, ...], int, bytes]],
) -> Path:
    """arrays: name -> (shape, number of the type, bytes)."""
    header = b"GGUF" + struct.pack("<IQQ", 3, len(arrays), len(metadata))
    header += b"".join(text(key) + value(x) for key, x in metadata.items())
    data = b""
    for name, (shape, kind, content) in arrays.items():
        axes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        header += text(name) + axes + struct.pack("<IQ", kind, len(data))
        data += content + bytes(-len(content) % BLOCK)
    path.write_bytes(header + bytes(-len(header) % BLOCK) + data)
    return path


LAYER = {  # theirs -> our path in a block of models.lm
    "attn_norm": "attention_norm/scale",
    "attn_q": "query/kernel",
    "attn_k": "key/kernel",
    "attn_v": "value/kernel",
    "attn_output": "out/kernel",
    "ffn_norm": "mlp_norm/scale",
    "ffn_gate": "gate/kernel",
    "ffn_up": "up/kernel",
    "ffn_down": "down/kernel",
}


def language_model(
    path: Path, lm: Mapping[str, Any], flat: Mapping[str, np.ndarray], **more: Any
) -> Path:
    """Writes parameters of models.lm ("lm/blocks/query/kernel": array) as llama.cpp's converter
    does, float32.   more: metadata without "tokenizer.ggml."."""
    arrays = {
        "token_embd": flat["lm/token_embedding/embedding"],
        "output_norm": flat["lm/norm/scale"],
    }
    if "lm/head" in flat:
        arrays["output"] = flat["lm/head"].T
    for layer in range(lm["depth"]):
        for theirs, ours in LAYER.items():
            array = flat[f"lm/blocks/{ours}"][layer].T
            if heads := {"attn_q": lm["heads"], "attn_k": lm["kv_heads"]}.get(theirs):
                # LlamaModel.permute of convert_hf_to_gguf.py
                two = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
                array = two.swapaxes(1, 2).reshape(array.shape)
            arrays[f"blk.{layer}.{theirs}"] = array
    metadata = {
        "general.architecture": "llama",
        "llama.block_count": lm["depth"],
        "llama.context_length": 256,
        "llama.embedding_length": lm["width"],
        "llama.feed_forward_length": lm["mlp_width"],
        "llama.attention.head_count": lm["heads"],
        "llama.attention.head_count_kv": lm["kv_heads"],
        "llama.attention.layer_norm_rms_epsilon": lm["epsilon"],
        "llama.rope.freq_base": lm["theta"],
        **{f"tokenizer.ggml.{key}": x for key, x in more.items()},
    }
    stored = {f"{k}.weight": (x.shape, TYPES["F32"], packed(x, "F32")) for k, x in arrays.items()}
    return write(path, metadata, stored)
