"""LoRA and DoRA adapters in the format of Hugging Face's PEFT: export, and reading an export."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.errors import WeightsError
from vlc_jax.weights import files
from vlc_jax.weights.rename import Rule, expand
from vlc_jax.weights.sections import names

ATTENTION = ("query", "key", "value")  # the order of names in a transformers rule
CONFIG, ARRAYS = "adapter_config.json", ("adapter_model.safetensors", "adapter_model.bin")
# Settings that are read, show in the arrays or are of training; any other must be off.
_READ = names(
    """auto_mapping base_model_name_or_path corda_config eva_config exclude_modules inference_mode
    init_lora_weights loftq_config lora_alpha lora_dropout lora_ga_config megatron_core peft_version
    qalora_group_size r revision runtime_config target_modules task_type use_dora"""
)
# Others (pissa, olora, corda, loftq, lora_ga) train the adapter on a base that they changed first.
_KEEPS_BASE = names("true false none gaussian orthogonal eva mica")


def settings(folder: Path) -> dict[str, Any]:
    """Content of an adapter_config.json, with `r` and `lora_alpha`.

    Raises WeightsError for settings that change more than the arrays show.
    """
    file = folder / CONFIG
    content = files.read_json(file)
    if not isinstance(content, dict):
        raise WeightsError(f"{file} holds no JSON object")
    content = {"r": 8, "lora_alpha": 8} | content  # PEFT's defaults
    plain = {"peft_type": "LORA", "bias": "none"}
    for name, value in content.items():
        if name not in _READ and value and value != plain.get(name):
            raise WeightsError(
                f"{file}: {name}={str(value)[:50]} of an adapter is not supported: export the "
                "merged weights (PEFT's merge_and_unload)"
            )
    if str(init := content.get("init_lora_weights")).lower() not in _KEEPS_BASE:
        raise WeightsError(
            f"{file}: init_lora_weights={init!r} changed the base before training, and the adapter "
            "alone does not say how: save it with PEFT's path_initial_model_for_weight_conversion, "
            "or export merge_and_unload()"
        )
    alpha = content["lora_alpha"]
    if type(alpha) not in (int, float) or not math.isfinite(alpha):
        raise WeightsError(f"{file}: lora_alpha is a number; got {str(alpha)[:50]!r}")
    return content


def read(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """`settings` and arrays of an adapter.

    Raises WeightsError for arrays of another rank than `r`, or of other parts than `use_dora` says.
    """
    config = settings(folder)
    present = [folder / name for name in ARRAYS if (folder / name).exists()]
    if not present:
        raise WeightsError(f"{folder} holds none of {', '.join(ARRAYS)}")
    arrays, rank = files.read(present[0]), config["r"]
    modules: dict[str, set[str]] = {"A": set(), "B": set(), "magnitude_vector": set()}
    for name, array in arrays.items():
        module, _, part = name.partition(".lora_")
        modules.setdefault(part.split(".")[0], set()).add(module)
        if part.startswith("A.") and array.shape[:1] != (rank,):
            raise WeightsError(f"{folder / CONFIG} has r {rank}, {name} the shape {array.shape}")
    lengths = modules["A"] if config.get("use_dora") else set[str]()
    if modules["A"] != modules["B"] or modules["magnitude_vector"] != lengths:
        raise WeightsError(
            f"{present[0]}: each module has lora_A, lora_B and, if {CONFIG} sets use_dora, "
            "lora_magnitude_vector; some are missing or left over"
        )
    return config, arrays


def save(
    adapters: Mapping[str, Mapping[str, np.ndarray]], rules: Sequence[Rule]
) -> dict[str, np.ndarray]:
    """Arrays of an adapter_model.safetensors.

    adapters: name of a matrix (`models.lora.matrices`) -> "a" (inputs, rank), "b" (rank, outputs)
    and, with DoRA, "magnitude" (outputs,).   rules: of the model's transformers format.
    Raises WeightsError for matrices that are no module in transformers.
    """
    arrays = {}
    for name, adapter in adapters.items():
        modules, rule = _modules(name, rules)
        for index, module in enumerate(modules):
            # One matrix of ours may be three modules in PEFT: they share A and split B by outputs.
            columns = {
                key: np.split(adapter[key], len(modules), axis=-1)[index]
                for key in adapter.keys() - {"a"}
            }
            # A of a convolution is (rank, 3, patch, patch), of a Linear (rank, inputs).
            first = rule.codec.save(adapter["a"])[0] if len(rule.ours) == 1 else adapter["a"].T
            spatial = (1,) * (first.ndim - 2)
            prefix = f"base_model.model.{module}.lora_"
            arrays[f"{prefix}A.weight"] = first
            arrays[f"{prefix}B.weight"] = columns["b"].T.reshape(*columns["b"].T.shape, *spatial)
            if "magnitude" in columns:
                shape = (1, -1, *spatial) if spatial else (-1,)
                arrays[f"{prefix}magnitude_vector"] = columns["magnitude"].reshape(shape)
    return {key: np.array(x, np.float32, order="C") for key, x in arrays.items()}


def load(
    arrays: Mapping[str, np.ndarray], names: Sequence[str], rules: Sequence[Rule]
) -> dict[str, dict[str, np.ndarray]]:
    """The adapters in arrays of `save`, by the matrices of ours that they belong to.

    names: of all matrices (`models.lora.matrices`). A packed query_key_value comes back as three
    adapters with the same A, which computes the same.
    Raises WeightsError for arrays that belong to none of them.
    """
    adapters, left = {}, dict(arrays)
    for name in names:
        if name.endswith(("query_key_value/kernel", "convolution/kernel")):
            continue
        try:
            (module,), rule = _modules(name, rules)
        except WeightsError:  # no module in transformers, so no array either
            continue
        prefix = f"base_model.model.{module}.lora_"
        if f"{prefix}A.weight" not in left:
            continue
        first, second = left.pop(f"{prefix}A.weight"), left.pop(f"{prefix}B.weight")
        a = rule.codec.load(first)[0] if len(rule.ours) == 1 else first.T
        adapters[name] = {"a": a, "b": second.reshape(second.shape[:2]).T}
        if (magnitude := left.pop(f"{prefix}magnitude_vector", None)) is not None:
            adapters[name]["magnitude"] = magnitude.reshape(-1)
    if left:
        raise WeightsError(f"the adapter has arrays of no matrix of the model: {min(left)}")
    return adapters


def config(
    arrays: Mapping[str, np.ndarray], rank: int, alpha: float, base: str, dropout: float = 0.0
) -> dict[str, object]:
    """Content of adapter_config.json for `arrays` of `save`.

    base: path of the frozen weights.   dropout: rate used in training.
    """
    modules = {name.removeprefix("base_model.model.").split(".lora_")[0] for name in arrays}
    return {
        "peft_type": "LORA",
        "base_model_name_or_path": base,
        "target_modules": sorted(modules),
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": dropout,
        "use_dora": any(name.endswith("magnitude_vector") for name in arrays),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


def _modules(name: str, rules: Sequence[Rule]) -> tuple[list[str], Rule]:
    """The transformers modules of one of our matrices, and the rule of its weight."""
    folder, _, part = name.removesuffix("/kernel").rpartition("/")
    is_attention = part in (*ATTENTION, "_".join(ATTENTION))
    path = f"{folder}/query/kernel" if is_attention else name
    matching = expand(rules, [path])
    # The packed projections of a torch.nn.MultiheadAttention are not separate modules.
    if not matching or (is_attention and len(matching[0].theirs) != len(ATTENTION)):
        raise WeightsError(
            f"PEFT has no module for the adapter of {name}; export the merged weights instead"
        )
    names = [theirs.removesuffix(".weight") for theirs in matching[0].theirs]
    chosen = [names[ATTENTION.index(part)]] if part in ATTENTION else names
    return chosen, matching[0]
