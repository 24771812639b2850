"""Metadata in Hugging Face's config.json and in its processors' files."""

import math
from collections.abc import Mapping
from typing import Any

from vlc_jax.errors import WeightsError
from vlc_jax.weights import config_keys

ACTIVATIONS = {
    "quick_gelu": "quick_gelu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    # one formula under three names
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
}
# Our fields of any transformer -> keys of its section.
SIZES = {
    "width": "hidden_size",
    "depth": "num_hidden_layers",
    "heads": "num_attention_heads",
    "mlp_width": "intermediate_size",
}
# The same of an image tower in vision_config.
IMAGE = {
    **SIZES,
    "image_size": "image_size",
    "patch_size": "patch_size",
    "activation": "hidden_act",
    "epsilon": "layer_norm_eps",
}
# Defaults of Hugging Face's classes: a config.json holds only values that differ from them.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "clip": {
        "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-5,
        "vocab_size": 49_408,
        "max_position_embeddings": 77,
        "heads": {"image": 12, "text": 8},
    },
    "blip": {
        "hidden_act": "gelu",
        "vocab_size": 30_524,
        "max_position_embeddings": 512,
        # the authors' models have 12 and 12, and 1e-6 in the image tower
        "heads": {"image": 12, "text": 8},
        "image": {"layer_norm_eps": 1e-5},
        "text": {"layer_norm_eps": 1e-12},
    },
    "siglip": {
        "hidden_act": "gelu_pytorch_tanh",
        "layer_norm_eps": 1e-6,
        "vocab_size": 32_000,
        "max_position_embeddings": 64,
        "heads": {"image": 12, "text": 12},
    },
}
# MetaCLIP 2: CLIP's arrays and formulas, but texts always end at eos_token_id, 2 as well
_DEFAULTS["metaclip_2"] = _DEFAULTS["clip"]
_DEFAULTS["siglip2"] = _DEFAULTS["siglip"]  # NaFlex, for images of any aspect ratio
_OLDER = ("vision_config_dict", "text_config_dict")  # `section`
DINOV2 = ("dinov2", "dinov2_with_registers")
# Keys of a tower that are read here, or that show in the shapes of its arrays.
TOWER = (
    "hidden_act",
    "hidden_size",
    "image_size",
    "intermediate_size",
    "layer_norm_eps",
    "max_position_embeddings",
    "num_attention_heads",
    "num_channels",
    "num_hidden_layers",
    "patch_size",
    "projection_size",
    "vocab_size",
)
# vision_use_head: SigLIP's attention pooling. pruned_heads: of older transformers.
_TOWER_FIXED = {"vision_use_head": (True,), "pruned_heads": ({},)}


_DINOV2_READ = config_keys.names(
    """hidden_act hidden_size image_size layer_norm_eps mlp_ratio num_attention_heads num_channels
    num_hidden_layers num_register_tokens patch_size use_swiglu_ffn"""
)
# use_mask_token: of an array that pretraining alone reads; the others are of training and backbones
_DINOV2_HARMLESS = config_keys.names(
    """apply_layernorm attention_probs_dropout_prob drop_path_rate hidden_dropout_prob
    layerscale_value out_features out_indices reshape_hidden_states stage_names use_mask_token"""
)


def write_section(fields: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """A section of config.json from our fields; `names` has their keys, as IMAGE."""
    section = {theirs: fields[ours] for ours, theirs in names.items()}
    is_tanh = section["hidden_act"] == "gelu_tanh"
    return section | ({"hidden_act": "gelu_pytorch_tanh"} if is_tanh else {})


def _dinov2(config: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Metadata of a config.json of DINOv2; its image_size is that of the position table alone."""
    config_keys.check(
        config,
        file,
        read=_DINOV2_READ,
        fixed={"qkv_bias": (True,), "pruned_heads": ({},)},
        harmless=config_keys.TRANSFORMERS | _DINOV2_HARMLESS,
    )
    activation = config.get("hidden_act", "gelu")
    is_gated = config.get("use_swiglu_ffn", False)
    return {
        "image_activation": "swiglu" if is_gated else ACTIVATIONS.get(activation, activation),
        "image_epsilon": config.get("layer_norm_eps", 1e-6),
        "image_heads": config.get("num_attention_heads", 12),
    }


def section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """vision_config or text_config of a CLIP; {} without.

    transformers completes a vision_config_dict of older files with the defaults of its class, which
    then replaces every value of vision_config.
    """
    older = config.get(f"{name}_dict")
    return config.get(name) or {} if older is None else older


def model(config: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Metadata of a config.json; `file` is its name, for messages."""
    kind = str(config.get("model_type"))[:50]
    if kind in DINOV2:
        return _dinov2(config, file)
    if kind not in _DEFAULTS:
        known = [*_DEFAULTS, *DINOV2]
        raise WeightsError(f"{file} is of model_type {kind!r}; known: {known}")
    defaults, metadata = _DEFAULTS[kind], dict[str, Any]()
    is_clip = kind in ("clip", "metaclip_2")
    # FG-CLIP's names its own code, whose model is `long_clip`
    is_fg_clip = config.get("architectures") == ["FGCLIPModel"]
    config_keys.check(
        config,
        file,
        read=("vision_config", "text_config", *(_OLDER if is_clip else ())),
        fixed={"pruned_heads": ({},)},
        harmless=config_keys.TRANSFORMERS | ({"auto_map"} if is_fg_clip else set()),
    )
    for part, name in (("image", "vision_config"), ("text", "text_config")):
        fields = section(config, name) if is_clip else config.get(name) or {}
        config_keys.check(
            fields,
            f"{file}, {name}",
            read=(*TOWER, "num_patches") if kind == "siglip2" else TOWER,
            fixed=_TOWER_FIXED,
            harmless=config_keys.TRANSFORMERS,
        )
        heads = {"num_attention_heads": defaults["heads"][part]}
        tower = {**heads, **defaults, **defaults.get(part, {}), **fields}
        metadata[f"{part}_activation"] = ACTIVATIONS.get(tower["hidden_act"], tower["hidden_act"])
        metadata[f"{part}_epsilon"] = tower["layer_norm_eps"]
        metadata[f"{part}_heads"] = tower["num_attention_heads"]
        if part == "image" and "image_size" in tower:
            metadata["image_size"] = tower["image_size"]
        if part == "text":
            metadata["context_length"] = tower["max_position_embeddings"]
            metadata["vocab_size"] = tower["vocab_size"]
            end = tower.get("eos_token_id")
            # CLIP's tower pools there; 2 is its code for the largest id of a text. SigLIP's does
            # not read it: published values are wrong (49407 of 32,000 tokens).
            is_read = kind == "metaclip_2" or (kind == "clip" and end != 2)
            if is_read and isinstance(end, int):
                metadata["eos_id"] = end
    return metadata


_CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
_CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
# Defaults of the image processors' classes, without the suffixes of their implementations.
_CLIP_PIXELS = {
    "size": {"shortest_edge": 224},
    "crop_size": 224,
    "resample": 3,
    "do_center_crop": True,
    "image_mean": _CLIP_MEAN,
    "image_std": _CLIP_STD,
}
_SIGLIP_PIXELS = {
    "size": {"height": 224, "width": 224},
    "resample": 3,
    "image_mean": (0.5,) * 3,
    "image_std": (0.5,) * 3,
}
_PROCESSORS: dict[str, dict[str, Any]] = {
    "CLIPImageProcessor": _CLIP_PIXELS,
    "CLIPFeatureExtractor": _CLIP_PIXELS,
    "LlavaImageProcessor": _CLIP_PIXELS,
    "BlipImageProcessor": {
        "size": {"height": 384, "width": 384},
        "resample": 3,
        "image_mean": _CLIP_MEAN,
        "image_std": _CLIP_STD,
    },
    "BitImageProcessor": _CLIP_PIXELS,
    "SiglipImageProcessor": _SIGLIP_PIXELS,
    "Gemma3ImageProcessor": _SIGLIP_PIXELS | {"resample": 2},
    "Siglip2ImageProcessor": {
        "max_num_patches": 256,
        "resample": 2,
        "image_mean": (0.5,) * 3,
        "image_std": (0.5,) * 3,
    },
}
_NAFLEX_PATCH = 16  # of the published models and the default of the processor
_RESAMPLING = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers
_OTHER_RESAMPLING = {0: "nearest", 1: "lanczos", 4: "box", 5: "hamming"}
_PIXELS_FIXED = {
    "do_resize": (True,),
    "do_rescale": (True,),
    "do_normalize": (True,),
    "do_pan_and_scan": (False,),
    "do_image_splitting": (False,),
    "crop_pct": (1.0,),
    "pad_size": (),
}
_PIXELS_HARMLESS = config_keys.names(
    """_valid_processor_keys data_format default_to_square device disable_grouping
    do_convert_rgb image_seq_length input_data_format model_input_names
    pan_and_scan_max_num_crops pan_and_scan_min_crop_size pan_and_scan_min_ratio_to_activate
    processor_class return_tensors use_fast"""
)
_PIXELS_READ = config_keys.names(
    """crop_size do_center_crop do_pad feature_extractor_type image_mean
    image_processor_type image_std resample rescale_factor size"""
)


def nested_processor(config: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Metadata of processor_config.json: transformers 5 saves the image processor inside it."""
    pixels = config.get("image_processor")
    return {} if pixels is None else processor(pixels, f"{file}, image_processor")


def processor(config: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Metadata of an image processor, in preprocessor_config.json."""
    name = config.get("image_processor_type") or config.get("feature_extractor_type")
    kind = str(name).removesuffix("Fast").removesuffix("Pil")
    is_naflex, read, fixed = kind == "Siglip2ImageProcessor", _PIXELS_READ, _PIXELS_FIXED
    if is_naflex:
        read, fixed = read | {"max_num_patches"}, fixed | {"patch_size": (_NAFLEX_PATCH,)}
    config_keys.check(config, file, read=read, fixed=fixed, harmless=_PIXELS_HARMLESS)
    factor = config.get("rescale_factor")
    if factor is not None and abs(255 * factor - 1) > 1e-3:
        raise WeightsError(f"{file}: rescale_factor is {factor}; only 1/255 is supported")
    values = {**_PROCESSORS.get(kind, {}), **config}
    metadata: dict[str, Any] = {}
    for key, ours in (("image_mean", "mean"), ("image_std", "std")):
        if key in values:
            metadata[ours] = tuple(values[key])
    if values.get("resample") is not None:
        metadata["interpolation"] = _interpolation(values["resample"], file)
    return metadata | (_naflex(values, file) if is_naflex else _crop(values, file, kind))


def _naflex(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """`crop` and `image_size`. Raises WeightsError for a number of patches that is no square."""
    patches = values["max_num_patches"]
    side = math.isqrt(patches)
    if side**2 != patches:
        raise WeightsError(
            f"{where}: max_num_patches is {patches}; only squares are supported, such as 256, 576 "
            "and 1024"
        )
    return {"crop": "naflex", "image_size": side * _NAFLEX_PATCH}


def _interpolation(number: Any, where: str) -> str:
    if number in _RESAMPLING:
        return _RESAMPLING[number]
    name = _OTHER_RESAMPLING.get(number, "unknown")
    raise WeightsError(
        f"{where}: resample is {number!r} ({name}); only 2 (bilinear) and 3 (bicubic) are supported"
    )


def _crop(values: Mapping[str, Any], where: str, kind: str) -> dict[str, Any]:
    """`crop` and `image_size` from sizes; {} without a size.

    Raises WeightsError where pixels are cut or padded otherwise than ours.
    """
    if "size" not in values:
        return {}
    size = values["size"]
    if isinstance(size, int):  # of older files; only CLIP's class takes it for the shorter side
        is_side = kind not in _PROCESSORS or "shortest_edge" in _PROCESSORS[kind]["size"]
        size = {"shortest_edge": size} if is_side else {"height": size, "width": size}
    if set(size) == {"shortest_edge"}:
        crop, side = "centre", size["shortest_edge"]
    elif set(size) == {"height", "width"} and size["height"] == size["width"]:
        crop, side = "none", size["height"]
    else:
        raise WeightsError(
            f"{where}: size has {', '.join(f'{k} {v}' for k, v in size.items())}; only "
            "shortest_edge, or equal height and width, is supported"
        )
    if values.get("do_pad"):
        crop = "pad"
    has_crop = values.get("do_center_crop", crop == "centre")
    if crop == "centre" and not has_crop:
        raise WeightsError(
            f"{where}: shortest_edge {side} without do_center_crop leaves images of any aspect "
            "ratio; only squares are supported"
        )
    cut = values.get("crop_size") if has_crop else None
    cut = {"height": cut, "width": cut} if isinstance(cut, int) else cut
    sides = set() if cut is None else set(cut.values())
    if crop == "centre" and len(sides) == 1 and side == (smaller := max(sides)) * 8 // 7:
        return {"crop": "centre_margin", "image_size": smaller}
    if sides - {side}:
        raise WeightsError(
            f"{where}: images are resized to {side} and cropped to "
            f"{' x '.join(str(x) for x in cut.values())}; only equal sizes are supported. To "
            "accept other pixels than the weights were trained on, write the crop's size as size"
        )
    return {"crop": crop, "image_size": side}
