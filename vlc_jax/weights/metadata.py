"""Metadata of weights: activation, layer norm epsilon, preprocessing of images and texts.

Weights load without an error under wrong metadata and lose accuracy (QuickGELU instead of GELU has
changed published results). The values in the files beside the weights are therefore compared with
the config before anything runs.
"""

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from vlc_jax.errors import WeightsError
from vlc_jax.weights import files

# Metadata key -> the config field with the same meaning; {} is the name of the tokenizer.
FIELDS = {
    **dict.fromkeys(("image_activation", "text_activation"), "config.model.activation"),
    **dict.fromkeys(("image_epsilon", "text_epsilon"), "config.model.epsilon"),
    **dict.fromkeys(("mean", "std"), "config.input.normalisation"),
    "interpolation": "config.input.interpolation",
    "crop": "config.input.eval_crop",  # centre (short side, then crop) | none (squash) | pad
    "context_length": "config.text.context_length",
    "vocab_size": "config.model.vocab_size",  # rows of the embedding
    **dict.fromkeys(("lower_case", "strips_punctuation"), "config.text.tokenizer_options.clean"),
    "eos_token": "config.text.tokenizer_options.eos_token",
    "pad_token": "config.text.tokenizer_options.pad_token",
    "padding_side": "config.text.tokenizer",  # all our tokenizers pad on the right
}

_ACTIVATIONS = {"quick_gelu": "quick_gelu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh"}
# Defaults of Hugging Face's classes: a config.json holds only values that differ from them.
_DEFAULTS = {
    "clip": {
        "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-5,
        "vocab_size": 49_408,
        "max_position_embeddings": 77,
    },
    "siglip": {
        "hidden_act": "gelu_pytorch_tanh",
        "layer_norm_eps": 1e-6,
        "vocab_size": 32_000,
        "max_position_embeddings": 64,
    },
}
# timm's SigLIP towers with tanh GELU, as the authors' (timm 1.0.31); its others use exact GELU.
_TIMM_TANH = re.compile(
    "vit_(base_patch32|so400m_patch16|giantopt_patch16)_siglip|vit_large_patch16_siglip_512"
)
_RESAMPLING = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers
# Class of Hugging Face's tokenizer -> its text cleaning. GemmaTokenizer: SigLIP 2's folders set
# do_lower_case for it, which the class ignores; the authors lower-case.
_CLEANING: dict[str, dict[str, Any]] = {
    "CLIPTokenizer": {"lower_case": True, "strips_punctuation": False},
    "SiglipTokenizer": {"lower_case": True, "strips_punctuation": True},
    "Siglip2Tokenizer": {"lower_case": True, "strips_punctuation": False},
    "GemmaTokenizer": {"lower_case": True},
}


def read(path: str | Path, names: Collection[str] | None = None) -> dict[str, Any]:
    """Metadata in the files beside the weights at `path`; {} without such files.

    names: the files to read; None for all. Keys are a subset of FIELDS; tokens are strings. Raises
    WeightsError for damaged files.
    """
    directory = folder(path)
    metadata: dict[str, Any] = {}
    for name, reader in _READERS.items():
        is_selected = directory is not None and (names is None or name in names)
        if is_selected and (file := directory / name).exists():
            content = files.read_json(file)
            try:
                metadata |= _checked(reader(content))
            except WeightsError as error:
                raise WeightsError(f"{file}: {error}") from error
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise WeightsError(f"{file} is damaged: {error!r}") from error
    return metadata


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < 1e9  # no NaN either


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and 0 < value < 1e9


# Keys of FIELDS with other values than strings -> whether a value is valid.
_CHECKS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("image_epsilon", "text_epsilon"), lambda x: _is_number(x) and x >= 0),
    **dict.fromkeys(("mean", "std"), lambda x: len(x) == 3 and all(map(_is_number, x))),
    **dict.fromkeys(("context_length", "vocab_size"), _is_size),
    **dict.fromkeys(("lower_case", "strips_punctuation"), lambda x: isinstance(x, bool)),
}


def _checked(metadata: dict[str, Any]) -> dict[str, Any]:
    """`metadata` unchanged. Raises WeightsError for values of a wrong type."""
    for key, value in metadata.items():
        if not _CHECKS.get(key, lambda x: isinstance(x, str) and len(x) < 100)(value):
            # only the type of a list or dict: repr fails on deep nesting
            summary = repr(value)[:50] if isinstance(value, int | float | str) else type(value)
            raise WeightsError(f"{key} cannot be {summary}")
    return metadata


def folder(path: str | Path) -> Path | None:
    """The folder whose config files belong to the weights at `path`; None without such a folder.

    A single file must have a standard name (`files.IN_FOLDER`): other files may lie beside config
    files of other models.
    """
    path = Path(path)
    if path.is_dir():
        return path
    return path.parent if path.name in files.IN_FOLDER else None


def _hugging_face(config: Mapping[str, Any]) -> dict[str, Any]:
    defaults = _DEFAULTS.get(str(config.get("model_type")).removesuffix("2"))
    if defaults is None:
        raise WeightsError(
            f"it is of model_type {str(config.get('model_type'))[:50]!r}; known: {list(_DEFAULTS)}"
        )
    image = {**defaults, **(config.get("vision_config") or {})}
    text = {**defaults, **(config.get("text_config") or {})}
    metadata = {}
    for part, tower in (("image", image), ("text", text)):
        metadata[f"{part}_activation"] = _ACTIVATIONS.get(tower["hidden_act"], tower["hidden_act"])
        metadata[f"{part}_epsilon"] = tower["layer_norm_eps"]
    # No ids of special tokens: published ones are wrong (SigLIP: 49407 of 32,000; CLIP: 2).
    metadata["context_length"] = text["max_position_embeddings"]
    metadata["vocab_size"] = text["vocab_size"]
    return metadata


def _processor(config: Mapping[str, Any]) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for key, ours in (("image_mean", "mean"), ("image_std", "std")):
        if key in config:
            metadata[ours] = tuple(config[key])
    if "resample" in config:
        metadata["interpolation"] = _RESAMPLING.get(config["resample"], str(config["resample"]))
    size = config.get("size", {})
    if isinstance(size, int) or "shortest_edge" in size:
        metadata["crop"] = "centre"
    elif "height" in size:
        metadata["crop"] = "none"
    return metadata


def _tokenizer(config: Mapping[str, Any]) -> dict[str, Any]:
    metadata = dict(_CLEANING.get(str(config.get("tokenizer_class")).removesuffix("Fast"), {}))
    if "padding_side" in config:
        metadata["padding_side"] = config["padding_side"]
    return metadata | _special_tokens(config)


def _special_tokens(config: Mapping[str, Any]) -> dict[str, Any]:
    tokens = {key: config[key] for key in ("eos_token", "pad_token") if config.get(key)}
    return {k: v["content"] if isinstance(v, Mapping) else v for k, v in tokens.items()}


def _open_clip(config: Mapping[str, Any]) -> dict[str, Any]:
    model, pixels = config["model_cfg"], config.get("preprocess_cfg", {})
    metadata: dict[str, Any] = {}
    is_timm = "timm_model_name" in model["vision_cfg"]
    if not is_timm:
        activation = "quick_gelu" if model.get("quick_gelu", False) else "gelu"
        metadata |= {"image_activation": activation, "text_activation": activation}
        metadata |= {"image_epsilon": 1e-5, "text_epsilon": 1e-5}
    elif "siglip" in (name := model["vision_cfg"]["timm_model_name"]):
        is_tanh = model["text_cfg"].get("act_kwargs", {}).get("approximate") == "tanh"
        metadata |= {
            "image_activation": "gelu_tanh" if _TIMM_TANH.match(name) else "gelu",
            "text_activation": "gelu_tanh" if is_tanh else "gelu",
        }
    for key in ("mean", "std"):
        if key in pixels:
            metadata[key] = tuple(pixels[key])
    if "interpolation" in pixels:
        metadata["interpolation"] = pixels["interpolation"]
    if "resize_mode" in pixels:
        modes = {"shortest": "centre", "squash": "none"}
        metadata["crop"] = modes.get(pixels["resize_mode"], pixels["resize_mode"])
    return metadata | _open_clip_text(model["text_cfg"])


def _open_clip_text(text: Mapping[str, Any]) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "context_length": text.get("context_length", 77),
        "vocab_size": text.get("vocab_size", 49_408),
    }
    cleaning = text.get("tokenizer_kwargs", {}).get("clean")
    if cleaning in ("lower", "canonicalize"):
        metadata["lower_case"] = True
        # SigLIP 2: open_clip canonicalises, the authors do not; both are accepted.
        if metadata["vocab_size"] != 256_000:
            metadata["strips_punctuation"] = cleaning == "canonicalize"
    elif "hf_tokenizer_name" not in text and metadata["vocab_size"] == 49_408:
        metadata["lower_case"], metadata["strips_punctuation"] = True, False
    return metadata


_READERS = {
    "config.json": _hugging_face,
    "preprocessor_config.json": _processor,
    "open_clip_config.json": _open_clip,
    "special_tokens_map.json": _special_tokens,
    "tokenizer_config.json": _tokenizer,
}
