"""config.json of Hugging Face's and LLaVA's folders, as the fields of models.lm and models.llava.

The fields are plain values: a rope scaling is a dict of the fields of models.rope.Scaling.
"""

from collections.abc import Mapping
from typing import Any

from vlc_jax.errors import WeightsError

# What a config.json may leave out: the defaults of transformers' classes, by model_type.
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
}
_CLIP_L14 = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "patch_size": 14,
    "image_size": 224,
}
# Image towers that LLaVA's own folders name, as Hugging Face's vision_config.
TOWERS = {
    "openai/clip-vit-large-patch14": _CLIP_L14,
    "openai/clip-vit-large-patch14-336": {**_CLIP_L14, "image_size": 336},
}
SELECT = {"default": "patch", "full": "cls_patch", "cls": "cls"}  # "cls" is ours, and LLaVA forks'
SENTINEL = -200  # of LLaVA's own code: the id of an image in a tokenised prompt


def read(config: Mapping[str, Any]) -> dict[str, Any]:
    """{"family", "lm"} of a language model; of LLaVA also {"image", "layer", "image_id", "select"}.

    lm, image: fields of models.lm.Decoder and of models.llava.image_tower, whose `depth` is that of
    the file and `layer` the hidden state that is used.
    Raises WeightsError for models that ours are not.
    """
    if "mm_projector_type" in config or "mm_vision_tower" in config:
        return _original(config)
    text = config.get("text_config", config)
    family, fields = _language_model(text, text.get("model_type", "llama"))
    found = {"family": family, "lm": fields}
    if config.get("model_type") != "llava":
        return found
    _require(config, "projector_hidden_act", "gelu")
    _require(config, "multimodal_projector_bias", True)
    if config.get("tie_word_embeddings"):
        fields["is_tied"] = True
    strategy = config.get("vision_feature_select_strategy", "default")
    if strategy not in SELECT:
        raise WeightsError(
            f"vision_feature_select_strategy {strategy!r} is unknown; known are {', '.join(SELECT)}"
        )
    return found | {
        "image": _image_tower(config.get("vision_config", {})),
        "layer": config.get("vision_feature_layer", -2),
        "image_id": config.get("image_token_index", config.get("image_token_id", 32_000)),
        "select": SELECT[strategy],
    }


def write(sizes: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a config.json for Hugging Face, of what `read` gives."""
    text = _write_language_model(sizes["family"], sizes["lm"])
    if "image" not in sizes:
        names = {"llama": "Llama", "mistral": "Mistral", "phi3": "Phi3", "gemma": "Gemma"}
        return text | {"architectures": [f"{names[sizes['family']]}ForCausalLM"]}
    image = sizes["image"]
    side = image["image_size"] // image["patch_size"]
    strategy = next(theirs for theirs, ours in SELECT.items() if ours == sizes["select"])
    return {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "text_config": text,
        "vision_config": {
            "model_type": "clip_vision_model",
            **{theirs: image[ours] for ours, theirs in _IMAGE.items()},
        },
        "vision_feature_layer": sizes["layer"],
        "vision_feature_select_strategy": strategy,
        "image_token_index": sizes["image_id"],
        "image_seq_length": side**2 + (strategy == "full"),
        "projector_hidden_act": "gelu",
        "tie_word_embeddings": sizes["lm"]["is_tied"],
    }


_IMAGE = {
    "width": "hidden_size",
    "depth": "num_hidden_layers",
    "heads": "num_attention_heads",
    "mlp_width": "intermediate_size",
    "image_size": "image_size",
    "patch_size": "patch_size",
    "activation": "hidden_act",
    "epsilon": "layer_norm_eps",
}


def _image_tower(vision: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {**TOWERS["openai/clip-vit-large-patch14-336"], "hidden_act": "quick_gelu"}
    filled = {**defaults, "layer_norm_eps": 1e-5, **vision}
    _require(filled, "model_type", "clip_vision_model")
    return {ours: filled[theirs] for ours, theirs in _IMAGE.items()}


def _original(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of a folder by LLaVA's own code, which names its image tower."""
    _require(config, "mm_projector_type", "mlp2x_gelu")
    names = f"{config.get('model_type')} {config.get('architectures')}".lower()
    family = next((name for name in ("phi", "mistral", "gemma") if name in names), "llama")
    family = {"phi": "phi3"}.get(family, family)
    tower = config.get("mm_vision_tower")
    if tower not in TOWERS and "vision_config" not in config:
        raise WeightsError(
            f"mm_vision_tower {tower!r} is unknown; known are {', '.join(TOWERS)}. Of another CLIP "
            'tower, add its config.json to this one as "vision_config"'
        )
    return {
        "family": family,
        "lm": _language_model(config, family)[1],
        "image": _image_tower(config.get("vision_config") or TOWERS[tower]),
        "layer": config.get("mm_vision_select_layer", -2),
        "image_id": SENTINEL,
        "select": config.get("mm_vision_select_feature", "patch"),
    }


def _language_model(text: Mapping[str, Any], family: str) -> tuple[str, dict[str, Any]]:
    if family not in FAMILIES:
        raise WeightsError(
            f"model_type {family!r} is no language model known here: {', '.join(FAMILIES)}"
        )
    c = FAMILIES[family] | {k: v for k, v in text.items() if v is not None or k == "sliding_window"}
    for name in ("attention_bias", "mlp_bias", "use_bidirectional_attention"):
        _require(c, name, False)
    activation = "gelu_pytorch_tanh" if family == "gemma" else "silu"
    if family != "gemma":  # whose older files say "gelu", and mean its approximation
        _require(c, "hidden_act", activation)
    rope = (c.get("rope_scaling") or {}) | (c.get("rope_parameters") or {})
    _require(c | rope, "partial_rotary_factor", 1.0)
    head = c["head_dim"]
    return family, {
        "vocab": c["vocab_size"],
        "width": c["hidden_size"],
        "depth": c["num_hidden_layers"],
        "heads": c["num_attention_heads"],
        "mlp_width": c["intermediate_size"],
        "kv_heads": c["num_key_value_heads"],
        "head_width": None if head == c["hidden_size"] // c["num_attention_heads"] else head,
        "epsilon": c["rms_norm_eps"],
        "theta": float(rope.get("rope_theta", c.get("rope_theta", 10_000.0))),
        "scaling": _scaling(c, rope),
        "window": c["sliding_window"] if family in ("mistral", "phi3") else None,
        "is_tied": c["tie_word_embeddings"],
        "activation": {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}[activation],
        "unit_offset": family == "gemma",
        "scales_embeddings": family == "gemma",
    }


def _scaling(c: Mapping[str, Any], rope: Mapping[str, Any]) -> dict[str, Any] | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    _require(rope, "attention_factor", None)
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
    if kind not in ("longrope", "su"):  # its older name
        raise WeightsError(f"rope scaling {kind!r} is unknown; known are llama3, longrope")
    return {
        "kind": "longrope",
        "original_length": original,
        "factor": float(rope.get("factor") or c["max_position_embeddings"] / original),
        "short": tuple(map(float, rope["short_factor"])),
        "long": tuple(map(float, rope["long_factor"])),
    }


def _write_language_model(family: str, lm: Mapping[str, Any]) -> dict[str, Any]:
    scaling, rope = lm["scaling"], {"rope_theta": lm["theta"], "rope_type": "default"}
    positions: dict[str, Any] = {}
    if scaling is not None:
        original, factor = scaling["original_length"], scaling["factor"]
        rope |= {"rope_type": scaling["kind"], "original_max_position_embeddings": original}
        positions["max_position_embeddings"] = round(original * factor)
        if scaling["kind"] == "llama3":
            rope |= {"factor": factor}
            rope |= {f"{side}_freq_factor": scaling[f"{side}_factor"] for side in ("low", "high")}
        else:
            positions["original_max_position_embeddings"] = original
            rope |= {f"{kind}_factor": list(scaling[kind]) for kind in ("short", "long")}
    optional = {"head_dim": lm["head_width"]} if lm["head_width"] else {}
    return {
        "model_type": family,
        "vocab_size": lm["vocab"],
        "hidden_size": lm["width"],
        "num_hidden_layers": lm["depth"],
        "num_attention_heads": lm["heads"],
        "num_key_value_heads": lm["kv_heads"] or lm["heads"],
        "intermediate_size": lm["mlp_width"],
        "hidden_act": FAMILIES[family]["hidden_act"],
        "rms_norm_eps": lm["epsilon"],
        "rope_theta": lm["theta"],
        "rope_parameters": rope,
        "sliding_window": lm["window"],
        "tie_word_embeddings": lm["is_tied"],
        **positions,
        **optional,
    }


def _require(config: Mapping[str, Any], name: str, value: Any) -> None:
    """Raises WeightsError if a config has another value of what ours has no choice of."""
    if config.get(name, value) not in (value, None):
        raise WeightsError(f"config.json has {name} {config[name]!r}; only {value!r} is known here")
