"""Metadata in open_clip_config.json."""

import re
from collections.abc import Mapping
from typing import Any

from vlc_jax.errors import WeightsError
from vlc_jax.weights.sections import Key, Section, mapping, names

# timm's SigLIP towers with tanh GELU, as the authors' (timm 1.0.31); its others use exact GELU.
_TIMM_TANH = re.compile(
    "vit_(base_patch32|so400m_patch16|giantopt_patch16)_siglip|vit_large_patch16_siglip_512"
)
_SWITCHES = (
    "qk_norm", "scaled_cosine_attn", "scale_heads", "scale_attn_inner", "scale_attn", "scale_fc",
    "attentional_pool", "no_ln_pre", "final_ln_after_pool", "embed_cls",
)  # fmt: skip
# Switches of open_clip's transformer blocks, and those of one tower or the other.
_BLOCKS = {"ls_init_value": (), "block_type": ("default",), **dict.fromkeys(_SWITCHES, (False,))}
_ACTIVATION = Section(
    {"activation": Key("approximate", "none", {"none": "gelu", "tanh": "gelu_tanh"})}
)
_NORM = Section({"epsilon": Key("eps", 1e-5)})
# layers, mlp_ratio and patch_size show in the shapes.
_IMAGE = Section(
    {
        "width": Key("width"),
        "head_width": Key("head_width", 64),
        "timm": Key("timm_model_name", ""),
    },
    fixed={
        **_BLOCKS,
        "pos_embed_type": ("learnable", "sin_cos_2d"),  # the table is in the weights
        "pool_type": ("tok",),
    },
    shown=names(
        "act_kwargs image_size layers mlp_ratio norm_kwargs timm_pool timm_proj timm_proj_bias"
    ),
)
# Of CLIPA and OpenVision, which have all three.
_MEAN_POOLED = {"no_ln_pre": (True,), "final_ln_after_pool": (True,), "pool_type": ("avg",)}
# Kind of timm's image tower -> its pooling and projection; timm reads no switch of open_clip's.
_TIMM = {
    "siglip": {"timm_pool": ("map",), "timm_proj": ("none",)},
    "eva": {"timm_pool": ("token",), "timm_proj": ("",)},
    "pe_core": {"timm_pool": ("map",), "timm_proj": ("",)},
}
_READ_OF_TIMM = Section(_IMAGE.fields, shown=_IMAGE.keys)
_POOLINGS = {"argmax": "eos", "eos": "eos", "last": "last"}  # argmax: at CLIP's end of text
_TEXT = Section(
    {
        "context_length": Key("context_length", 77),
        "vocab_size": Key("vocab_size", 49_408),
        "text_heads": Key("heads", 8),
        "is_causal": Key("no_causal_mask", False, {False: True, True: False}),
        "text_pooling": Key("pool_type", "argmax", _POOLINGS),
        "eos_id": Key("eos_id", 2),
    },
    fixed={
        **{key: _BLOCKS[key] for key in _BLOCKS if key != "final_ln_after_pool"},
        "proj_type": ("linear", "none"),  # shows in the arrays
    },
    # final_ln_after_pool: a norm of each token by itself; open_clip does not pass it on to texts
    shown=names(
        """act_kwargs final_ln_after_pool hf_model_name hf_pooler_type layers mlp_ratio norm_kwargs
        proj_bias tokenizer_kwargs width"""
    ),
)
# Names of RoBERTa in `hf_model_name`, without the owner -> heads.
ROBERTA = {"roberta-base": 12, "roberta-large": 16, "xlm-roberta-base": 12, "xlm-roberta-large": 16}
# A RoBERTa of transformers, which reads no field of open_clip's own text tower.
_ROBERTA = Section(
    {
        "text_heads": Key(
            "hf_model_name", str, ROBERTA | {f"FacebookAI/{x}": ROBERTA[x] for x in ROBERTA}
        ),
        "text_pooling": Key(
            "hf_pooler_type", "mean_pooler", {"mean_pooler": "mean", "cls_pooler": "cls"}
        ),
        "context_length": Key("context_length", 77),
    },
    constant={"text_activation": "gelu", "text_epsilon": 1e-5},
    shown=_TEXT.keys,
)
_MODEL = Section(
    {"is_quick": Key("quick_gelu", False)},
    fixed={"multimodal_cfg": ()},
    shown=("embed_dim", "text_cfg", "vision_cfg"),
)
PIXELS = Section(
    {
        "mean": Key("mean", ()),
        "std": Key("std", ()),
        "interpolation": Key("interpolation", None, {x: x for x in ("bicubic", "bilinear")}),
        "crop": Key("resize_mode", None, {"shortest": "centre_torchvision", "squash": "none"}),
    },
    fixed={"mode": ("RGB",)},
    shown=("size",),
)


def model(config: Any, file: str) -> dict[str, Any]:
    """Metadata of an open_clip_config.json; `file` is its name, for messages."""
    config = mapping(config, file)
    Section(shown=("model_cfg", "preprocess_cfg")).read(config, file)
    towers = mapping(config["model_cfg"], f"{file}, model_cfg")
    is_quick = _MODEL.read(towers, f"{file}, model_cfg")["is_quick"]
    image, text = towers["vision_cfg"], towers["text_cfg"]
    pixels = mapping(config.get("preprocess_cfg"), f"{file}, preprocess_cfg")
    metadata = {
        **_image(image, is_quick, f"{file}, vision_cfg"),
        **_text(text, is_quick, f"{file}, text_cfg"),
        **PIXELS.read(pixels, f"{file}, preprocess_cfg"),
    }
    size = pixels.get("size", image.get("image_size"))
    if size is not None:
        metadata["image_size"] = _side(size, file)
    return {key: value for key, value in metadata.items() if value not in (None, ())}


def _side(size: Any, file: str) -> int:
    """Side of the square input."""
    sides = {size} if isinstance(size, int) else set(size)
    if len(sides) != 1:
        raise WeightsError(f"{file}: images of {size} pixels; only squares are supported")
    return Key("size", int).read({"size": sides.pop()}, file)


def _image(content: Any, is_quick: bool, where: str) -> dict[str, Any]:
    content = mapping(content, where)
    timm, section = Key("timm_model_name", "").read(content, where), _IMAGE
    if timm:
        fixed = next((values for kind, values in _TIMM.items() if kind in timm), {})
        content = {"timm_pool": "avg", **content}  # open_clip's default
        section = _READ_OF_TIMM.but(fixed=fixed)
    elif content.get("no_ln_pre"):
        # with open_clip's defaults
        content = {"final_ln_after_pool": False, "pool_type": "tok", **content}
        section = _IMAGE.but(fixed=_MEAN_POOLED)
    tower = section.read(content, where)
    if isinstance(content.get("layers"), list):  # a ResNet, whose activation and norms are fixed
        return {"image_heads": 32 * (tower["width"] or 64) // tower["head_width"]}
    if timm:
        is_tanh = _TIMM_TANH.match(timm)
        return {"image_activation": "gelu_tanh" if is_tanh else "gelu"} if "siglip" in timm else {}
    heads = (tower["width"] or 768) // tower["head_width"]
    return {"image_heads": heads, **_layers("image", content, is_quick, where)}


def _layers(part: str, tower: Mapping[str, Any], is_quick: bool, where: str) -> dict[str, Any]:
    """Activation and epsilon of a tower of open_clip's own."""
    activation = _ACTIVATION.read(tower.get("act_kwargs"), f"{where}, act_kwargs")["activation"]
    epsilon = _NORM.read(tower.get("norm_kwargs"), f"{where}, norm_kwargs")["epsilon"]
    activation = "quick_gelu" if is_quick else activation
    return {f"{part}_activation": activation, f"{part}_epsilon": epsilon}


def _text(content: Any, is_quick: bool, where: str) -> dict[str, Any]:
    content = mapping(content, where)
    if content.get("hf_model_name"):
        return _ROBERTA.read(content, where)
    metadata = _TEXT.read(content, where) | _layers("text", content, is_quick, where)
    if content.get("pool_type") != "eos":
        del metadata["eos_id"]
    cleaning = mapping(content.get("tokenizer_kwargs"), where).get("clean")
    if cleaning in ("lower", "canonicalize"):
        metadata["lower_case"] = True
        # SigLIP 2: open_clip canonicalises, the authors do not; both are accepted.
        if metadata["vocab_size"] != 256_000:
            metadata["strips_punctuation"] = cleaning == "canonicalize"
    elif "hf_tokenizer_name" not in content and metadata["vocab_size"] == 49_408:
        metadata["lower_case"], metadata["strips_punctuation"] = True, False
    return metadata
