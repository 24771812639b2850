"""Metadata in open_clip_config.json."""

import re
from collections.abc import Mapping
from typing import Any

from vlc_jax.errors import WeightsError
from vlc_jax.weights import config_keys

# timm's SigLIP towers with tanh GELU, as the authors' (timm 1.0.31); its others use exact GELU.
_TIMM_TANH = re.compile(
    "vit_(base_patch32|so400m_patch16|giantopt_patch16)_siglip|vit_large_patch16_siglip_512"
)
_OFF = (False,)
# Switches of open_clip's transformer blocks, of both towers.
_BLOCKS = {
    "ls_init_value": (),
    "block_type": ("default",),
    **dict.fromkeys(("qk_norm", "scaled_cosine_attn", "scale_heads"), _OFF),
    **dict.fromkeys(("scale_attn_inner", "scale_attn", "scale_fc"), _OFF),
}
_IMAGE_FIXED = _BLOCKS | {
    **dict.fromkeys(("attentional_pool", "no_ln_pre", "final_ln_after_pool"), _OFF),
    "pos_embed_type": ("learnable", "sin_cos_2d"),  # the table is in the weights
    "pool_type": ("tok",),
}
# Of CLIPA and OpenVision, which have all three.
_MEAN_POOLED = {"no_ln_pre": (True,), "final_ln_after_pool": (True,), "pool_type": ("avg",)}
# `layers` and others show in the shapes; dropout works in training only.
_IMAGE_READ = config_keys.names(
    """act_kwargs head_width image_size layers mlp_ratio norm_kwargs patch_size
    timm_model_name width"""
)
_IMAGE_HARMLESS = config_keys.names(
    """attn_pooler_heads attn_pooler_queries output_tokens patch_dropout timm_drop
    timm_drop_path timm_model_pretrained timm_pool timm_proj timm_proj_bias"""
)
_TEXT_FIXED = _BLOCKS | {
    "embed_cls": _OFF,
    "pool_type": ("argmax", "eos", "last"),
    "proj_type": ("linear", "none"),  # shows in the arrays
}
# Names of RoBERTa in `hf_model_name`, without the owner -> heads.
ROBERTA = {"roberta-base": 12, "roberta-large": 16, "xlm-roberta-base": 12, "xlm-roberta-large": 16}
_HF_TEXT_FIXED = {
    "hf_model_name": (*ROBERTA, *(f"FacebookAI/{name}" for name in ROBERTA)),
    "hf_pooler_type": ("mean_pooler", "cls_pooler"),
}
_TEXT_READ = config_keys.names(
    """act_kwargs context_length eos_id heads layers mlp_ratio no_causal_mask norm_kwargs
    proj_bias tokenizer_kwargs vocab_size width"""
)
# final_ln_after_pool: a norm of each token by itself; open_clip does not pass it on to texts
_TEXT_HARMLESS = config_keys.names(
    """final_ln_after_pool hf_model_name hf_model_pretrained hf_pooler_type hf_proj_type
    hf_tokenizer_name output_tokens pad_id tokenizer_mode"""
)
_MODEL_HARMLESS = config_keys.names(
    """cast_dtype custom_text init_logit_bias init_logit_scale nonscalar_logit_scale output_dict"""
)
# Kind of timm's image tower -> its pooling and projection.
_TIMM = {
    "siglip": {"timm_pool": ("map",), "timm_proj": ("none",)},
    "eva": {"timm_pool": ("token",), "timm_proj": ("",)},
    "pe_core": {"timm_pool": ("map",), "timm_proj": ("",)},
}


def model(config: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Metadata of an open_clip_config.json; `file` is its name, for messages."""
    _check(config, file)
    towers, pixels = config["model_cfg"], config.get("preprocess_cfg", {})
    image, text = towers["vision_cfg"], towers["text_cfg"]
    is_quick, metadata = towers.get("quick_gelu", False), dict[str, Any]()
    timm = image.get("timm_model_name")
    if isinstance(image.get("layers"), list):  # a ResNet, whose activation and norms are fixed
        width, head_width = image.get("width", 64), image.get("head_width", 64)
        metadata["image_heads"] = 32 * width // head_width
    elif not timm:
        metadata |= _layers("image", image, is_quick, f"{file}, vision_cfg")
        metadata["image_heads"] = image.get("width", 768) // image.get("head_width", 64)
    elif "siglip" in timm:
        metadata["image_activation"] = "gelu_tanh" if _TIMM_TANH.match(timm) else "gelu"
    if text.get("hf_model_name"):
        metadata |= _roberta(text)
    else:
        metadata |= _layers("text", text, is_quick, f"{file}, text_cfg") | _text(text)
        metadata["text_heads"] = text.get("heads", 8)
    for key in ("mean", "std"):
        if key in pixels:
            metadata[key] = tuple(pixels[key])
    if "interpolation" in pixels:
        metadata["interpolation"] = pixels["interpolation"]
    if "resize_mode" in pixels:
        crops = {"shortest": "centre_torchvision", "squash": "none"}
        metadata["crop"] = crops[pixels["resize_mode"]]
    size = pixels.get("size", image.get("image_size"))
    if size is not None:
        metadata["image_size"] = _side(size, file)
    return metadata


def _check(config: Mapping[str, Any], file: str) -> None:
    """Raises WeightsError for a switch that our models do not have."""
    towers, pixels = config["model_cfg"], config.get("preprocess_cfg", {})
    config_keys.check(config, file, read=("model_cfg", "preprocess_cfg"), fixed={})
    config_keys.check(
        towers,
        f"{file}, model_cfg",
        read=("vision_cfg", "text_cfg", "quick_gelu", "embed_dim"),
        fixed={"multimodal_cfg": ()},
        harmless=_MODEL_HARMLESS,
    )
    image, fixed, harmless = towers["vision_cfg"], _IMAGE_FIXED, _IMAGE_HARMLESS
    if timm := image.get("timm_model_name"):
        image = {"timm_pool": "avg", **image}  # open_clip's default
        fixed = next((values for kind, values in _TIMM.items() if kind in timm), {})
        harmless = (*_IMAGE_HARMLESS, *_IMAGE_FIXED)  # which it does not pass on to timm
    elif image.get("no_ln_pre"):
        image = {"final_ln_after_pool": False, "pool_type": "tok", **image}  # open_clip's defaults
        fixed = fixed | _MEAN_POOLED
    config_keys.check(
        image, f"{file}, vision_cfg", read=_IMAGE_READ, fixed=fixed, harmless=harmless
    )
    text, of_text = towers["text_cfg"], {"fixed": _TEXT_FIXED, "harmless": _TEXT_HARMLESS}
    if text.get("hf_model_name"):
        # hf_proj_type shows in the arrays; fields of open_clip's own text tower are not passed on
        of_text = {"fixed": _HF_TEXT_FIXED, "harmless": (*_TEXT_HARMLESS, *_TEXT_FIXED)}
    config_keys.check(text, f"{file}, text_cfg", read=_TEXT_READ, **of_text)
    config_keys.check(
        pixels,
        f"{file}, preprocess_cfg",
        read=("size", "mean", "std"),
        fixed={
            "mode": ("RGB",),
            "interpolation": ("bicubic", "bilinear"),
            "resize_mode": ("shortest", "squash"),
        },
        harmless=("fill_color",),  # of resize_mode longest
    )


def _side(size: Any, file: str) -> int:
    """Side of the square input."""
    sides = {size} if isinstance(size, int) else set(size)
    if len(sides) != 1:
        raise WeightsError(f"{file}: images of {size} pixels; only squares are supported")
    return sides.pop()


def _layers(part: str, tower: Mapping[str, Any], is_quick: bool, where: str) -> dict[str, Any]:
    """Activation and epsilon of a tower of open_clip's own."""
    activation, norm = tower.get("act_kwargs") or {}, tower.get("norm_kwargs") or {}
    config_keys.check(
        activation, f"{where}, act_kwargs", read=(), fixed={"approximate": ("none", "tanh")}
    )
    config_keys.check(norm, f"{where}, norm_kwargs", read=("eps",), fixed={})
    is_tanh = activation.get("approximate") == "tanh"
    name = "quick_gelu" if is_quick else "gelu_tanh" if is_tanh else "gelu"
    return {f"{part}_activation": name, f"{part}_epsilon": norm.get("eps", 1e-5)}


def _roberta(text: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata of a RoBERTa of transformers, whose activation and epsilon are fixed."""
    pooler = text.get("hf_pooler_type", "mean_pooler")
    return {
        "text_activation": "gelu",
        "text_epsilon": 1e-5,
        "text_heads": ROBERTA[text["hf_model_name"].rpartition("/")[2]],
        "text_pooling": pooler.removesuffix("_pooler"),
        "context_length": text.get("context_length", 77),
    }


def _text(text: Mapping[str, Any]) -> dict[str, Any]:
    pooling = text.get("pool_type", "argmax")
    metadata: dict[str, Any] = {
        "context_length": text.get("context_length", 77),
        "vocab_size": text.get("vocab_size", 49_408),
        "is_causal": not text.get("no_causal_mask", False),
        # argmax: at the largest id, CLIP's end of text
        "text_pooling": "last" if pooling == "last" else "eos",
    }
    if pooling == "eos":
        metadata["eos_id"] = text.get("eos_id", 2)
    cleaning = (text.get("tokenizer_kwargs") or {}).get("clean")
    if cleaning in ("lower", "canonicalize"):
        metadata["lower_case"] = True
        # SigLIP 2: open_clip canonicalises, the authors do not; both are accepted.
        if metadata["vocab_size"] != 256_000:
            metadata["strips_punctuation"] = cleaning == "canonicalize"
    elif "hf_tokenizer_name" not in text and metadata["vocab_size"] == 49_408:
        metadata["lower_case"], metadata["strips_punctuation"] = True, False
    return metadata
