"""LoRA and DoRA adapters of a language model, or of LLaVA, in the format of Hugging Face's PEFT."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.errors import WeightsError
from vlc_jax.weights import files, llava, peft, rename


def load(folder: str | Path, sizes: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
    """The trained tree of models.lora, and alpha, from a folder with adapter_config.json.

    sizes: sizes of the adapted model, see `llava.read_sizes`. Paths are below {"lm", "projector"}.
    The projector is loaded, too, if there is a non_lora_trainables.bin (LLaVA).
    If a module is several matrices of ours (Phi-3), each gets a copy of the module's A.
    Raises WeightsError for adapters of unknown modules, of some layers only, or of other kinds.
    """
    folder = Path(folder)
    config, parts = peft.read(folder)
    is_fused = any(module.endswith(".qkv_proj") for module in parts)
    rules = [r for r in llava.rules(sizes, is_fused=is_fused) if r.layers is not None]
    try:
        names = [path for rule in rules for path in rule.ours]
        adapters = rename.flatten(peft.load(parts, names, rules, llava.one_name))
        flat = {f"lora/{path}": array for path, array in adapters.items()}
        others = folder / "non_lora_trainables.bin"
        if others.exists():
            flat |= _projector(files.read(others), sizes)
        return rename.unflatten(flat), float(config["lora_alpha"])
    except (WeightsError, ValueError) as error:
        raise files.naming(folder, error) from error


def _projector(arrays: Mapping[str, np.ndarray], sizes: Mapping[str, Any]) -> dict[str, np.ndarray]:
    rules = [r for r in llava.rules(sizes, is_fused=False) if r.is_of("projector")]
    named = {llava.one_name(k.removeprefix("base_model.model.")): x for k, x in arrays.items()}
    shapes = {path: () for rule in rules for path in rule.ours}
    return rename.load(rules, named, shapes)
