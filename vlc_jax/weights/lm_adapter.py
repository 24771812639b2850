"""LoRA and DoRA adapters of a language model, or of LLaVA, in the format of Hugging Face's PEFT."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.errors import WeightsError
from vlc_jax.weights import files, llava, peft, rename
from vlc_jax.weights.rename import Rule

_PART = re.compile(r"(?P<module>.*)\.lora_(?P<part>A|B|magnitude_vector)(\.default)?(\.weight)?")
_OURS = {"A": "a", "B": "b", "magnitude_vector": "magnitude"}


def load(folder: str | Path, sizes: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
    """The trained tree of models.lora, and alpha, from a folder with adapter_config.json.

    sizes: sizes of the adapted model, see `llava.read_sizes`. Paths are below {"lm", "projector"}.
    The projector is loaded, too, if there is a non_lora_trainables.bin (LLaVA).
    If a module is several matrices of ours (Phi-3), each gets a copy of the module's A.
    Raises WeightsError for adapters of unknown modules, of some layers only, or of other kinds.
    """
    folder = Path(folder)
    config, arrays = peft.read(folder)
    try:
        flat = _adapters(arrays, sizes)
        others = folder / "non_lora_trainables.bin"
        if others.exists():
            flat |= _projector(files.read(others), sizes)
        return rename.unflatten(flat), float(config["lora_alpha"])
    except (WeightsError, ValueError) as error:
        raise files.naming(folder, error) from error


def _adapters(arrays: Mapping[str, np.ndarray], sizes: Mapping[str, Any]) -> dict[str, np.ndarray]:
    parts = {}
    for name, array in arrays.items():
        match = _PART.fullmatch(name.removeprefix("base_model.model."))
        if not match:
            raise WeightsError(f"{name} is no part of an adapter")
        one = llava.one_name(f"{match['module']}.weight")
        parts[one, _OURS[match["part"]]] = array
    modules = {one for one, _ in parts}
    flat = {}
    for rule in llava.rules(sizes, is_fused=llava.is_fused(modules)):
        layers = [names[0] for names in rule.names]
        if rule.layers is None or not modules.intersection(layers):
            continue
        if missing := sorted(set(layers) - modules):
            raise WeightsError(rename.listing("layers without an adapter", missing))
        modules -= set(layers)
        has_magnitude = (layers[0], "magnitude") in parts
        for part in ("a", "b", "magnitude") if has_magnitude else ("a", "b"):
            stacks = zip(*(_of_layer(rule, part, parts[one, part]) for one in layers), strict=True)
            for path, stack in zip(rule.ours, stacks, strict=True):
                flat[f"lora/{path}/{part}"] = np.stack(stack)
    if modules:
        raise WeightsError(rename.listing("adapters of no matrix of this model", sorted(modules)))
    return flat


def _of_layer(rule: Rule, part: str, array: np.ndarray) -> tuple[np.ndarray, ...]:
    """Splits a part of a module's adapter into the matrices of ours that form the module."""
    if part == "a":
        return (array.T,) * len(rule.ours)
    if part == "b":
        return rule.codec.load(array)
    return tuple(column[0] for column in rule.codec.load(array.reshape(-1, 1)))


def _projector(arrays: Mapping[str, np.ndarray], sizes: Mapping[str, Any]) -> dict[str, np.ndarray]:
    rules = [r for r in llava.rules(sizes, is_fused=False) if r.is_of("projector")]
    named = {llava.one_name(k.removeprefix("base_model.model.")): x for k, x in arrays.items()}
    shapes = {path: () for rule in rules for path in rule.ours}
    return rename.load(rules, named, shapes)
