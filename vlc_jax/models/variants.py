"""Architectures by name: a family of shared options, and the sizes of each variant.

Sources: OpenAI's CLIP (Radford et al. 2021, tables 19, 20); open_clip's model_configs for its other
sizes; SigLIP (Zhai et al. 2023) and SO400M (Alabdulmohsin et al. 2023) as in big_vision;
EVA-CLIP and EVA-02-CLIP (Sun et al. 2023, arXiv:2303.15389) as open_clip and timm build them.
tests/models/test_variants.py holds the published parameter counts.
"""

from typing import Any, NamedTuple

from vlc_jax import errors


class Sizes(NamedTuple):
    """`image` and `text`: (width, depth, heads) or (width, depth, heads, MLP width).

    embed: None for features without a projection.   text: () without a text tower.

    stages: of a ResNet and a Swin, the blocks of each stage, `depth` in all; (): a ViT.
    """

    family: str
    embed: int | None
    image_size: int
    patch_size: int | None
    image: tuple[int, ...]
    text: tuple[int, ...]
    stages: tuple[int, ...] = ()


# Keyword arguments of both towers, of the image tower, of the text tower, of the CLIP module.
FAMILIES: dict[str, dict[str, dict[str, Any]]] = {
    "scenes": {
        "towers": {"activation": "quick_gelu", "epsilon": 1e-5, "initialisation": "clip"},
        # vocab_size: enough for the words of all scene worlds; eos_id: the tokenizer's
        "text": {"vocab_size": 128, "context_length": 20, "eos_id": 2},
        "image": {"stem": (16, 32, 96), "positions": "sincos2d", "amplitude": 0.5},
        "clip": {"logit_scale_init": 1 / 0.07},
    },
    "small": {  # of OpenAI's form, which other projects load
        "towers": {"activation": "quick_gelu", "epsilon": 1e-5, "initialisation": "clip"},
        "text": {"vocab_size": 49408, "context_length": 77, "eos_id": 49407},
        # sine-cosine positions, from which a small set of images learns faster
        "image": {"pre_norm": True, "positions": "sincos2d", "amplitude": 0.5},
        "clip": {"logit_scale_init": 1 / 0.07},
    },
    "openai": {  # open_clip's own B and L weights mostly have activation="gelu"
        "towers": {"activation": "quick_gelu", "epsilon": 1e-5, "initialisation": "clip"},
        "text": {"vocab_size": 49408, "context_length": 77, "eos_id": 49407},
        "image": {"pre_norm": True},
        "clip": {"logit_scale_init": 1 / 0.07},
    },
    "resnet": {  # towers: of the text; the image tower has ReLU and batch norm
        "towers": {"activation": "quick_gelu", "epsilon": 1e-5, "initialisation": "clip"},
        "text": {"vocab_size": 49408, "context_length": 77, "eos_id": 49407},
        "image": {},
        "clip": {"logit_scale_init": 1 / 0.07},
    },
    "swin": {  # towers: of the text; the fields of a Swin have these values
        "towers": {"activation": "gelu", "epsilon": 1e-5, "initialisation": "clip"},
        "text": {"vocab_size": 49408, "context_length": 77, "eos_id": 49407},
        "image": {"window": 7},
        "clip": {"logit_scale_init": 1 / 0.07},
    },
    "open_clip": {
        "towers": {"activation": "gelu", "epsilon": 1e-5, "initialisation": "clip"},
        "text": {"vocab_size": 49408, "context_length": 77, "eos_id": 49407},
        "image": {"pre_norm": True},
        "clip": {"logit_scale_init": 1 / 0.07},
    },
    "siglip": {
        "towers": {"activation": "gelu_tanh", "epsilon": 1e-6, "initialisation": "big_vision"},
        "text": {
            "vocab_size": 32_000,
            "context_length": 64,
            "eos_id": 1,
            "is_causal": False,
            "pooling": "last",
            "projection_bias": True,
        },
        "image": {"patch_bias": True, "pooling": "map", "projection": None},
        "clip": {"logit_scale_init": 10.0, "logit_bias_init": -10.0},
    },
    "eva02": {
        "towers": {"initialisation": "clip"},
        "text": {
            "activation": "gelu",
            "epsilon": 1e-5,
            "vocab_size": 49408,
            "context_length": 77,
            "eos_id": 49407,
        },
        "image": {
            "activation": "swiglu",
            "epsilon": 1e-6,
            "patch_bias": True,
            "projection_bias": True,
            "key_bias": False,
            "sub_norm": True,
            "rope": "qk_2d",
            "rope_span": 16,  # the pretraining grid, 224 / 14, at every patch size and resolution
        },
        "clip": {"logit_scale_init": 1 / 0.07},
    },
    "eva01": {
        "towers": {"activation": "gelu", "initialisation": "clip"},
        "text": {"epsilon": 1e-5, "vocab_size": 49408, "context_length": 77, "eos_id": 49407},
        "image": {"epsilon": 1e-6, "patch_bias": True, "projection_bias": True, "key_bias": False},
        "clip": {"logit_scale_init": 1 / 0.07},
    },
}
# SigLIP SO400M/16 of 100 languages: no projection of texts
FAMILIES["siglip_i18n"] = {
    **FAMILIES["siglip"],
    "text": {**FAMILIES["siglip"]["text"], "vocab_size": 250_000, "projection": None},
}
# SigLIP 2's NaFlex, for images of any aspect ratio; positions of its pretraining at 256 pixels
FAMILIES["siglip_naflex"] = {
    **FAMILIES["siglip"],
    "image": {**FAMILIES["siglip"]["image"], "position_grid": 16},
}
# texts of RoBERTa (models/roberta.py) in open_clip's models; QuickGELU is of the image tower
_ROBERTA = {"kind": "roberta", "context_length": 77, "eos_id": 2, "pooling": "mean"}
FAMILIES["roberta"] = {
    "towers": {},
    "image": {**FAMILIES["openai"]["towers"], **FAMILIES["openai"]["image"]},
    "text": {**_ROBERTA, "vocab_size": 50_265},
    "clip": FAMILIES["openai"]["clip"],
}
FAMILIES["xlm_roberta"] = {
    **FAMILIES["roberta"],
    "image": {**FAMILIES["open_clip"]["towers"], **FAMILIES["open_clip"]["image"]},
    "text": {**_ROBERTA, "vocab_size": 250_002},
}
# EVA02-E/14 has the blocks of EVA01, with the norms after attention and MLP
FAMILIES["eva02_e"] = {
    **FAMILIES["eva01"],
    "image": {**FAMILIES["eva01"]["image"], "post_norm": True},
}
# PE-Core (Bolya et al. 2025, arXiv:2504.13181) as open_clip and timm build it: rows and columns of
# patches count from 1, in units of the pretraining grid (rope_span) at every resolution
FAMILIES["pe"] = {
    "towers": {"activation": "gelu", "epsilon": 1e-5, "initialisation": "clip"},
    "text": {"vocab_size": 49408, "context_length": 32, "eos_id": 49407},
    "image": {
        "pre_norm": True,
        "pooling": "map",
        "class_token": True,
        "pool_heads": 8,
        "projection_bias": True,
        "rope": "qk_2d",
        "rope_span": 24,
        "rope_offset": 1,
        "rope_columns_first": True,
    },
    "clip": {"logit_scale_init": 1 / 0.07},
}
FAMILIES["pe_b"] = {**FAMILIES["pe"], "image": {**FAMILIES["pe"]["image"], "rope_span": 14}}
FAMILIES["pe_g"] = {  # without a class token
    **FAMILIES["pe"],
    "text": {**FAMILIES["pe"]["text"], "context_length": 72},
    "image": FAMILIES["pe"]["image"]
    | {"class_token": False, "pool_mlp_width": 6144, "rope_span": 32, "rope_offset": 0},
}
# OpenVision (Li et al. 2025, arXiv:2505.04601) and CLIPA (Li et al. 2023, arXiv:2305.07017) as in
# their authors' folders for open_clip
FAMILIES["openvision"] = {
    "towers": {"epsilon": 1e-6, "initialisation": "clip"},
    "text": {
        "activation": "gelu_tanh",
        "vocab_size": 32_000,
        "context_length": 80,
        "eos_id": 0,  # of the padding: texts are BERT's without [SEP]
        "is_causal": False,
        "pooling": "last",
    },
    "image": {
        "activation": "gelu",
        "pooling": "mean",
        "class_token": True,
        "norm_after_pooling": True,
    },
    "clip": {"logit_scale_init": 1 / 0.07},
}
FAMILIES["clipa"] = {
    **FAMILIES["openvision"],
    "towers": {"epsilon": 1e-5, "initialisation": "clip"},
    "text": FAMILIES["openvision"]["text"] | {"activation": "gelu", "context_length": 32},
}
# DINOv2 (Oquab et al. 2023, arXiv:2304.07193), with image={"registers": 4} also Darcet et al. 2024
FAMILIES["dinov2"] = {
    "towers": {"activation": "gelu", "epsilon": 1e-6, "initialisation": "clip"},
    "text": {},
    "image": {"patch_bias": True, "layer_scale": True},
    "clip": {},
}
FAMILIES["dinov2_g"] = {
    **FAMILIES["dinov2"],
    "towers": {"activation": "swiglu", "epsilon": 1e-6, "initialisation": "clip"},
}

# decoder (lm_variants) and image tower of models/qwen3_vl.py; the text tower has no parameters
FAMILIES["qwen3_vl"] = {
    "towers": {},
    "text": {"vocab_size": 151_936, "context_length": 256, "eos_id": 151_643},
    "image": {"deepstack": (5, 11, 17)},
    "clip": {"logit_scale_init": 1.0},
}
_SO400M = (1152, 27, 16, 4304)  # width, depth, heads and MLP of both towers
_OWN: dict[str, Sizes] = {
    # family, embed, image size, patch size, image tower, text tower
    "mini": Sizes("scenes", 96, 40, None, (96, 3, 4), (96, 2, 4)),
    "mini/8": Sizes("small", 96, 64, 8, (96, 3, 4), (96, 2, 4)),
    "S/32": Sizes("open_clip", 384, 224, 32, (384, 12, 6), (384, 12, 6)),
    "S/32-alt": Sizes("open_clip", 256, 224, 32, (384, 12, 6), (256, 10, 4)),
    "S/16": Sizes("open_clip", 384, 224, 16, (384, 12, 6), (384, 12, 6)),
    "S/16-alt": Sizes("open_clip", 256, 224, 16, (384, 12, 6), (256, 10, 4)),
    "M/32": Sizes("open_clip", 512, 224, 32, (512, 12, 8), (512, 12, 8)),
    "M/32-alt": Sizes("open_clip", 384, 224, 32, (512, 12, 8), (384, 12, 6)),
    "M/16": Sizes("open_clip", 512, 224, 16, (512, 12, 8), (512, 12, 8)),
    "B/32": Sizes("openai", 512, 224, 32, (768, 12, 12), (512, 12, 8)),
    "B/16": Sizes("openai", 512, 224, 16, (768, 12, 12), (512, 12, 8)),
    "B/32-plus-256": Sizes("open_clip", 640, 256, 32, (896, 12, 14), (640, 12, 10)),
    "B/16-plus-240": Sizes("open_clip", 640, 240, 16, (896, 12, 14), (640, 12, 10)),
    "L/16": Sizes("open_clip", 768, 224, 16, (1024, 24, 16), (768, 12, 12)),
    "L/14": Sizes("openai", 768, 224, 14, (1024, 24, 16), (768, 12, 12)),
    "L/14-336": Sizes("openai", 768, 336, 14, (1024, 24, 16), (768, 12, 12)),
    "H/16": Sizes("open_clip", 1024, 224, 16, (1280, 32, 16), (1024, 24, 16)),
    "H/14": Sizes("open_clip", 1024, 224, 14, (1280, 32, 16), (1024, 24, 16)),
    "g/14": Sizes("open_clip", 1024, 224, 14, (1408, 40, 16, 6144), (1024, 24, 16)),
    "bigG/14": Sizes("open_clip", 1280, 224, 14, (1664, 48, 16, 8192), (1280, 32, 20)),
    "e/14": Sizes("open_clip", 1280, 224, 14, (1792, 56, 16, 15360), (1280, 36, 20)),
    # ResNets: width of the first stage, blocks, heads of the pooling; patch: their stride
    "RN50": Sizes("resnet", 1024, 224, 32, (64, 16, 32), (512, 12, 8), (3, 4, 6, 3)),
    "RN101": Sizes("resnet", 512, 224, 32, (64, 33, 32), (512, 12, 8), (3, 4, 23, 3)),
    "RN50x4": Sizes("resnet", 640, 288, 32, (80, 26, 40), (640, 12, 10), (4, 6, 10, 6)),
    "RN50x16": Sizes("resnet", 768, 384, 32, (96, 40, 48), (768, 12, 12), (6, 8, 18, 8)),
    "RN50x64": Sizes("resnet", 1024, 448, 32, (128, 64, 64), (1024, 12, 16), (3, 15, 36, 10)),
    # width of the first stage, blocks, heads of the first stage; as open_clip's
    # swin_base_patch4_window7_224; with image={"projection": None} X-VLM's image tower
    "Swin-B/32": Sizes("swin", 640, 224, 32, (128, 24, 4), (640, 12, 10), (2, 2, 18, 2)),
    "roberta-B/32": Sizes("roberta", 512, 224, 32, (768, 12, 12), (768, 12, 12)),
    "xlm-roberta-B/32": Sizes("xlm_roberta", 512, 224, 32, (768, 12, 12), (768, 12, 12)),
    "xlm-roberta-H/14": Sizes("xlm_roberta", 1024, 224, 14, (1280, 32, 16), (1024, 24, 16)),
    # SigLIP and SigLIP 2 (vocab_size=256000)
    "SigLIP-B/32-256": Sizes("siglip", 768, 256, 32, (768, 12, 12), (768, 12, 12)),
    # published at 224, 256, 384 and 512 pixels: image_size=...
    "SigLIP-B/16": Sizes("siglip", 768, 224, 16, (768, 12, 12), (768, 12, 12)),
    "SigLIP-L/16-256": Sizes("siglip", 1024, 256, 16, (1024, 24, 16), (1024, 24, 16)),
    # the published 224-pixel weights have a context of 16 tokens: context_length=16
    "SigLIP-SO400M/14-224": Sizes("siglip", 1152, 224, 14, _SO400M, _SO400M),
    # 384 pixels are 27 patches of 14; the remaining 6 pixels are not used
    "SigLIP-SO400M/14-384": Sizes("siglip", 1152, 384, 14, _SO400M, _SO400M),
    # at 256, 384 and 512 pixels
    "SigLIP-SO400M/16-256": Sizes("siglip", 1152, 256, 16, _SO400M, _SO400M),
    "SigLIP-SO400M/16-i18n-256": Sizes("siglip_i18n", 1152, 256, 16, _SO400M, _SO400M),
    "SigLIP-gopt/16-256": Sizes("siglip", 1536, 256, 16, (1536, 40, 16), _SO400M),
    # image_size: a square with the largest number of patches, published for 256 of 16 pixels
    "SigLIP2-B/16-naflex": Sizes("siglip_naflex", 768, 256, 16, (768, 12, 12), (768, 12, 12)),
    "SigLIP2-SO400M/16-naflex": Sizes("siglip_naflex", 1152, 256, 16, _SO400M, _SO400M),
    # EVA01-g/14: the image tower of InstructBLIP, too
    "EVA01-g/14": Sizes("eva01", 1024, 224, 14, (1408, 40, 16, 6144), (768, 12, 12)),
    "EVA01-g/14-plus": Sizes("eva01", 1024, 224, 14, (1408, 40, 16, 6144), (1024, 24, 16)),
    "EVA02-E/14": Sizes("eva02_e", 1024, 224, 14, (1792, 64, 16, 15360), (1024, 24, 16)),
    "EVA02-E/14-plus": Sizes("eva02_e", 1024, 224, 14, (1792, 64, 16, 15360), (1280, 32, 20)),
    "EVA02-B/16": Sizes("eva02", 512, 224, 16, (768, 12, 12, 2048), (512, 12, 8)),
    "EVA02-L/14": Sizes("eva02", 768, 224, 14, (1024, 24, 16, 2730), (768, 12, 12)),
    "EVA02-L/14-336": Sizes("eva02", 768, 336, 14, (1024, 24, 16, 2730), (768, 12, 12)),
    "PE-Core-T/16-384": Sizes("pe", 512, 384, 16, (192, 12, 3), (512, 12, 8)),
    "PE-Core-S/16-384": Sizes("pe", 512, 384, 16, (384, 12, 6), (512, 12, 8)),
    "PE-Core-B/16": Sizes("pe_b", 1024, 224, 16, (768, 12, 12), (1024, 24, 16)),
    "PE-Core-L/14-336": Sizes("pe", 1024, 336, 14, (1024, 24, 16), (1024, 24, 16)),
    "PE-Core-bigG/14-448": Sizes("pe_g", 1280, 448, 14, (1536, 50, 16, 8960), (1280, 24, 20)),
    # published at 84, 160, 224, 336 and 384 pixels: image_size=...
    "OpenVision-Ti/16": Sizes("openvision", 192, 224, 16, (192, 12, 3), (192, 12, 3)),
    "OpenVision-Ti/8": Sizes("openvision", 192, 224, 8, (192, 12, 3), (192, 12, 3)),
    "OpenVision-S/16": Sizes("openvision", 384, 224, 16, (384, 12, 6), (384, 12, 6)),
    "OpenVision-S/8": Sizes("openvision", 384, 224, 8, (384, 12, 6), (384, 12, 6)),
    "OpenVision-B/16": Sizes("openvision", 512, 224, 16, (768, 12, 12), (512, 12, 8)),
    "OpenVision-B/8": Sizes("openvision", 512, 224, 8, (768, 12, 12), (512, 12, 8)),
    "OpenVision-L/14": Sizes("openvision", 768, 224, 14, (1024, 24, 16), (768, 12, 12)),
    "OpenVision-SO400M/14": Sizes("openvision", 1152, 224, 14, _SO400M, _SO400M),
    "OpenVision-H/14": Sizes("openvision", 1024, 224, 14, (1280, 32, 16), (1024, 24, 16)),
    # at 224 and 336 pixels
    "CLIPA-L/14": Sizes("clipa", 768, 224, 14, (1024, 24, 16), (768, 12, 12)),
    "CLIPA-H/14": Sizes("clipa", 1024, 224, 14, (1280, 32, 16), (1024, 24, 16)),
    "CLIPA-bigG/14": Sizes("clipa", 1280, 224, 14, (1664, 48, 16, 8192), (1280, 32, 20)),
    # trained last at 518 pixels, published for 224
    "DINOv2-S/14": Sizes("dinov2", None, 224, 14, (384, 12, 6), ()),
    "DINOv2-B/14": Sizes("dinov2", None, 224, 14, (768, 12, 12), ()),
    "DINOv2-L/14": Sizes("dinov2", None, 224, 14, (1024, 24, 16), ()),
    "DINOv2-g/14": Sizes("dinov2_g", None, 224, 14, (1536, 40, 24, 4096), ()),
    # 1,800 image tokens at most, as the authors' embedder
    "Qwen3-VL-2B": Sizes("qwen3_vl", 2048, 1360, 16, (1024, 24, 16, 4096), (2048, 28, 16, 6144)),
}
VARIANTS = errors.Table(
    "VARIANTS", _OWN, "a vlc_jax.models.variants.Sizes", lambda x: isinstance(x, Sizes)
)


def options(variant: str) -> dict[str, dict[str, Any]]:
    """Keyword arguments of the towers and of CLIP: {"image": ..., "text": ..., "clip": ...}."""
    sizes = VARIANTS[variant]
    family = FAMILIES[sizes.family]
    names = ("width", "depth", "heads", "mlp_width")
    image = dict(zip(names, sizes.image, strict=False), projection=sizes.embed)
    text = dict(zip(names, sizes.text, strict=False), projection=sizes.embed)
    pixels = {"image_size": sizes.image_size, "patch_size": sizes.patch_size}
    if "deepstack" in family["image"]:
        image["out_width"] = image.pop("projection")
    if sizes.stages:
        image = {key: image[key] for key in ("width", "heads", "projection")}
        image |= {"stages": sizes.stages}
    towers = {} if sizes.stages else family["towers"]
    return {
        "image": {**image, **pixels, **towers, **family["image"]},
        "text": {**text, **family["towers"], **family["text"]} if sizes.text else None,
        "clip": dict(family["clip"]),
    }
