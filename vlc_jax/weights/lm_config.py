"""config.json of Hugging Face's and LLaVA's folders <-> fields of models.lm and models.llava.

The fields are plain values: a rope scaling is a dict of the fields of models.rope.Scaling.
"""

import math
from collections.abc import Mapping
from typing import Any

from vlc_jax.errors import WeightsError
from vlc_jax.weights import config_keys, huggingface_config, instructblip

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
}
_CLIP_L14 = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "patch_size": 14,
    "image_size": 224,
}
# Image towers of LLaVA's own folders (mm_vision_tower), as Hugging Face's vision_config.
TOWERS = {
    "openai/clip-vit-large-patch14": _CLIP_L14,
    "openai/clip-vit-large-patch14-336": {**_CLIP_L14, "image_size": 336},
}
# What a vision_config leaves out. For CLIP: the tower that LlavaConfig has without a vision_config,
# not CLIPVisionConfig's own defaults, which are those of B/32.
_TOWER_DEFAULTS = {
    "clip": {**_CLIP_L14, "image_size": 336, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5},
    "siglip": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "patch_size": 16,
        "image_size": 224,
        "hidden_act": "gelu_pytorch_tanh",
        "layer_norm_eps": 1e-6,
    },
}
# Fields of the image tower that differ from CLIP's; the pooling is not used.
_SIGLIP_TOWER = {"pre_norm": False, "patch_bias": True, "pooling": "mean"}
_ACTIVATIONS = {"gelu_pytorch_tanh": "gelu_tanh"}  # transformers -> ours, where names differ
SELECT = {"default": "patch", "full": "cls_patch", "cls": "cls"}  # "cls" is ours, and LLaVA forks'
# Keys of each section of config.json that are read below, or show in the shapes of arrays.
_LM_READ = config_keys.names(
    """_sliding_window_pattern attention_bias attn_logit_softcapping final_logit_softcapping
    head_dim hidden_act hidden_activation hidden_size intermediate_size layer_types
    max_position_embeddings mlp_bias num_attention_heads num_hidden_layers num_key_value_heads
    original_max_position_embeddings partial_rotary_factor query_pre_attn_scalar rms_norm_eps
    rope_local_base_freq rope_parameters rope_scaling rope_theta sliding_window
    sliding_window_pattern tie_word_embeddings use_bidirectional_attention vocab_size"""
)
_LM_HARMLESS = config_keys.names("embd_pdrop num_image_tokens pretraining_tp resid_pdrop")
_READ = config_keys.names(
    """image_token_id image_token_index mm_tokens_per_image multimodal_projector_bias
    projector_hidden_act text_config tie_word_embeddings vision_config vision_feature_layer
    vision_feature_select_strategy"""
)
_HARMLESS = config_keys.names(
    """_vocab_size boi_token_id boi_token_index eoi_token_id eoi_token_index hidden_size
    ignore_index image_seq_length vlc_jax vocab_size"""
)
_TOWER_HARMLESS = config_keys.names("num_image_tokens num_positions vision_use_head")
_ORIGINAL_READ = config_keys.names(
    """image_aspect_ratio mm_projector_type mm_vision_select_feature mm_vision_select_layer
    mm_vision_tower vision_config"""
)
_ORIGINAL_FIXED = {
    "image_aspect_ratio": ("pad", "square"),
    "mm_patch_merge_type": ("flat",),
    "mm_resampler_type": (),
    "mm_use_im_start_end": (False,),
    "s2": (False,),
}
# mm_use_im_patch_token: a further token of the vocabulary, in no prompt
_ORIGINAL_HARMLESS = config_keys.names(
    """freeze_mm_mlp_adapter freeze_mm_vision_resampler image_crop_resolution image_grid_pinpoints
    image_split_resolution mm_hidden_size mm_projector_lr mm_use_im_patch_token mm_vision_tower_lr
    tokenizer_model_max_length tokenizer_padding_side tune_mm_mlp_adapter tune_mm_vision_resampler
    unfreeze_mm_vision_tower use_mm_proj vlc_jax"""
)
SENTINEL = -200  # of LLaVA's own code: the id of an image in a tokenised prompt


def read(config: Mapping[str, Any]) -> dict[str, Any]:
    """{"family", "lm"} of a language model; for LLaVA also {"image", "layer", "image_id",
    "select"}, for PaliGemma, Gemma 3 and InstructBLIP `kind` (models.llava.KINDS), for Gemma 3
    `side`, for InstructBLIP `qformer`.

    lm, image: fields of models.lm.Decoder and of the image tower, with the `depth` of the
    file; layer: the selected hidden state.
    Raises WeightsError for models that models.lm and models.llava do not support.
    """
    if "mm_projector_type" in config or "mm_vision_tower" in config:
        return _original(config)
    text, kind = config.get("text_config", config), _text(config, "model_type", "")
    if not isinstance(text, Mapping):
        raise WeightsError(f"text_config holds the fields of a language model; got {text!r}")
    if kind == "paligemma":  # Hugging Face sets the flag, and means bidirectional prompts only
        _require(text, "use_bidirectional_attention", True)
        text = {**text, "use_bidirectional_attention": None}
    family, fields = _language_model(text, _text(text, "model_type", "llama"))
    config_keys.check(
        text,
        "config.json" if text is config else "config.json, text_config",
        read=_LM_READ,
        fixed={},
        harmless=config_keys.TRANSFORMERS | _LM_HARMLESS,
    )
    sizes = {"family": family, "lm": fields}
    if kind == instructblip.KIND:
        return sizes | instructblip.read(config)
    if kind in (*_IMAGE_IDS, "llava"):
        harmless = config_keys.TRANSFORMERS | _HARMLESS
        fixed = {"image_aspect_ratio": _ORIGINAL_FIXED["image_aspect_ratio"]}  # of our exports
        config_keys.check(config, "config.json", read=_READ, fixed=fixed, harmless=harmless)
    if kind in _IMAGE_IDS:
        return sizes | _over_siglip(config, fields)
    if kind != "llava":
        return sizes
    _require(config, "projector_hidden_act", "gelu")
    _require(config, "multimodal_projector_bias", True)
    if config.get("tie_word_embeddings"):
        fields["is_tied"] = True
    strategy = config.get("vision_feature_select_strategy", "default")
    if strategy not in SELECT:
        raise WeightsError(
            f"vision_feature_select_strategy {strategy!r} is unknown; known are {', '.join(SELECT)}"
        )
    return sizes | {
        "image": image_tower(config.get("vision_config", {})),
        "layer": _layer(config, "vision_feature_layer"),
        "image_id": config.get("image_token_index", config.get("image_token_id", 32_000)),
        "select": SELECT[strategy],
    }


def _layer(config: Mapping[str, Any], name: str) -> int:
    layer = config.get(name, -2)
    if not isinstance(layer, int):
        raise WeightsError(f"config.json has {name} {layer}; only one layer is supported")
    return layer


# Image token of PaliGemma and Gemma 3 if config.json omits it, by model_type.
_IMAGE_IDS = {"paligemma": 256_000, "gemma3": 262_144}


def _over_siglip(config: Mapping[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    kind, image = config["model_type"], image_tower(config.get("vision_config", {}), "siglip")
    fields["is_tied"] = config.get("tie_word_embeddings", True)
    image["activation"] = _ACTIVATIONS.get(image["activation"], image["activation"])
    token = config.get("image_token_index", config.get("image_token_id", _IMAGE_IDS[kind]))
    sizes = {"kind": kind, "image": image | _SIGLIP_TOWER, "layer": -1}
    sizes |= {"image_id": token, "select": "patch"}
    if kind == "gemma3":
        count = config.get("mm_tokens_per_image", 256)
        sizes["side"] = math.isqrt(count)
        _require({"mm_tokens_per_image": count}, "mm_tokens_per_image", sizes["side"] ** 2)
    return sizes


def write(sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Content of a Hugging Face config.json from `sizes`, the inverse of `read`."""
    text = _write_language_model(sizes["family"], sizes["lm"])
    if "image" not in sizes:
        name = sizes["family"].removesuffix("_text").capitalize()
        return text | {"architectures": [f"{name}ForCausalLM"]}
    image, kind = sizes["image"], sizes.get("kind")
    if kind == instructblip.KIND:
        return instructblip.write(sizes, text)
    if kind is not None:
        return _write_over_siglip(sizes, text)
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


def _write_over_siglip(sizes: Mapping[str, Any], text: Mapping[str, Any]) -> dict[str, Any]:
    names = {theirs: sizes["image"][ours] for ours, theirs in _IMAGE.items()}
    theirs = {ours: name for name, ours in _ACTIVATIONS.items()}
    names["hidden_act"] = theirs.get(names["hidden_act"], names["hidden_act"])
    width, is_paligemma = sizes["lm"]["width"], sizes["kind"] == "paligemma"
    more = {"projection_dim": width, "hidden_size": width}
    return {
        "architectures": [f"{'PaliGemma' if is_paligemma else 'Gemma3'}ForConditionalGeneration"],
        "model_type": sizes["kind"],
        "text_config": text,
        "vision_config": {"model_type": "siglip_vision_model", **names, "vision_use_head": False},
        "image_token_index": sizes["image_id"],
        "tie_word_embeddings": sizes["lm"]["is_tied"],
        **(more if is_paligemma else {"mm_tokens_per_image": sizes["side"] ** 2}),
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


def _text(config: Mapping[str, Any], name: str, default: str) -> str:
    """A field that is a text; `default` where it is missing."""
    value = config.get(name, default)
    if not isinstance(value, str):
        raise WeightsError(f"{name} is a text, such as 'llama'; got {str(value)[:50]}")
    return value


def image_tower(vision: Mapping[str, Any], kind: str = "clip") -> dict[str, Any]:
    """Fields of the image tower of a vision_config. Raises WeightsError for one of another kind."""
    if not isinstance(vision, Mapping):
        raise WeightsError(f"vision_config holds the fields of an image tower; got {vision!r}")
    config_keys.check(
        vision,
        "config.json, vision_config",
        read=huggingface_config.TOWER,
        fixed={},
        harmless=config_keys.TRANSFORMERS | _TOWER_HARMLESS,
    )
    filled = {**_TOWER_DEFAULTS[kind], **vision}
    _require(filled, "model_type", f"{kind}_vision_model")
    return {ours: filled[theirs] for ours, theirs in _IMAGE.items()}


def _original(config: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a folder written by LLaVA's own code, where the image tower is only a name."""
    _require(config, "mm_projector_type", "mlp2x_gelu")
    config_keys.check(
        config,
        "config.json",
        read=_ORIGINAL_READ | _LM_READ,
        fixed=_ORIGINAL_FIXED,
        harmless=config_keys.TRANSFORMERS | _ORIGINAL_HARMLESS | _LM_HARMLESS,
    )
    names = f"{config.get('model_type')} {config.get('architectures')}".lower()
    family = next((name for name in ("phi", "mistral", "gemma") if name in names), "llama")
    family = {"phi": "phi3"}.get(family, family)
    tower = config.get("mm_vision_tower")
    if tower not in TOWERS and "vision_config" not in config:
        raise WeightsError(
            f"mm_vision_tower {tower!r} is unknown; known: {', '.join(TOWERS)}. For another CLIP "
            'tower, add its config.json to this one as "vision_config"'
        )
    return {
        "family": family,
        "lm": _language_model(config, family)[1],
        "image": image_tower(config.get("vision_config") or TOWERS[tower]),
        "layer": _layer(config, "mm_vision_select_layer"),
        "image_id": SENTINEL,
        "select": config.get("mm_vision_select_feature", "patch"),
    }


# Fields of models.lm.Decoder with the same value in config.json -> their names there.
_LM = {
    "vocab": "vocab_size",
    "width": "hidden_size",
    "depth": "num_hidden_layers",
    "heads": "num_attention_heads",
    "mlp_width": "intermediate_size",
    "kv_heads": "num_key_value_heads",
    "epsilon": "rms_norm_eps",
    "is_tied": "tie_word_embeddings",
}


def _language_model(text: Mapping[str, Any], family: str) -> tuple[str, dict[str, Any]]:
    if family not in FAMILIES:
        raise WeightsError(
            f"model_type {family!r} is no known language model: {', '.join(FAMILIES)}"
        )
    c = FAMILIES[family] | {k: v for k, v in text.items() if v is not None or k == "sliding_window"}
    for name in ("attention_bias", "mlp_bias", "use_bidirectional_attention"):
        _require(c, name, False)
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        _require(c, name, None)
    is_gemma = family in ("gemma", "gemma3_text")
    activation = "gelu_pytorch_tanh" if is_gemma else "silu"
    if family == "gemma3_text":
        _require(c, "hidden_activation", activation)
    elif family != "gemma":  # older Gemma files have "gelu", but mean its tanh approximation
        _require(c, "hidden_act", activation)
    # since transformers 5; Gemma 3 has one entry per kind of attention
    parameters = c.get("rope_parameters") or {}
    rope = (c.get("rope_scaling") or {}) | parameters.get("full_attention", parameters)
    _require(c | rope, "partial_rotary_factor", 1.0)
    head = c["head_dim"]
    fields = {
        **{ours: c[theirs] for ours, theirs in _LM.items()},
        "head_width": None if head == c["hidden_size"] // c["num_attention_heads"] else head,
        "theta": float(rope.get("rope_theta", c.get("rope_theta", 10_000.0))),
        "scaling": _scaling(c, rope),
        "window": c["sliding_window"] if family in ("mistral", "phi3") else None,
        "activation": _ACTIVATIONS.get(activation, activation),
        "unit_offset": is_gemma,
        "scales_embeddings": is_gemma,
    }
    return family, fields | (_gemma3(c) if family == "gemma3_text" else {})


def _gemma3(c: Mapping[str, Any]) -> dict[str, Any]:
    """Additional fields of Gemma 3's language model."""
    local = {"rope_theta": c["rope_local_base_freq"]}
    local |= (c.get("rope_parameters") or {}).get("sliding_attention", {})
    _require(local, "rope_type", "default")
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
    _require(rope, "attention_factor", None)
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


def _write_language_model(family: str, lm: Mapping[str, Any]) -> dict[str, Any]:
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
        **{theirs: lm[ours] for ours, theirs in _LM.items()},
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


def _require(config: Mapping[str, Any], name: str, value: Any) -> None:
    """Raises WeightsError if a config field has a value that models.lm does not support."""
    if config.get(name, value) not in (value, None):
        raise WeightsError(f"config.json has {name} {config[name]!r}; only {value!r} is supported")
