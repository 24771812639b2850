"""PaliGemma's parameters as arrays of big_vision's files."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from vlc_jax.weights import big_vision, rename


def arrays(params: Mapping[str, Any], sizes: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Names there, without "params/" -> arrays, of our parameters {image, projector, lm}."""
    heads = sizes["lm"]["heads"]
    rules = big_vision.tower_rules("img", sizes["image"]["heads"])
    rules += big_vision.dense("img/head", "projector/linear")
    tower = {"image": params["image"], "projector": params["projector"]}
    found = big_vision.stacked(rename.save(rules, rename.flatten(tower)))
    lm = rename.flatten(params["lm"])
    kernel = {m[1]: x for name, x in lm.items() if (m := re.match("blocks/(.*)/kernel", name))}
    scale = {m[1]: x for name, x in lm.items() if (m := re.match("blocks/(.*)/scale", name))}

    def heads_first(x: np.ndarray, count: int) -> np.ndarray:
        return x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)

    key, value = (heads_first(kernel[x], sizes["lm"]["kv_heads"]) for x in ("key", "value"))
    out = kernel["out"]
    return found | {
        "llm/embedder/input_embedding": lm["token_embedding/embedding"],
        "llm/final_norm/scale": lm["norm/scale"],
        "llm/layers/pre_attention_norm/scale": scale["attention_norm"],
        "llm/layers/pre_ffw_norm/scale": scale["mlp_norm"],
        "llm/layers/attn/q_einsum/w": heads_first(kernel["query"], heads),
        "llm/layers/attn/kv_einsum/w": np.stack([key, value], axis=1),
        "llm/layers/attn/attn_vec_einsum/w": out.reshape(len(out), heads, -1, out.shape[-1]),
        "llm/layers/mlp/gating_einsum": np.stack([kernel["gate"], kernel["up"]], axis=1),
        "llm/layers/mlp/linear": kernel["down"],
    }
