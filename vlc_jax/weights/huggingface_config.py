"""Metadata in Hugging Face's config.json and in its processors' files."""

from collections.abc import Mapping
from typing import Any

from vlc_jax.errors import WeightsError
from vlc_jax.weights.sections import Key, Section, mapping, names, square_root

ACTIVATIONS = {
    "quick_gelu": "quick_gelu",
    "gelu": "gelu",
    # one formula under three names
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_python": "gelu",
}
MAX_DEPTH = 1_000  # of a file's number of blocks
CLIP_L14 = (1024, 24, 16, 4096)  # width, depth, heads, MLP width


def transformer(width: int, depth: int, heads: int, mlp_width: int) -> dict[str, Key]:
    """Sizes of any transformer, with their defaults."""
    return {
        "width": Key("hidden_size", width),
        "depth": Key("num_hidden_layers", depth, range(1, MAX_DEPTH + 1)),
        "heads": Key("num_attention_heads", heads),
        "mlp_width": Key("intermediate_size", mlp_width),
    }


def activation(default: str) -> Key:
    """The activation of a tower; default: their name."""
    return Key("hidden_act", default, ACTIVATIONS)


# An image tower in vision_config. Its defaults are those of LlavaConfig without a vision_config.
IMAGE = Section(
    {
        **transformer(*CLIP_L14),
        "image_size": Key("image_size", 336),
        "patch_size": Key("patch_size", 14),
        "activation": activation("quick_gelu"),
        "epsilon": Key("layer_norm_eps", 1e-5),
    }
)
# What the files of two towers say of them beside the shapes of their arrays. Defaults are of the
# classes: a config.json holds only values that differ from them.
# vision_use_head: SigLIP's attention pooling. pruned_heads: of older transformers.
_TOWER = {"fixed": {"vision_use_head": (True,), "pruned_heads": ({},)}}
_IMAGE = Section(
    {
        "image_activation": activation("quick_gelu"),
        "image_epsilon": Key("layer_norm_eps", 1e-5),
        "image_heads": Key("num_attention_heads", 12),
        "image_size": Key("image_size"),
    },
    **_TOWER,
)
_TEXT = Section(
    {
        "text_activation": activation("quick_gelu"),
        "text_epsilon": Key("layer_norm_eps", 1e-5),
        "text_heads": Key("num_attention_heads", 8),
        "context_length": Key("max_position_embeddings", 77),
        "vocab_size": Key("vocab_size", 49_408),
    },
    **_TOWER,
)
# CLIP's tower pools at the end token. SigLIP's does not: published values are wrong (49407 of
# 32,000 tokens).
_CLIP = (_IMAGE, _TEXT.but({"eos_id": Key("eos_token_id")}))
_TANH = {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6}
_SIGLIP_TEXT = {"num_attention_heads": 12, "max_position_embeddings": 64, "vocab_size": 32_000}
_SIGLIP = (_IMAGE.but(**_TANH), _TEXT.but(**_TANH, **_SIGLIP_TEXT))
_BERT = {"layer_norm_eps": 1e-12, "max_position_embeddings": 512, "vocab_size": 30_524}
# model_type -> sections of both towers
TOWERS: dict[str, tuple[Section, Section]] = {
    "clip": _CLIP,
    # CLIP's arrays and formulas, but texts always end at eos_token_id, 2 as well
    "metaclip_2": _CLIP,
    "siglip": _SIGLIP,
    "siglip2": _SIGLIP,  # NaFlex, for images of any aspect ratio
    # the authors' models have 12 and 12 heads, and 1e-6 in the image tower
    "blip": (_IMAGE.but(hidden_act="gelu"), _TEXT.but(hidden_act="gelu", **_BERT)),
}
_OLDER = ("vision_config_dict", "text_config_dict")  # `section`
# image_size: of the position table alone
_DINOV2 = Section(
    {
        "image_activation": activation("gelu"),
        "image_epsilon": Key("layer_norm_eps", 1e-6),
        "image_heads": Key("num_attention_heads", 12),
        "is_gated": Key("use_swiglu_ffn", False),
    },
    fixed={"qkv_bias": (True,), "pruned_heads": ({},)},
    shown=("image_size", "mlp_ratio", "num_register_tokens"),
)
DINOV2 = ("dinov2", "dinov2_with_registers")


def section(config: Mapping[str, Any], name: str) -> Any:
    """vision_config or text_config of a CLIP; None without.

    transformers completes a vision_config_dict of older files with the defaults of its class, which
    then replaces every value of vision_config.
    """
    older = config.get(f"{name}_dict")
    return config.get(name) if older is None else older


def model(config: Any, file: str) -> dict[str, Any]:
    """Metadata of a config.json; `file` is its name, for messages."""
    config = mapping(config, file)
    kind = str(config.get("model_type"))[:50]
    if kind in DINOV2:
        tower = _DINOV2.read(config, file)
        return tower | ({"image_activation": "swiglu"} if tower.pop("is_gated") else {})
    if kind not in TOWERS:
        raise WeightsError(f"{file} is of model_type {kind!r}; known: {[*TOWERS, *DINOV2]}")
    is_clip = kind in ("clip", "metaclip_2")
    # FG-CLIP's names its own code, whose model is `long_clip`
    is_fg_clip = config.get("architectures") == ["FGCLIPModel"]
    shown = ((*_OLDER, "projection_dim") if is_clip else ()) + (("auto_map",) if is_fg_clip else ())
    Section(fixed={"pruned_heads": ({},)}, shown=shown).read(config, file)
    metadata: dict[str, Any] = {}
    for name, table in zip(("vision_config", "text_config"), TOWERS[kind], strict=True):
        content = section(config, name) if is_clip else config.get(name)
        metadata |= table.read(content, f"{file}, {name}")
    if kind == "clip" and metadata["eos_id"] == 2:  # its code for the largest id of a text
        metadata["eos_id"] = None
    return {key: value for key, value in metadata.items() if value is not None}


_MOMENTS = {
    "image_mean": (0.48145466, 0.4578275, 0.40821073),
    "image_std": (0.26862954, 0.26130258, 0.27577711),
}
_HALF = {"image_mean": (0.5,) * 3, "image_std": (0.5,) * 3}
# Defaults of the image processors' classes, without the suffixes of their implementations.
_CLIP_PIXELS = {
    "size": {"shortest_edge": 224},
    "crop_size": 224,
    "resample": 3,
    "do_center_crop": True,
    **_MOMENTS,
}
_SIGLIP_PIXELS = {"size": {"height": 224, "width": 224}, "resample": 3, **_HALF}
_PROCESSORS: dict[str, dict[str, Any]] = {
    "CLIPImageProcessor": _CLIP_PIXELS,
    "CLIPFeatureExtractor": _CLIP_PIXELS,
    "LlavaImageProcessor": _CLIP_PIXELS,
    "BlipImageProcessor": {"size": {"height": 384, "width": 384}, "resample": 3, **_MOMENTS},
    "BitImageProcessor": _CLIP_PIXELS,
    "SiglipImageProcessor": _SIGLIP_PIXELS,
    "Gemma3ImageProcessor": _SIGLIP_PIXELS | {"resample": 2},
    "Siglip2ImageProcessor": {"resample": 2, **_HALF},
}
PIXELS = Section(
    {
        "mean": Key("image_mean", ()),
        "std": Key("image_std", ()),
        "interpolation": Key("resample", None, {2: "bilinear", 3: "bicubic"}),  # Pillow's numbers
    },
    fixed={
        "do_resize": (True,),
        "do_rescale": (True,),
        "do_normalize": (True,),
        "do_pan_and_scan": (False,),
        "do_image_splitting": (False,),
        "crop_pct": (1.0,),
        "pad_size": (),
    },
    shown=names(
        """crop_size do_center_crop do_pad feature_extractor_type image_processor_type
        rescale_factor size"""
    ),
)
_NAFLEX_PATCH = 16  # of the published models and the default of the processor
_NAFLEX = PIXELS.but(
    {"patches": Key("max_num_patches", 256)}, fixed={"patch_size": (_NAFLEX_PATCH,)}
)


def nested_processor(config: Any, file: str) -> dict[str, Any]:
    """Metadata of processor_config.json: transformers 5 saves the image processor inside it."""
    pixels = mapping(config, file).get("image_processor")
    return {} if pixels is None else processor(pixels, f"{file}, image_processor")


def processor(config: Any, file: str) -> dict[str, Any]:
    """Metadata of an image processor, in preprocessor_config.json."""
    config = mapping(config, file)
    name = config.get("image_processor_type") or config.get("feature_extractor_type")
    kind = str(name).removesuffix("Fast").removesuffix("Pil")
    is_naflex, values = kind == "Siglip2ImageProcessor", {**_PROCESSORS.get(kind, {}), **config}
    metadata = (_NAFLEX if is_naflex else PIXELS).read(values, file)
    factor = Key("rescale_factor", 1 / 255).read(values, file)
    if abs(255 * factor - 1) > 1e-3:
        raise WeightsError(f"{file}: rescale_factor is {factor}; only 1/255 is supported")
    if is_naflex:
        side = square_root(metadata.pop("patches"), "max_num_patches", file)
        metadata |= {"crop": "naflex", "image_size": side * _NAFLEX_PATCH}
    elif "size" in values:
        metadata |= _crop(values, file, kind)
    return {key: value for key, value in metadata.items() if value}


def _crop(values: Mapping[str, Any], where: str, kind: str) -> dict[str, Any]:
    """`crop` and `image_size` from sizes. Raises WeightsError where pixels are cut or padded
    otherwise than ours."""
    size = values["size"]
    if isinstance(size, int):  # of older files; only CLIP's class takes it for the shorter side
        is_side = kind not in _PROCESSORS or "shortest_edge" in _PROCESSORS[kind]["size"]
        size = {"shortest_edge": size} if is_side else {"height": size, "width": size}
    size = mapping(size, f"{where}, size")
    if set(size) == {"shortest_edge"}:
        crop, side = "centre", size["shortest_edge"]
    elif set(size) == {"height", "width"} and size["height"] == size["width"]:
        crop, side = "none", size["height"]
    else:
        raise WeightsError(
            f"{where}: size has {', '.join(f'{k} {v}' for k, v in size.items())}; only "
            "shortest_edge, or equal height and width, is supported"
        )
    Key("size", int).read({"size": side}, where)
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
