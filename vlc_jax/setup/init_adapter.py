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


def is_adapter(path: Path) -> bool:
    """True for the folder of a PEFT adapter."""
    return (path / weights.peft.CONFIG).is_file()


def base_of(path: Path) -> Path:
    """The weights that the adapter was trained on. Raises WeightsError if they are not there."""
    base = weights.peft.settings(path).get("base_model_name_or_path")
    if not isinstance(base, str) or not Path(base).exists():
        raise WeightsError(f"{path} is an adapter of the weights at {base}, which are not there")
    return Path(base)


def merged(
    params: Mapping[str, Any], path: Path, architecture: weights.Architecture
) -> dict[str, Any]:
    """The parameters of `base_of`, with the adapter added.

    Raises WeightsError for adapters that `peft.read` refuses, and for arrays of no matrix.
    """
    config, parts = weights.peft.read(path)
    form = weights.read(base_of(path), only_shapes=True)[1]
    rules = weights.FORMATS[form].rules(architecture)
    adapters = weights.peft.load(parts, list(lora.matrices(params)), rules)
    flat = {f"{name}/{part}": x for name, parts in adapters.items() for part, x in parts.items()}
    trained = {lora.LORA: traverse_util.unflatten_dict(flat, sep="/")}
    trees = jax.tree.map(jnp.asarray, (params, trained))
    return jax.tree.map(np.asarray, lora.merge(*trees, config["lora_alpha"]))
