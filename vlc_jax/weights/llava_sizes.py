"""config.json of language models, alone or with an image tower <-> sizes of models.llava.

Of Hugging Face's folders, and of those that LLaVA's own code writes. The sizes are plain values.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from vlc_jax.errors import WeightsError
from vlc_jax.weights import flamingo, huggingface, instructblip, lm_config, qwen3_vl
from vlc_jax.weights.huggingface_config import IMAGE, MAX_DEPTH, activation, transformer
from vlc_jax.weights.openai import dense
from vlc_jax.weights.rename import Rule, rule
from vlc_jax.weights.sections import Key, Section, mapping, square_root

_LAYERS = range(-MAX_DEPTH, 0)
SELECT = {"default": "patch", "full": "cls_patch", "cls": "cls"}  # "cls" is ours, and LLaVA forks'
_CLIP = IMAGE.but(fixed={"model_type": ("clip_vision_model",)})._replace(shown=("vision_use_head",))
_CLIP_B32 = _CLIP.but(  # as CLIPVisionConfig has them
    fixed={"pruned_heads": ({},)},
    hidden_size=768,
    intermediate_size=3072,
    num_hidden_layers=12,
    num_attention_heads=12,
    patch_size=32,
    image_size=224,
)
_SIGLIP = _CLIP_B32.but(
    fixed={"model_type": ("siglip_vision_model",)},
    # differs from CLIP's; the pooling is not used
    constant={"pre_norm": False, "patch_bias": True, "pooling": "mean"},
    patch_size=16,
    hidden_act="gelu_pytorch_tanh",
    layer_norm_eps=1e-6,
)
# Hugging Face stores a bias of keys, which is 0.
_EVA = _CLIP.but(
    fixed={"model_type": ("instructblip_vision_model",), "qkv_bias": (True,)},
    constant={"pre_norm": False, "patch_bias": True, "pooling": "cls"},
    hidden_size=1408,
    intermediate_size=6144,
    num_hidden_layers=39,
    image_size=224,
    hidden_act="gelu",
    layer_norm_eps=1e-6,
)
_QWEN3 = Section(
    {
        "width": Key("hidden_size", 1152),
        "depth": Key("depth", 27, range(1, MAX_DEPTH + 1)),
        "heads": Key("num_heads", 16),
        "mlp_width": Key("intermediate_size", 4304),
        "out_width": Key("out_hidden_size", 3584),
        "deepstack": Key("deepstack_visual_indexes", (8, 16, 24)),
        "position_grid": Key("num_position_embeddings", 2304),
    },
    fixed={
        "hidden_act": ("gelu_pytorch_tanh",),
        "in_channels": (3,),
        "patch_size": (16,),
        "spatial_merge_size": (2,),
        "temporal_patch_size": (2,),
    },
    shown=("rope_parameters",),
)
_QWEN3_ROPE = Section(fixed={"rope_theta": (1e4,), "rope_type": ("axial", "default")})
_QFORMER = Section(
    {
        "vocab_size": Key("vocab_size", 30_522),
        "positions": Key("max_position_embeddings", 512),
        **transformer(768, 12, 12, 3072),
        "cross_every": Key("cross_attention_frequency", 2),
        "activation": activation("gelu"),
        "epsilon": Key("layer_norm_eps", 1e-12),
    },
    fixed={"position_embedding_type": ("absolute",)},
)


def _image(rules: Callable[[], list[Rule]]) -> Callable[[Mapping[str, Any]], list[Rule]]:
    """Rules of the image tower among those of two towers."""
    return lambda _: [
        r for r in rules() if r.is_of("image") and r.ours != ("image/projection/kernel",)
    ]


class Family(NamedTuple):
    """Language models with an image tower, by the model_type of their config.json.

    name: their class in transformers, without its suffix.   top, vision: sections of config.json,
    at its top and of the image tower.   rules: of the image tower, of sizes.   projector: rules.
    image_id: the image token, where a file leaves it out.   pixels: fields of config.input, where
    no processor's file has them.   tokens: those that the authors' code adds to the vocabulary.
    written: further keys that our folders have, of sizes.
    """

    name: str
    top: Section
    vision: Section = _CLIP
    rules: Callable[[Mapping[str, Any]], list[Rule]] = _image(huggingface.clip_rules)
    projector: tuple[Rule, ...] = ()
    image_id: int | None = None
    pixels: Mapping[str, str] = {"crop": "centre"}
    tokens: tuple[str, ...] = ()
    written: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda sizes: {}


_TOP = Section(
    {"image_id": Key("image_token_index", other="image_token_id")},
    constant={"layer": -1, "select": "patch"},
)
_OVER_SIGLIP = _TOP.but({"is_tied": Key("tie_word_embeddings", True)})
_SIGLIP_RULES = _image(huggingface.siglip_rules)
_SQUASHED = {"crop": "none", "normalisation": "siglip"}
_FLAMINGO = Section(
    {"cross_every": Key("cross_attn_every_n_layers", 4)},
    fixed={"max_num_frames": (), "lora_config": ()},  # of Otter for videos, and not merged
    constant={"layer": -1, "select": "patch", "image_id": None},
    shown=(flamingo.LANGUAGE, flamingo.VISION),
)
_OTTER = Family("Otter", _FLAMINGO, _CLIP_B32, projector=(*flamingo.RESAMPLER,))
FAMILIES: dict[str, Family] = {
    "llava": Family(
        "Llava",
        _TOP.but(
            {
                "layer": Key("vision_feature_layer", -2, _LAYERS),
                "select": Key("vision_feature_select_strategy", "default", SELECT),
                "is_tied": Key("tie_word_embeddings", False),
            },
            fixed={
                "projector_hidden_act": ("gelu",),
                "multimodal_projector_bias": (True,),
                "image_aspect_ratio": ("pad", "square"),  # of our exports
            },
        ),
        projector=(
            *dense("projector.linear_1", "projector/first"),
            *dense("projector.linear_2", "projector/second"),
        ),
        image_id=32_000,
        written=lambda sizes: {
            "projector_hidden_act": "gelu",
            "image_seq_length": (sizes["image"]["image_size"] // sizes["image"]["patch_size"]) ** 2
            + (sizes["select"] == "cls_patch"),
        },
    ),
    "paligemma": Family(
        "PaliGemma",
        _OVER_SIGLIP,
        _SIGLIP,
        _SIGLIP_RULES,
        (*dense("projector.linear", "projector/linear"),),
        image_id=256_000,
        pixels=_SQUASHED | {"interpolation": "bicubic"},
        written=lambda sizes: dict.fromkeys(
            ("projection_dim", "hidden_size"), sizes["lm"]["width"]
        ),
    ),
    "gemma3": Family(
        "Gemma3",
        _OVER_SIGLIP.but({"side": Key("mm_tokens_per_image", 256)}),
        _SIGLIP,
        _SIGLIP_RULES,
        (
            rule("projector.mm_soft_emb_norm.weight", "projector/norm/scale"),
            # a bare parameter (inputs, outputs), no Linear: not transposed
            rule("projector.mm_input_projection_weight", "projector/linear/kernel"),
        ),
        image_id=262_144,
        pixels=_SQUASHED | {"interpolation": "bilinear"},
        written=lambda sizes: {"mm_tokens_per_image": sizes["side"] ** 2},
    ),
    "instructblip": Family(
        "InstructBlip",
        _TOP.but(
            {"queries": Key("num_query_tokens", 32)},
            fixed={"use_decoder_only_language_model": (True,)},
            constant={"select": "cls_patch"},
        ),
        _EVA,
        lambda _: instructblip.rules(),
        pixels={"crop": "none", "normalisation": "clip", "interpolation": "bicubic"},
        written=lambda sizes: {
            "num_query_tokens": sizes["qformer"]["queries"],
            "qformer_config": {
                "model_type": "instructblip_qformer",
                **_QFORMER.write(sizes["qformer"]),
                "encoder_hidden_size": sizes["image"]["width"],
            },
        },
    ),
    "qwen3_vl": Family("Qwen3VL", _TOP, _QWEN3, qwen3_vl.rules, image_id=151_655),
    "otter": _OTTER._replace(tokens=flamingo.TOKENS),
    "open_flamingo": _OTTER._replace(tokens=tuple(x for x in flamingo.TOKENS if x != "<answer>")),
}
# Image towers of LLaVA's own folders (mm_vision_tower) -> vision_config.
TOWERS = {
    "openai/clip-vit-large-patch14": {"image_size": 224},
    "openai/clip-vit-large-patch14-336": {},
}
SENTINEL = -200  # of LLaVA's own code: the id of an image in a tokenised prompt
# mm_use_im_patch_token: a further token of the vocabulary, in no prompt
_ORIGINAL = Section(
    {
        "layer": Key("mm_vision_select_layer", -2, _LAYERS),
        "select": Key("mm_vision_select_feature", "patch", {x: x for x in SELECT.values()}),
    },
    fixed={
        "image_aspect_ratio": ("pad", "square"),
        "mm_patch_merge_type": ("flat",),
        "mm_projector_type": ("mlp2x_gelu",),
        "mm_resampler_type": (),
        "mm_use_im_start_end": (False,),
        "s2": (False,),
    },
    constant={"kind": "llava", "image_id": SENTINEL},
    shown=("mm_vision_tower",),
)
_ORIGINAL_FAMILIES = {"phi": "phi3", "mistral": "mistral", "gemma": "gemma"}
_BIDIRECTIONAL = "use_bidirectional_attention"


def read(
    config: Any, where: str = "config.json", places: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """{"family", "lm"} of a language model; with an image tower also {"kind", "image", "layer",
    "image_id", "select"}, for Gemma 3 `side`, for InstructBLIP `qformer`.

    lm, image: fields of models.lm.Decoder and of the image tower, with the `depth` of the
    file; kind: of models.llava.KINDS; layer: the selected hidden state.
    where, places: names of the file, and of the files of its sections if they have their own.
    Raises WeightsError for models that models.lm and models.llava do not support.
    """
    config, places = mapping(config, where), places or {}
    if "mm_projector_type" in config or "mm_vision_tower" in config:
        return _original(config, where)
    kind = Key("model_type", "").read(config, where)
    text, where_text = config, where
    if "text_config" in config:
        where_text = places.get("text_config", f"{where}, text_config")
        text = mapping(config["text_config"], where_text)
    if kind == "paligemma":  # Hugging Face sets the flag, and means bidirectional prompts only
        flag = Key(_BIDIRECTIONAL, True, {True: None}).read(text, where_text)
        text = {**text, _BIDIRECTIONAL: flag}
    family = Key("model_type", "llama").read(text, where_text)
    if kind in flamingo.KINDS and family != lm_config.MPT:
        raise WeightsError(f"{where_text} is of {family[:50]!r}; only MPT is supported here")
    lm = lm_config.read(text, family, where_text)
    if kind not in FAMILIES:
        return {"family": family, "lm": lm}
    where_image = places.get("vision_config", f"{where}, vision_config")
    image = FAMILIES[kind].vision.read(config.get("vision_config"), where_image)
    sizes = {"family": family, "kind": kind, "lm": lm, "image": image}
    sizes |= FAMILIES[kind].top.read(config, where, ("qformer_config",))
    if sizes["image_id"] is None:
        sizes["image_id"] = FAMILIES[kind].image_id
    _complete(sizes, config, where, where_image)
    return sizes


def _complete(sizes: dict[str, Any], config: Mapping[str, Any], where: str, of_image: str) -> None:
    """Sets what a family has beside the common sizes. Raises WeightsError for parts that do not
    fit each other."""
    kind, lm, image = sizes["kind"], sizes["lm"], sizes["image"]
    if "is_tied" in sizes:
        is_tied = sizes.pop("is_tied")
        lm["is_tied"] = is_tied or (kind == "llava" and lm["is_tied"])
    if "side" in sizes:
        sizes["side"] = square_root(sizes["side"], "mm_tokens_per_image", where)
    if "queries" in sizes:
        reader = _QFORMER.read(config.get("qformer_config"), f"{where}, qformer_config")
        sizes["qformer"] = {"queries": sizes.pop("queries"), **reader}
    if "cross_every" in sizes:
        every = sizes.pop("cross_every")
        if every > lm["depth"]:
            raise WeightsError(
                f"{where}: cross_attn_every_n_layers is 1 to {lm['depth']}; got {every}"
            )
        lm |= {"cross_every": every, "cross_width": image["width"]}
    if kind == "qwen3_vl":
        rope = mapping(config.get("vision_config"), of_image).get("rope_parameters")
        _QWEN3_ROPE.read(rope, f"{of_image}, rope_parameters")
        grid = square_root(image["position_grid"], "num_position_embeddings", of_image)
        image["position_grid"] = grid
        _check_qwen3(image, lm, of_image)


def _check_qwen3(image: Mapping[str, Any], lm: Mapping[str, Any], where: str) -> None:
    """Raises WeightsError for an image tower that models.qwen3_vl does not support."""
    deepstack = image["deepstack"]
    if list(deepstack) != sorted({*deepstack} & {*range(image["depth"])}):
        raise WeightsError(
            f"{where}: deepstack_visual_indexes are ascending blocks of {image['depth']}; got "
            f"{deepstack}"
        )
    if image["out_width"] != lm["width"] or len(deepstack) > lm["depth"]:
        raise WeightsError(
            f"{where}: out_hidden_size {image['out_width']} is the width of the decoder, "
            f"{lm['width']}, and its {lm['depth']} blocks are as many as deepstack_visual_indexes "
            "or more"
        )


def _original(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Sizes of a folder written by LLaVA's own code, where the image tower is only a name."""
    names = f"{config.get('model_type')} {config.get('architectures')}".lower()
    family = next((ours for name, ours in _ORIGINAL_FAMILIES.items() if name in names), "llama")
    tower, vision = config.get("mm_vision_tower"), config.get("vision_config")
    if vision is None and tower not in [*TOWERS]:
        raise WeightsError(
            f"{where}: mm_vision_tower {tower!r} is unknown; known: {', '.join(TOWERS)}. For "
            'another CLIP tower, add its config.json to this one as "vision_config"'
        )
    vision = TOWERS[tower] if vision is None else vision
    return {
        **_ORIGINAL.read(config, where, lm_config.FAMILIES[family].keys),
        "family": family,
        "lm": lm_config.read(config, family, where, _ORIGINAL.keys),
        "image": _CLIP.read(vision, f"{where}, vision_config"),
    }


def write(sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Content of a Hugging Face config.json from `sizes`, the inverse of `read`."""
    text = lm_config.write(sizes["family"], sizes["lm"])
    if "image" not in sizes:
        name = sizes["family"].removesuffix("_text").capitalize()
        return text | {"architectures": [f"{name}ForCausalLM"]}
    family = FAMILIES[sizes["kind"]]
    vision = family.vision.write(sizes["image"])
    if family.vision is _SIGLIP:
        vision["vision_use_head"] = False  # its arrays are not written
    return {
        "architectures": [f"{family.name}ForConditionalGeneration"],
        "model_type": sizes["kind"],
        "text_config": text,
        "vision_config": {"model_type": family.vision.fixed["model_type"][0], **vision},
        "tie_word_embeddings": sizes["lm"]["is_tied"],
        **family.top.write(sizes),
        **family.written(sizes),
    }
