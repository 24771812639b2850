"""Config files of exported weights for transformers and open_clip."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from vlc_jax.errors import WeightsError
from vlc_jax.weights import huggingface_config, open_clip_config


class Tower(NamedTuple):
    """Sizes of one tower; mlp_width is absolute, not a ratio."""

    width: int
    depth: int
    heads: int
    mlp_width: int
    activation: str
    epsilon: float


class Model(NamedTuple):
    """Sizes, token ids and preprocessing of a model, as config files contain them."""

    image: Tower
    text: Tower
    embed: int | None  # None: texts are not projected
    image_size: int
    patch_size: int
    context_length: int
    vocab_size: int
    bos_id: int | None
    eos_id: int
    pad_id: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    crop: str  # centre | none | naflex
    is_siglip: bool
    is_eva: bool = False
    interpolation: str = "bicubic"
    # pooling and kind of projection of a RoBERTa; None: texts of another transformer
    roberta: tuple[str, str] | None = None
    stages: tuple[int, ...] = ()  # of a ResNet
    position_grid: int | None = None  # of NaFlex, side of the table of positions


def hugging_face(model: Model) -> dict[str, Any]:
    """Config files of a transformers folder, {file name: JSON}.

    Raises WeightsError for what its classes would compute otherwise.
    """
    _check_crop(model)
    if model.embed is None:
        raise WeightsError(
            "transformers' SigLIP projects texts, which SO400M/16 of 100 languages does not: "
            "export to big_vision"
        )
    if model.eos_id == 2 and not model.is_siglip:
        raise WeightsError(
            "transformers' CLIP ends a text at its largest id, not at the end token, where "
            "eos_token_id is 2, which the old configs of OpenAI's models have: export to open_clip"
        )
    kind = "siglip" if model.is_siglip else "clip"
    kind = "siglip2" if model.position_grid else kind
    vision = huggingface_config.IMAGE.write(model.image._asdict())
    vision |= {"patch_size": model.patch_size} | (
        {"num_patches": model.position_grid**2}
        if model.position_grid
        else {"image_size": model.image_size}
    )
    text = huggingface_config.IMAGE.write(model.text._asdict()) | {
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.context_length,
        "bos_token_id": model.bos_id,
        "eos_token_id": model.eos_id,
        "pad_token_id": model.pad_id,
    }
    # CLIP has one projection_dim for both towers, SigLIP projects texts only.
    projection = {"projection_size": model.embed} if model.is_siglip else {}
    config = {
        "architectures": [_CLASSES[kind]],
        "model_type": kind,
        "vision_config": {"model_type": f"{kind}_vision_model", **vision},
        "text_config": {"model_type": f"{kind}_text_model", **text, **projection},
        **({} if model.is_siglip else {"projection_dim": model.embed}),
    }
    return {"config.json": config, "preprocessor_config.json": _processor(model)}


_CLASSES = {"clip": "CLIPModel", "siglip": "SiglipModel", "siglip2": "Siglip2Model"}


def _check_crop(model: Model) -> None:
    """Raises WeightsError for a crop that neither format can express."""
    if model.crop in ("pad", "centre_margin"):
        raise WeightsError(
            f"images padded to a square or cut with a margin (crop {model.crop}) cannot be "
            "described in files of CLIP or open_clip: export with config.input.eval_crop 'centre' "
            "or 'none'"
        )


def _processor(model: Model) -> dict[str, Any]:
    common = {
        "do_resize": True,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        **huggingface_config.PIXELS.write(model._asdict()),
    }
    side = model.image_size
    square = {"height": side, "width": side}
    if model.position_grid:
        sizes = {"patch_size": model.patch_size, "max_num_patches": (side // model.patch_size) ** 2}
        return {"image_processor_type": "Siglip2ImageProcessor", **common, **sizes}
    # SiglipImageProcessor never crops; CLIPImageProcessor crops by default.
    if model.crop == "none":
        kind = "SiglipImageProcessor" if model.is_siglip else "CLIPImageProcessor"
        return {"image_processor_type": kind, "size": square, **common} | (
            {} if model.is_siglip else {"do_center_crop": False}
        )
    return {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"shortest_edge": side},
        "do_center_crop": True,
        "crop_size": square,
        **common,
    }


def open_clip(model: Model) -> dict[str, Any]:
    """Config files of a folder that open_clip loads as "local-dir:FOLDER", {file name: JSON}.

    Raises WeightsError for SigLIP, for EVA sizes that timm does not have and RoBERTas that
    transformers does not have: open_clip builds these towers from their named models.
    """
    _check_crop(model)
    if model.is_siglip:
        raise WeightsError(
            "open_clip builds SigLIP from timm's named models, not from sizes: export to hf"
        )
    activations = {model.text.activation} if model.roberta is None else set()
    activations |= set() if model.is_eva else {model.image.activation}
    if len(activations) > 1 or "gelu_tanh" in activations:
        raise WeightsError(f"open_clip has quick_gelu or gelu for both towers; got {activations}")
    crop = "none" if model.crop == "none" else "centre_torchvision"
    config = {
        "model_cfg": {
            "embed_dim": model.embed,
            "quick_gelu": activations == {"quick_gelu"},
            **({"custom_text": True} if model.is_eva else {}),
            "vision_cfg": _eva(model) if model.is_eva else _transformer(model),
            "text_cfg": _roberta(model) if model.roberta else _texts(model),
        },
        "preprocess_cfg": open_clip_config.PIXELS.write({**model._asdict(), "crop": crop}),
    }
    return {"open_clip_config.json": config}


def _texts(model: Model) -> dict[str, Any]:
    return {
        "context_length": model.context_length,
        "vocab_size": model.vocab_size,
        "width": model.text.width,
        "heads": model.text.heads,
        "layers": model.text.depth,
        "mlp_ratio": model.text.mlp_width / model.text.width,
        # else open_clip would take its own vocabulary, and the largest id for the end
        **({} if model.bos_id is not None else _own_tokenizer(model)),
    }


# RoBERTas of transformers by vocabulary, width, depth, heads, MLP width.
_ROBERTA = {
    (50_265, 768, 12, 12, 3072): "roberta-base",
    (50_265, 1024, 24, 16, 4096): "roberta-large",
    (250_002, 768, 12, 12, 3072): "xlm-roberta-base",
    (250_002, 1024, 24, 16, 4096): "xlm-roberta-large",
}


def _roberta(model: Model) -> dict[str, Any]:
    text = model.text
    sizes = (model.vocab_size, text.width, text.depth, text.heads, text.mlp_width)
    if (text.activation, text.epsilon) != ("gelu", 1e-5):
        raise WeightsError(
            "open_clip's RoBERTa has the activation gelu and the epsilon 1e-05; got "
            f"{text.activation} and {text.epsilon:g}: load this model from its workdir"
        )
    if sizes not in _ROBERTA:
        raise WeightsError(
            "open_clip builds RoBERTa from transformers' named models, not from sizes: it has "
            f"{', '.join(_ROBERTA.values())}, not (vocabulary, width, depth, heads, MLP width) "
            f"{sizes}"
        )
    pooling, projection = model.roberta
    return {
        "context_length": model.context_length,
        "hf_model_name": _ROBERTA[sizes],
        "hf_tokenizer_name": _ROBERTA[sizes],
        "hf_pooler_type": f"{pooling}_pooler",
        "hf_proj_type": projection,
    }


def _own_tokenizer(model: Model) -> dict[str, Any]:
    # any name: with "local-dir:FOLDER" the files in the folder are read
    return {"hf_tokenizer_name": "vlc_jax", "pool_type": "eos", "eos_id": model.eos_id}


def _transformer(model: Model) -> dict[str, Any]:
    vision = model.image
    if model.stages:
        width, layers = vision.width, list(model.stages)
        head_width = 32 * width // vision.heads
        sizes = {"width": width, "layers": layers, "head_width": head_width}
        return {"image_size": model.image_size, **sizes}
    return {
        "image_size": model.image_size,
        "patch_size": model.patch_size,
        "width": vision.width,
        "layers": vision.depth,
        "head_width": vision.width // vision.heads,
        "mlp_ratio": vision.mlp_width / vision.width,
    }


# timm's image towers by (width, depth, heads, MLP width), patch size and image size.
_EVA = {
    ((1408, 40, 16, 6144), 14, 224): "eva_giant_patch14_224",
    ((1792, 64, 16, 15360), 14, 224): "eva02_enormous_patch14_clip_224",
    ((768, 12, 12, 2048), 16, 224): "eva02_base_patch16_clip_224",
    ((1024, 24, 16, 2730), 14, 224): "eva02_large_patch14_clip_224",
    ((1024, 24, 16, 2730), 14, 336): "eva02_large_patch14_clip_336",
}


def _eva(model: Model) -> dict[str, Any]:
    sizes = (model.image[:4], model.patch_size, model.image_size)
    if sizes not in _EVA:
        raise WeightsError(
            "open_clip builds EVA from timm's named models, not from sizes: it has "
            f"{', '.join(_EVA.values())}, not (width, depth, heads, MLP width), patch and image "
            f"size {sizes}"
        )
    return {
        "image_size": model.image_size,
        "timm_model_name": _EVA[sizes],
        "timm_model_pretrained": False,
        "timm_pool": "token",
        # timm's own head; without this key open_clip adds a second one
        "timm_proj": "",
    }


def without_none(tree: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object without the keys whose value is None."""
    return {
        key: without_none(value) if isinstance(value, Mapping) else value
        for key, value in tree.items()
        if value is not None
    }
