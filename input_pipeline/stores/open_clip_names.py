"""Published names of open_clip whose architecture is one of vlc_jax.models.variants.

Of its src/open_clip/pretrained.py: the repository of each pair of model and tag, whose weights are
open_clip_model.safetensors or open_clip_pytorch_model.bin beside open_clip_config.json. The hub
lists the sha256 of these files, and a copy with another one is refused.
"""

from typing import NamedTuple

from vlc_jax.input_pipeline import lookup

# Has OpenAI's tokenizer, which many repositories of CLIP weights lack.
CLIP_TOKENIZER = "openai/clip-vit-base-patch32"
# Repositories of other tokenizers, by a part of the model's name.
_TOKENIZERS = {
    "SigLIP": None,
    "CLIPA": "google-bert/bert-base-uncased",
    "worldwide": "facebook/xlm-v-base",
    "xlm-roberta": "FacebookAI/xlm-roberta-base",
    "roberta": "FacebookAI/roberta-base",
}


class Row(NamedTuple):
    """A published name.

    variant: of vlc_jax.models.variants.   activation: that the weights were trained with; None: of
    the variant.   tokenizer: repository of it if `repository` has none; None: it has one.
    """

    model: str
    tag: str
    repository: str
    variant: str
    activation: str | None
    tokenizer: str | None

    @property
    def address(self) -> str:
        return f"open_clip://{self.model}/{self.tag}"


# (model, variant, activation): {tag: repository}
_TABLE: dict[tuple[str, str, str | None], dict[str, str]] = {
    ("RN50", "RN50", "quick_gelu"): {
        "openai": "timm/resnet50_clip.openai",
        "yfcc15m": "timm/resnet50_clip.yfcc15m",
        "cc12m": "timm/resnet50_clip.cc12m",
    },
    ("RN101", "RN101", "quick_gelu"): {
        "openai": "timm/resnet101_clip.openai",
        "yfcc15m": "timm/resnet101_clip.yfcc15m",
    },
    ("RN50x4", "RN50x4", "quick_gelu"): {"openai": "timm/resnet50x4_clip.openai"},
    ("RN50x16", "RN50x16", "quick_gelu"): {"openai": "timm/resnet50x16_clip.openai"},
    ("RN50x64", "RN50x64", "quick_gelu"): {"openai": "timm/resnet50x64_clip.openai"},
    ("ViT-B-32", "B/32", "quick_gelu"): {
        "openai": "timm/vit_base_patch32_clip_224.openai",
        "laion400m_e31": "timm/vit_base_patch32_clip_224.laion400m_e31",
        "laion400m_e32": "timm/vit_base_patch32_clip_224.laion400m_e32",
        "metaclip_400m": "timm/vit_base_patch32_clip_224.metaclip_400m",
        "metaclip_fullcc": "timm/vit_base_patch32_clip_224.metaclip_2pt5b",
    },
    ("ViT-B-32", "B/32", "gelu"): {
        "laion2b_e16": "timm/vit_base_patch32_clip_224.laion2b_e16",
        "laion2b_s34b_b79k": "laion/CLIP-ViT-B-32-laion2B-s34B-b79K",
        "datacomp_xl_s13b_b90k": "laion/CLIP-ViT-B-32-DataComp.XL-s13B-b90K",
        "datacomp_m_s128m_b4k": "laion/CLIP-ViT-B-32-DataComp.M-s128M-b4K",
        "commonpool_m_clip_s128m_b4k": "laion/CLIP-ViT-B-32-CommonPool.M.clip-s128M-b4K",
        "commonpool_m_laion_s128m_b4k": "laion/CLIP-ViT-B-32-CommonPool.M.laion-s128M-b4K",
        "commonpool_m_image_s128m_b4k": "laion/CLIP-ViT-B-32-CommonPool.M.image-s128M-b4K",
        "commonpool_m_text_s128m_b4k": "laion/CLIP-ViT-B-32-CommonPool.M.text-s128M-b4K",
        "commonpool_m_basic_s128m_b4k": "laion/CLIP-ViT-B-32-CommonPool.M.basic-s128M-b4K",
        "commonpool_m_s128m_b4k": "laion/CLIP-ViT-B-32-CommonPool.M-s128M-b4K",
        "datacomp_s_s13m_b4k": "laion/CLIP-ViT-B-32-DataComp.S-s13M-b4K",
        "commonpool_s_clip_s13m_b4k": "laion/CLIP-ViT-B-32-CommonPool.S.clip-s13M-b4K",
        "commonpool_s_laion_s13m_b4k": "laion/CLIP-ViT-B-32-CommonPool.S.laion-s13M-b4K",
        "commonpool_s_image_s13m_b4k": "laion/CLIP-ViT-B-32-CommonPool.S.image-s13M-b4K",
        "commonpool_s_text_s13m_b4k": "laion/CLIP-ViT-B-32-CommonPool.S.text-s13M-b4K",
        "commonpool_s_basic_s13m_b4k": "laion/CLIP-ViT-B-32-CommonPool.S.basic-s13M-b4K",
        "commonpool_s_s13m_b4k": "laion/CLIP-ViT-B-32-CommonPool.S-s13M-b4K",
    },
    ("ViT-B-32-256", "B/32", "gelu"): {
        "datacomp_s34b_b86k": "laion/CLIP-ViT-B-32-256x256-DataComp-s34B-b86K"
    },
    ("ViT-B-16", "B/16", "quick_gelu"): {
        "openai": "timm/vit_base_patch16_clip_224.openai",
        "dfn2b": "apple/DFN2B-CLIP-ViT-B-16",
        "metaclip_400m": "timm/vit_base_patch16_clip_224.metaclip_400m",
        "metaclip_fullcc": "timm/vit_base_patch16_clip_224.metaclip_2pt5b",
    },
    ("ViT-B-16", "B/16", "gelu"): {
        "laion400m_e31": "timm/vit_base_patch16_clip_224.laion400m_e31",
        "laion400m_e32": "timm/vit_base_patch16_clip_224.laion400m_e32",
        "laion2b_s34b_b88k": "laion/CLIP-ViT-B-16-laion2B-s34B-b88K",
        "datacomp_xl_s13b_b90k": "laion/CLIP-ViT-B-16-DataComp.XL-s13B-b90K",
        "datacomp_l_s1b_b8k": "laion/CLIP-ViT-B-16-DataComp.L-s1B-b8K",
        "commonpool_l_clip_s1b_b8k": "laion/CLIP-ViT-B-16-CommonPool.L.clip-s1B-b8K",
        "commonpool_l_laion_s1b_b8k": "laion/CLIP-ViT-B-16-CommonPool.L.laion-s1B-b8K",
        "commonpool_l_image_s1b_b8k": "laion/CLIP-ViT-B-16-CommonPool.L.image-s1B-b8K",
        "commonpool_l_text_s1b_b8k": "laion/CLIP-ViT-B-16-CommonPool.L.text-s1B-b8K",
        "commonpool_l_basic_s1b_b8k": "laion/CLIP-ViT-B-16-CommonPool.L.basic-s1B-b8K",
        "commonpool_l_s1b_b8k": "laion/CLIP-ViT-B-16-CommonPool.L-s1B-b8K",
    },
    # open_clip's tag laion400m_e32 names the repository of laion400m_e31, too
    ("ViT-B-16-plus-240", "B/16-plus-240", "gelu"): {
        "laion400m_e31": "timm/vit_base_patch16_plus_clip_240.laion400m_e31"
    },
    ("ViT-L-14", "L/14", "quick_gelu"): {
        "openai": "timm/vit_large_patch14_clip_224.openai",
        "metaclip_400m": "timm/vit_large_patch14_clip_224.metaclip_400m",
        "metaclip_fullcc": "timm/vit_large_patch14_clip_224.metaclip_2pt5b",
        "dfn2b": "apple/DFN2B-CLIP-ViT-L-14",
    },
    ("ViT-L-14", "L/14", "gelu"): {
        "laion400m_e31": "timm/vit_large_patch14_clip_224.laion400m_e31",
        "laion400m_e32": "timm/vit_large_patch14_clip_224.laion400m_e32",
        "laion2b_s32b_b82k": "laion/CLIP-ViT-L-14-laion2B-s32B-b82K",
        "datacomp_xl_s13b_b90k": "laion/CLIP-ViT-L-14-DataComp.XL-s13B-b90K",
        "commonpool_xl_clip_s13b_b90k": "laion/CLIP-ViT-L-14-CommonPool.XL.clip-s13B-b90K",
        "commonpool_xl_laion_s13b_b90k": "laion/CLIP-ViT-L-14-CommonPool.XL.laion-s13B-b90K",
        "commonpool_xl_s13b_b90k": "laion/CLIP-ViT-L-14-CommonPool.XL-s13B-b90K",
        "dfn2b_s39b": "apple/DFN2B-CLIP-ViT-L-14-39B",
    },
    ("ViT-L-14-336", "L/14-336", "quick_gelu"): {
        "openai": "timm/vit_large_patch14_clip_336.openai"
    },
    ("ViT-H-14", "H/14", "quick_gelu"): {
        "metaclip_fullcc": "timm/vit_huge_patch14_clip_224.metaclip_2pt5b",
        "dfn5b": "apple/DFN5B-CLIP-ViT-H-14",
    },
    ("ViT-H-14", "H/14", "gelu"): {
        "laion2b_s32b_b79k": "laion/CLIP-ViT-H-14-laion2B-s32B-b79K",
        "metaclip_altogether": "timm/vit_huge_patch14_clip_224.metaclip_altogether",
    },
    ("ViT-H-14-378", "H/14", "quick_gelu"): {"dfn5b": "apple/DFN5B-CLIP-ViT-H-14-378"},
    ("ViT-g-14", "g/14", "gelu"): {
        "laion2b_s12b_b42k": "laion/CLIP-ViT-g-14-laion2B-s12B-b42K",
        "laion2b_s34b_b88k": "laion/CLIP-ViT-g-14-laion2B-s34B-b88K",
    },
    ("ViT-bigG-14", "bigG/14", "gelu"): {
        "laion2b_s39b_b160k": "laion/CLIP-ViT-bigG-14-laion2B-39B-b160k"
    },
    ("ViT-bigG-14", "bigG/14", "quick_gelu"): {
        "metaclip_fullcc": "timm/vit_gigantic_patch14_clip_224.metaclip_2pt5b"
    },
    # MetaCLIP 2: texts of 300 languages
    ("ViT-H-14-worldwide", "H/14", "quick_gelu"): {
        "metaclip2_worldwide": "timm/vit_huge_patch14_clip_224.metaclip2_worldwide"
    },
    ("ViT-H-14-worldwide-378", "H/14", "gelu"): {
        "metaclip2_worldwide": "timm/vit_huge_patch14_clip_378.metaclip2_worldwide"
    },
    ("ViT-bigG-14-worldwide", "bigG/14", "gelu"): {
        "metaclip2_worldwide": "timm/vit_gigantic_patch14_clip_224.metaclip2_worldwide"
    },
    ("ViT-bigG-14-worldwide-378", "bigG/14", "gelu"): {
        "metaclip2_worldwide": "timm/vit_gigantic_patch14_clip_378.metaclip2_worldwide"
    },
    # open_clip's list names no activation of these: that of the repository's config is taken
    ("roberta-ViT-B-32", "roberta-B/32", None): {
        "laion2b_s12b_b32k": "laion/CLIP-ViT-B-32-roberta-base-laion2B-s12B-b32k"
    },
    ("xlm-roberta-base-ViT-B-32", "xlm-roberta-B/32", None): {
        "laion5b_s13b_b90k": "laion/CLIP-ViT-B-32-xlm-roberta-base-laion5B-s13B-b90k"
    },
    ("xlm-roberta-large-ViT-H-14", "xlm-roberta-H/14", None): {
        "frozen_laion5b_s13b_b90k": (
            "laion/CLIP-ViT-H-14-frozen-xlm-roberta-large-laion5B-s13B-b90k"
        )
    },
    ("EVA01-g-14", "EVA01-g/14", None): {
        "laion400m_s11b_b41k": "timm/eva_giant_patch14_clip_224.laion400m_s11b_b41k"
    },
    ("EVA01-g-14-plus", "EVA01-g/14-plus", None): {
        "merged2b_s11b_b114k": "timm/eva_giant_patch14_plus_clip_224.merged2b_s11b_b114k"
    },
    ("EVA02-B-16", "EVA02-B/16", None): {
        "merged2b_s8b_b131k": "timm/eva02_base_patch16_clip_224.merged2b_s8b_b131k"
    },
    ("EVA02-L-14", "EVA02-L/14", None): {
        "merged2b_s4b_b131k": "timm/eva02_large_patch14_clip_224.merged2b_s4b_b131k"
    },
    ("EVA02-L-14-336", "EVA02-L/14-336", None): {
        "merged2b_s6b_b61k": "timm/eva02_large_patch14_clip_336.merged2b_s6b_b61k"
    },
    ("EVA02-E-14", "EVA02-E/14", None): {
        "laion2b_s4b_b115k": "timm/eva02_enormous_patch14_clip_224.laion2b_s4b_b115k"
    },
    ("EVA02-E-14-plus", "EVA02-E/14-plus", None): {
        "laion2b_s9b_b144k": "timm/eva02_enormous_patch14_plus_clip_224.laion2b_s9b_b144k"
    },
    ("PE-Core-T-16-384", "PE-Core-T/16-384", None): {"meta": "timm/PE-Core-T-16-384"},
    ("PE-Core-S-16-384", "PE-Core-S/16-384", None): {"meta": "timm/PE-Core-S-16-384"},
    ("PE-Core-B-16", "PE-Core-B/16", None): {"meta": "timm/PE-Core-B-16"},
    ("PE-Core-L-14-336", "PE-Core-L/14-336", None): {"meta": "timm/PE-Core-L-14-336"},
    ("PE-Core-bigG-14-448", "PE-Core-bigG/14-448", None): {"meta": "timm/PE-Core-bigG-14-448"},
    ("ViT-L-14-CLIPA", "CLIPA-L/14", None): {"datacomp1b": "UCSC-VLAA/ViT-L-14-CLIPA-datacomp1B"},
    ("ViT-L-14-CLIPA-336", "CLIPA-L/14", None): {
        "datacomp1b": "UCSC-VLAA/ViT-L-14-CLIPA-336-datacomp1B"
    },
    ("ViT-H-14-CLIPA", "CLIPA-H/14", None): {"datacomp1b": "UCSC-VLAA/ViT-H-14-CLIPA-datacomp1B"},
    ("ViT-H-14-CLIPA-336", "CLIPA-H/14", None): {
        "laion2b": "UCSC-VLAA/ViT-H-14-CLIPA-336-laion2B",
        "datacomp1b": "UCSC-VLAA/ViT-H-14-CLIPA-336-datacomp1B",
    },
    ("ViT-bigG-14-CLIPA", "CLIPA-bigG/14", None): {
        "datacomp1b": "UCSC-VLAA/ViT-bigG-14-CLIPA-datacomp1B"
    },
    ("ViT-bigG-14-CLIPA-336", "CLIPA-bigG/14", None): {
        "datacomp1b": "UCSC-VLAA/ViT-bigG-14-CLIPA-336-datacomp1B"
    },
    ("ViT-B-16-SigLIP", "SigLIP-B/16", None): {"webli": "timm/ViT-B-16-SigLIP"},
    ("ViT-B-16-SigLIP-256", "SigLIP-B/16", None): {"webli": "timm/ViT-B-16-SigLIP-256"},
    ("ViT-B-16-SigLIP-i18n-256", "SigLIP-B/16", None): {"webli": "timm/ViT-B-16-SigLIP-i18n-256"},
    ("ViT-B-16-SigLIP-384", "SigLIP-B/16", None): {"webli": "timm/ViT-B-16-SigLIP-384"},
    ("ViT-B-16-SigLIP-512", "SigLIP-B/16", None): {"webli": "timm/ViT-B-16-SigLIP-512"},
    ("ViT-L-16-SigLIP-256", "SigLIP-L/16-256", None): {"webli": "timm/ViT-L-16-SigLIP-256"},
    ("ViT-L-16-SigLIP-384", "SigLIP-L/16-256", None): {"webli": "timm/ViT-L-16-SigLIP-384"},
    ("ViT-SO400M-14-SigLIP", "SigLIP-SO400M/14-224", None): {"webli": "timm/ViT-SO400M-14-SigLIP"},
    ("ViT-SO400M-14-SigLIP-378", "SigLIP-SO400M/14-384", None): {
        "webli": "timm/ViT-SO400M-14-SigLIP-384"
    },
    ("ViT-SO400M-14-SigLIP-384", "SigLIP-SO400M/14-384", None): {
        "webli": "timm/ViT-SO400M-14-SigLIP-384"
    },
    ("ViT-SO400M-16-SigLIP-i18n-256", "SigLIP-SO400M/16-i18n-256", None): {
        "webli": "timm/ViT-SO400M-16-SigLIP-i18n-256"
    },
    ("ViT-B-32-SigLIP2-256", "SigLIP-B/32-256", None): {"webli": "timm/ViT-B-32-SigLIP2-256"},
    ("ViT-B-16-SigLIP2", "SigLIP-B/16", None): {"webli": "timm/ViT-B-16-SigLIP2"},
    ("ViT-B-16-SigLIP2-256", "SigLIP-B/16", None): {"webli": "timm/ViT-B-16-SigLIP2-256"},
    ("ViT-B-16-SigLIP2-384", "SigLIP-B/16", None): {"webli": "timm/ViT-B-16-SigLIP2-384"},
    ("ViT-B-16-SigLIP2-512", "SigLIP-B/16", None): {"webli": "timm/ViT-B-16-SigLIP2-512"},
    ("ViT-L-16-SigLIP2-256", "SigLIP-L/16-256", None): {"webli": "timm/ViT-L-16-SigLIP2-256"},
    ("ViT-L-16-SigLIP2-384", "SigLIP-L/16-256", None): {"webli": "timm/ViT-L-16-SigLIP2-384"},
    ("ViT-L-16-SigLIP2-512", "SigLIP-L/16-256", None): {"webli": "timm/ViT-L-16-SigLIP2-512"},
    ("ViT-SO400M-14-SigLIP2", "SigLIP-SO400M/14-224", None): {
        "webli": "timm/ViT-SO400M-14-SigLIP2"
    },
    ("ViT-SO400M-14-SigLIP2-378", "SigLIP-SO400M/14-384", None): {
        "webli": "timm/ViT-SO400M-14-SigLIP2-378"
    },
    ("ViT-SO400M-16-SigLIP2-256", "SigLIP-SO400M/16-256", None): {
        "webli": "timm/ViT-SO400M-16-SigLIP2-256"
    },
    ("ViT-SO400M-16-SigLIP2-384", "SigLIP-SO400M/16-256", None): {
        "webli": "timm/ViT-SO400M-16-SigLIP2-384"
    },
    ("ViT-SO400M-16-SigLIP2-512", "SigLIP-SO400M/16-256", None): {
        "webli": "timm/ViT-SO400M-16-SigLIP2-512"
    },
    ("ViT-gopt-16-SigLIP2-256", "SigLIP-gopt/16-256", None): {
        "webli": "timm/ViT-gopt-16-SigLIP2-256"
    },
    ("ViT-gopt-16-SigLIP2-384", "SigLIP-gopt/16-256", None): {
        "webli": "timm/ViT-gopt-16-SigLIP2-384"
    },
}


def _rows() -> dict[tuple[str, str], Row]:
    rows = {}
    for (model, variant, activation), tags in _TABLE.items():
        repositories = [repository for part, repository in _TOKENIZERS.items() if part in model]
        tokenizer = repositories[0] if repositories else CLIP_TOKENIZER
        # open_clip has each name with QuickGELU under a second name, too
        models = (model, f"{model}-quickgelu") if activation == "quick_gelu" else (model,)
        for each in models:
            for tag, repository in tags.items():
                rows[each, tag] = Row(each, tag, repository, variant, activation, tokenizer)
    return rows


ROWS = _rows()


def tags_of(model: str) -> list[str]:
    """The tags of a model; none if it is not there."""
    return [tag for name, tag in ROWS if name == model]


def find(model: str, tag: str) -> Row:
    """The row of a name; tags in any case, with "-" for "_", as open_clip takes them.

    Raises ValueError for a name that is not there, with the nearest ones.
    """
    tag = tag.lower().replace("-", "_")
    if row := ROWS.get((model, tag)):
        return row
    if tags := tags_of(model):
        raise ValueError(
            f"open_clip://{model} has no weights {tag!r}{lookup.nearest(tag, tags)}; it has "
            f"{', '.join(tags)}"
        )
    models = list(dict.fromkeys(name for name, _ in ROWS))
    raise ValueError(
        f"open_clip://{model}/{tag} is no published name of a model that is here"
        f"{lookup.nearest(model, models)}; there are {', '.join(models)}"
    )
