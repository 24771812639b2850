"""What comes with weights and is as much a part of them: activation, epsilon, sizes, pixels.

A wrong one loads without complaint and costs accuracy (QuickGELU against GELU moved published
numbers), so what a folder says is compared with the config before anything runs.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vlc_jax.errors import WeightsError
from vlc_jax.weights import files

_ACTIVATIONS = {"quick_gelu": "quick_gelu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh"}
# What Hugging Face leaves out of a config.json because it is the default of the class.
_DEFAULTS = {
    "clip": {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5},
    "siglip": {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6},
}
_RESAMPLING = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers


def read(path: str | Path) -> dict[str, Any]:
    """What the files beside the weights say; {} where there are none.

    Only beside names that belong into such a folder: a single file may lie among anything.
    Keys, each only if said: image_activation, text_activation, image_epsilon, text_epsilon, mean,
    std, interpolation. Raises WeightsError for damaged files.
    """
    path = Path(path)
    if not path.is_dir() and path.name not in files.IN_FOLDER:
        return {}
    folder = path if path.is_dir() else path.parent
    facts = {}
    for name, reader in (
        ("config.json", _hugging_face),
        ("preprocessor_config.json", _processor),
        ("open_clip_config.json", _open_clip),
    ):
        if (folder / name).exists():
            try:
                facts |= reader(json.loads((folder / name).read_text("utf-8")))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise WeightsError(f"{folder / name} is damaged: {error!r}") from error
    return facts


def _hugging_face(config: Mapping[str, Any]) -> dict[str, Any]:
    defaults = _DEFAULTS.get(str(config.get("model_type")).removesuffix("2"))
    if defaults is None:
        raise WeightsError(
            f"config.json is of model_type {config.get('model_type')!r}; known: {list(_DEFAULTS)}"
        )
    facts = {}
    for part, name in (("image", "vision_config"), ("text", "text_config")):
        tower = {**defaults, **config.get(name, {})}
        facts[f"{part}_activation"] = _ACTIVATIONS.get(tower["hidden_act"], tower["hidden_act"])
        facts[f"{part}_epsilon"] = tower["layer_norm_eps"]
    return facts


def _processor(config: Mapping[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for key, ours in (("image_mean", "mean"), ("image_std", "std")):
        if key in config:
            facts[ours] = tuple(config[key])
    if "resample" in config:
        facts["interpolation"] = _RESAMPLING.get(config["resample"], str(config["resample"]))
    return facts


def _open_clip(config: Mapping[str, Any]) -> dict[str, Any]:
    model, pixels = config["model_cfg"], config.get("preprocess_cfg", {})
    facts: dict[str, Any] = {}
    is_timm = "timm_model_name" in model["vision_cfg"]
    if not is_timm:
        activation = "quick_gelu" if model.get("quick_gelu", False) else "gelu"
        facts |= {"image_activation": activation, "text_activation": activation}
        facts |= {"image_epsilon": 1e-5, "text_epsilon": 1e-5}
    for key in ("mean", "std"):
        if key in pixels:
            facts[key] = tuple(pixels[key])
    if "interpolation" in pixels:
        facts["interpolation"] = pixels["interpolation"]
    return facts
