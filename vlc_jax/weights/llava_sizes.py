"""config.json of LLaVA's relatives and of language models alone <-> sizes of models.llava.

Of Hugging Face's folders, and of those that LLaVA's own code writes. The sizes are plain values.
"""

import math
from collections.abc import Mapping
from typing import Any

from vlc_jax.errors import WeightsError
from vlc_jax.weights import config_keys, huggingface_config, instructblip, lm_config, qwen3_vl

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
SELECT = {"default": "patch", "full": "cls_patch", "cls": "cls"}  # "cls" is ours, and LLaVA forks'
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
        lm_config.require(text, "use_bidirectional_attention", True)
        text = {**text, "use_bidirectional_attention": None}
    family = _text(text, "model_type", "llama")
    fields = lm_config.read(text, family)
    config_keys.check(
        text,
        "config.json" if text is config else "config.json, text_config",
        read=lm_config.READ,
        fixed={},
        harmless=config_keys.TRANSFORMERS | lm_config.HARMLESS,
    )
    sizes = {"family": family, "lm": fields}
    if kind == instructblip.KIND:
        return sizes | instructblip.read(config)
    if kind == qwen3_vl.KIND:
        return sizes | qwen3_vl.read(config, fields)
    if kind in (*_IMAGE_IDS, "llava"):
        harmless = config_keys.TRANSFORMERS | _HARMLESS
        fixed = {"image_aspect_ratio": _ORIGINAL_FIXED["image_aspect_ratio"]}  # of our exports
        config_keys.check(config, "config.json", read=_READ, fixed=fixed, harmless=harmless)
    if kind in _IMAGE_IDS:
        return sizes | _over_siglip(config, fields)
    if kind != "llava":
        return sizes
    lm_config.require(config, "projector_hidden_act", "gelu")
    lm_config.require(config, "multimodal_projector_bias", True)
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
    token = config.get("image_token_index", config.get("image_token_id", _IMAGE_IDS[kind]))
    sizes = {"kind": kind, "image": image | _SIGLIP_TOWER, "layer": -1}
    sizes |= {"image_id": token, "select": "patch"}
    if kind == "gemma3":
        count = config.get("mm_tokens_per_image", 256)
        sizes["side"] = math.isqrt(count)
        lm_config.require({"mm_tokens_per_image": count}, "mm_tokens_per_image", sizes["side"] ** 2)
    return sizes


def write(sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Content of a Hugging Face config.json from `sizes`, the inverse of `read`."""
    text = lm_config.write(sizes["family"], sizes["lm"])
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
            **huggingface_config.write_section(image, huggingface_config.IMAGE),
        },
        "vision_feature_layer": sizes["layer"],
        "vision_feature_select_strategy": strategy,
        "image_token_index": sizes["image_id"],
        "image_seq_length": side**2 + (strategy == "full"),
        "projector_hidden_act": "gelu",
        "tie_word_embeddings": sizes["lm"]["is_tied"],
    }


def _write_over_siglip(sizes: Mapping[str, Any], text: Mapping[str, Any]) -> dict[str, Any]:
    vision = huggingface_config.write_section(sizes["image"], huggingface_config.IMAGE)
    width, is_paligemma = sizes["lm"]["width"], sizes["kind"] == "paligemma"
    more = {"projection_dim": width, "hidden_size": width}
    return {
        "architectures": [f"{'PaliGemma' if is_paligemma else 'Gemma3'}ForConditionalGeneration"],
        "model_type": sizes["kind"],
        "text_config": text,
        "vision_config": {"model_type": "siglip_vision_model", **vision, "vision_use_head": False},
        "image_token_index": sizes["image_id"],
        "tie_word_embeddings": sizes["lm"]["is_tied"],
        **(more if is_paligemma else {"mm_tokens_per_image": sizes["side"] ** 2}),
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
    lm_config.require(filled, "model_type", f"{kind}_vision_model")
    fields = {ours: filled[theirs] for ours, theirs in huggingface_config.IMAGE.items()}
    activation = fields["activation"]
    return fields | {"activation": huggingface_config.ACTIVATIONS.get(activation, activation)}


def _original(config: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a folder written by LLaVA's own code, where the image tower is only a name."""
    lm_config.require(config, "mm_projector_type", "mlp2x_gelu")
    config_keys.check(
        config,
        "config.json",
        read=_ORIGINAL_READ | lm_config.READ,
        fixed=_ORIGINAL_FIXED,
        harmless=config_keys.TRANSFORMERS | _ORIGINAL_HARMLESS | lm_config.HARMLESS,
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
        "lm": lm_config.read(config, family),
        "image": image_tower(config.get("vision_config") or TOWERS[tower]),
        "layer": _layer(config, "mm_vision_select_layer"),
        "image_id": SENTINEL,
        "select": config.get("mm_vision_select_feature", "patch"),
    }
