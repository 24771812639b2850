"""Parameters with the adapter of an exported PEFT folder (`vlc-jax export --to peft`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from vlc_jax import weights
from vlc_jax.errors import WeightsError
from vlc_jax.models import lora

CONFIG = "adapter_config.json"
# Settings of PEFT that change what an adapter computes, and that no export has.
UNREAD = ("use_rslora", "rank_pattern", "alpha_pattern", "modules_to_save", "layers_to_transform")


def is_adapter(path: Path) -> bool:
    """True for the folder of a PEFT adapter."""
    return (path / CONFIG).is_file()


def base_of(path: Path) -> Path:
    """The weights that the adapter was trained on. Raises WeightsError if they are not there."""
    base = _config(path).get("base_model_name_or_path")
    if not isinstance(base, str) or not Path(base).exists():
        raise WeightsError(f"{path} is an adapter of the weights at {base}, which are not there")
    return Path(base)


def merged(
    params: Mapping[str, Any], path: Path, architecture: weights.Architecture
) -> dict[str, Any]:
    """The parameters of `base_of`, with the adapter added.

    Raises WeightsError for settings and arrays that no export has.
    """
    config = _config(path)
    if used := [name for name in UNREAD if config.get(name)]:
        raise WeightsError(f"{path / CONFIG} sets {used[0]}, which vlc-jax export never does")
    form = weights.read(base_of(path), only_shapes=True)[1]
    arrays = weights.files.read(path / "adapter_model.safetensors")
    rules = weights.FORMATS[form].rules(architecture)
    adapters = weights.peft.load(arrays, list(lora.matrices(params)), rules)
    if any(parts["a"].shape[-1] != config.get("r") for parts in adapters.values()):
        raise WeightsError(f"{path / CONFIG} has r {config.get('r')}, the arrays another rank")
    flat = {f"{name}/{part}": x for name, parts in adapters.items() for part, x in parts.items()}
    trained = {lora.LORA: traverse_util.unflatten_dict(flat, sep="/")}
    trees = jax.tree.map(jnp.asarray, (params, trained))
    return jax.tree.map(np.asarray, lora.merge(*trees, config["lora_alpha"]))


def _config(path: Path) -> dict[str, Any]:
    content = weights.files.read_json(path / CONFIG)
    if not isinstance(content, dict):
        raise WeightsError(f"{path / CONFIG} holds no JSON object")
    return content
