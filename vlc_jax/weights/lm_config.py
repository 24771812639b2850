"""config.json of a language model of Hugging Face <-> fields of models.lm.Decoder.

The fields are plain values: a rope scaling is a dict of the fields of models.rope.Scaling.
"""

from collections.abc import Mapping
from typing import Any

from vlc_jax.errors import WeightsError
from vlc_jax.weights import config_keys, huggingface_config

# Defaults of transformers' classes, by model_type: a config.json may omit these fields.
_LLAMA = {
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "sliding_window": None,
    "head_dim": None,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": _LLAMA,
    "mistral": {
        **_LLAMA,
        "intermediate_size": 14_336,
        "num_key_value_heads": 8,
        "sliding_window": 4096,
        "max_position_embeddings": 131_072,
    },
    "phi3": {
        **_LLAMA,
        "vocab_size": 32_064,
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 4096,
    },
    "gemma": {
        **_LLAMA,
        "vocab_size": 256_000,
        "hidden_size": 3072,
        "intermediate_size": 24_576,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "hidden_act": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
        "head_dim": 256,
    },
    "gemma3_text": {
        **_LLAMA,
        "vocab_size": 262_208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "hidden_act": "gelu_pytorch_tanh",
        "max_position_embeddings": 131_072,
        "tie_word_embeddings": True,
        "head_dim": 256,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "sliding_window_pattern": 6,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "layer_types": None,
    },
    # of Qwen3-VL; the embedder has no logits, so that its embeddings count as shared
    "qwen3_vl_text": {
        **_LLAMA,
        "vocab_size": 151_936,
        "intermediate_size": 22_016,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "head_dim": 128,
        "rope_theta": 5e5,
    },
}
# Keys that are read below, or show in the shapes of arrays.
READ = config_keys.names(
    """_sliding_window_pattern attention_bias attn_logit_softcapping final_logit_softcapping
    head_dim hidden_act hidden_activation hidden_size intermediate_size layer_types
    max_position_embeddings mlp_bias num_attention_heads num_hidden_layers num_key_value_heads
    original_max_position_embeddings partial_rotary_factor query_pre_attn_scalar rms_norm_eps
    rope_local_base_freq rope_parameters rope_scaling rope_theta sliding_window
    sliding_window_pattern tie_word_embeddings use_bidirectional_attention vocab_size"""
)
HARMLESS = config_keys.names("embd_pdrop num_image_tokens pretraining_tp resid_pdrop")
# Fields of models.lm.Decoder with the same value in config.json -> their names there.
_FIELDS = {
    "vocab": "vocab_size",
    **huggingface_config.SIZES,
    "kv_heads": "num_key_value_heads",
    "epsilon": "rms_norm_eps",
    "is_tied": "tie_word_embeddings",
}


def read(text: Mapping[str, Any], family: str) -> dict[str, Any]:
    """Fields of models.lm.Decoder of a config.json, or of its text_config.

    family: a key of FAMILIES.   Raises WeightsError for a decoder that models.lm does not support.
    """
    if family not in FAMILIES:
        raise WeightsError(
            f"model_type {family!r} is no known language model: {', '.join(FAMILIES)}"
        )
    c = FAMILIES[family] | {k: v for k, v in text.items() if v is not None or k == "sliding_window"}
    for name in ("attention_bias", "mlp_bias", "use_bidirectional_attention"):
        require(c, name, False)
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        require(c, name, None)
    is_gemma = family in ("gemma", "gemma3_text")
    activation = "gelu_pytorch_tanh" if is_gemma else "silu"
    if family == "gemma3_text":
        require(c, "hidden_activation", activation)
    elif family != "gemma":  # older Gemma files have "gelu", but mean its tanh approximation
        require(c, "hidden_act", activation)
    # since transformers 5; Gemma 3 has one entry per kind of attention
    parameters = c.get("rope_parameters") or {}
    rope = (c.get("rope_scaling") or {}) | parameters.get("full_attention", parameters)
    require(c | rope, "partial_rotary_factor", 1.0)
    head = c["head_dim"]
    fields = {
        **{ours: c[theirs] for ours, theirs in _FIELDS.items()},
        "head_width": None if head == c["hidden_size"] // c["num_attention_heads"] else head,
        "theta": float(rope.get("rope_theta", c.get("rope_theta", 10_000.0))),
        "scaling": _scaling(c, rope),
        "window": c["sliding_window"] if family in ("mistral", "phi3") else None,
        "activation": huggingface_config.ACTIVATIONS.get(activation, activation),
        "unit_offset": is_gemma,
        "scales_embeddings": is_gemma,
    }
    if family == "qwen3_vl_text":
        return fields | {"qk_norm": True, "is_tied": True, "sections": _sections(c, rope)}
    return fields | (_gemma3(c) if family == "gemma3_text" else {})


def _sections(c: Mapping[str, Any], rope: Mapping[str, Any]) -> tuple[int, ...]:
    """Feature pairs that rotate by time, row and column (Qwen3-VL)."""
    require(rope, "mrope_interleaved", True)
    sections, pairs = tuple(rope.get("mrope_section", (24, 20, 20))), c["head_dim"] // 2
    if len(sections) != 3 or sum(sections) != pairs:
        raise WeightsError(
            f"mrope_section {sections} are three numbers whose sum is half of head_dim, {pairs}"
        )
    return sections


def _gemma3(c: Mapping[str, Any]) -> dict[str, Any]:
    """Additional fields of Gemma 3's language model."""
    local = {"rope_theta": c["rope_local_base_freq"]}
    local |= (c.get("rope_parameters") or {}).get("sliding_attention", {})
    require(local, "rope_type", "default")
    scale = c["query_pre_attn_scalar"]
    return {
        "window": c["sliding_window"],
        "global_every": _global_every(c),
        "local_theta": float(local["rope_theta"]),
        "qk_norm": True,
        "post_norms": True,
        "scale_width": None if scale == c["head_dim"] else scale,
    }


def _global_every(c: Mapping[str, Any]) -> int:
    kinds, depth = c["layer_types"], c["num_hidden_layers"]
    if kinds is None:
        return c["sliding_window_pattern"]
    every = kinds.index("full_attention") + 1 if "full_attention" in kinds else depth + 1
    if kinds != _layer_types(every, depth):
        raise WeightsError(
            f"layer_types {kinds} are not supported: every n-th layer must be full_attention, all "
            "others sliding_attention"
        )
    return every


def _layer_types(every: int, depth: int) -> list[str]:
    names = ("sliding_attention", "full_attention")
    return [names[(layer + 1) % every == 0] for layer in range(depth)]


def _scaling(c: Mapping[str, Any], rope: Mapping[str, Any]) -> dict[str, Any] | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    require(rope, "attention_factor", None)
    if kind == "linear":
        return {"kind": kind, "original_length": 0, "factor": float(rope["factor"])}
    original = rope.get("original_max_position_embeddings")
    original = original or c.get("original_max_position_embeddings")
    if kind == "llama3":
        return {
            "kind": kind,
            "original_length": original,
            "factor": float(rope["factor"]),
            "low_factor": float(rope["low_freq_factor"]),
            "high_factor": float(rope["high_freq_factor"]),
        }
    if kind not in ("longrope", "su"):  # su: the older name
        raise WeightsError(f"rope scaling {kind!r} is unknown; known are linear, llama3, longrope")
    return {
        "kind": "longrope",
        "original_length": original,
        "factor": float(rope.get("factor") or c["max_position_embeddings"] / original),
        "short": tuple(map(float, rope["short_factor"])),
        "long": tuple(map(float, rope["long_factor"])),
    }


def write(family: str, lm: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `read`."""
    scaling, rope = lm["scaling"], {"rope_theta": lm["theta"], "rope_type": "default"}
    head = lm["head_width"] or lm["width"] // lm["heads"]
    positions: dict[str, Any] = {}
    if scaling is not None:
        original, factor = scaling["original_length"], scaling["factor"]
        rope["rope_type"] = scaling["kind"]
        if scaling["kind"] != "linear":
            rope["original_max_position_embeddings"] = original
            positions["max_position_embeddings"] = round(original * factor)
        if scaling["kind"] != "longrope":
            rope["factor"] = factor
        if scaling["kind"] == "llama3":
            rope |= {f"{side}_freq_factor": scaling[f"{side}_factor"] for side in ("low", "high")}
        elif scaling["kind"] == "longrope":
            positions["original_max_position_embeddings"] = original
            rope |= {f"{kind}_factor": list(scaling[kind]) for kind in ("short", "long")}
    return {
        "model_type": family,
        **{theirs: lm[ours] for ours, theirs in _FIELDS.items()},
        "num_key_value_heads": lm["kv_heads"] or lm["heads"],
        "head_dim": head,
        "hidden_act": FAMILIES[family]["hidden_act"],
        "rope_theta": lm["theta"],
        "rope_parameters": rope,
        "sliding_window": lm["window"],
        **positions,
        **(_write_gemma3(lm, rope, head) if family == "gemma3_text" else {}),
    }


def _write_gemma3(lm: Mapping[str, Any], rope: Mapping[str, Any], head: int) -> dict[str, Any]:
    """Fields of Gemma 3, with the names of transformers 5 and the earlier names."""
    local = {"rope_theta": lm["local_theta"], "rope_type": "default"}
    scaling = {key: value for key, value in rope.items() if key != "rope_theta"}
    return {
        "hidden_activation": FAMILIES["gemma3_text"]["hidden_act"],
        "layer_types": _layer_types(lm["global_every"], lm["depth"]),
        "sliding_window_pattern": lm["global_every"],
        "query_pre_attn_scalar": lm["scale_width"] or head,
        "rope_parameters": {"full_attention": dict(rope), "sliding_attention": local},
        "rope_local_base_freq": lm["local_theta"],
        "rope_scaling": scaling if lm["scaling"] else None,
    }


def require(config: Mapping[str, Any], name: str, value: Any) -> None:
    """Raises WeightsError if a config field has a value that models.lm does not support."""
    if config.get(name, value) not in (value, None):
        raise WeightsError(f"config.json has {name} {config[name]!r}; only {value!r} is supported")
