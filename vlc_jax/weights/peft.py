"""LoRA and DoRA adapters in the format of Hugging Face's PEFT: export, and reading an export."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.errors import WeightsError
from vlc_jax.weights import files, rename, sections
from vlc_jax.weights.rename import Codec, Rule
from vlc_jax.weights.sections import Key

ATTENTION = ("query", "key", "value")  # the order of names in a transformers rule
CONFIG, ARRAYS = "adapter_config.json", ("adapter_model.safetensors", "adapter_model.bin")
_PREFIX = "base_model.model."
_PART = re.compile(r"(?P<module>.*)\.lora_(?P<part>A|B|magnitude_vector)(\.default)?(\.weight)?")
# Settings that are read, with PEFT's defaults.
_SETTINGS = (Key("r", 8), Key("lora_alpha", 8.0), Key("use_dora", False))
# Others that show in the arrays or are of training; any further one must be off.
_READ = sections.names(
    """auto_mapping base_model_name_or_path corda_config eva_config exclude_modules inference_mode
    init_lora_weights loftq_config lora_alpha lora_dropout lora_ga_config megatron_core peft_version
    qalora_group_size r revision runtime_config target_modules task_type use_dora"""
)
# Others (pissa, olora, corda, loftq, lora_ga) train the adapter on a base that they changed first.
_KEEPS_BASE = sections.names("true false none gaussian orthogonal eva mica")
Parts = Mapping[str, Mapping[str, np.ndarray]]  # module -> "A", "B", "magnitude_vector" -> array


def settings(folder: Path) -> dict[str, Any]:
    """Content of an adapter_config.json, with `r`, `lora_alpha` and `use_dora`.

    Raises WeightsError for settings that change more than the arrays show.
    """
    file = folder / CONFIG
    content = sections.mapping(files.read_json(file), str(file))
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
    return {**content, **{key.name: key.read(content, str(file)) for key in _SETTINGS}}


def read(folder: Path) -> tuple[dict[str, Any], Parts]:
    """`settings` and arrays of an adapter.

    Raises WeightsError for arrays of another rank than `r`, or of other parts than `use_dora` says.
    """
    config = settings(folder)
    present = [folder / name for name in ARRAYS if (folder / name).exists()]
    if not present:
        raise WeightsError(f"{folder} holds none of {', '.join(ARRAYS)}")
    modules: dict[str, dict[str, np.ndarray]] = {}
    for name, array in files.read(present[0]).items():
        if not (match := _PART.fullmatch(name.removeprefix(_PREFIX))):
            raise WeightsError(f"{present[0]}: {name} is no part of an adapter")
        modules.setdefault(match["module"], {})[match["part"]] = array
        if match["part"] == "A" and array.shape[:1] != (config["r"],):
            raise WeightsError(
                f"{folder / CONFIG} has r {config['r']}, {name} the shape {array.shape}"
            )
    needed = {"A", "B", *(["magnitude_vector"] if config["use_dora"] else [])}
    for module, parts in modules.items():
        if parts.keys() != needed:
            raise WeightsError(
                f"{present[0]}: {module} has {', '.join(sorted(parts))}; only a module with "
                f"{', '.join(sorted(needed))} is supported (use_dora in {CONFIG})"
            )
    return config, modules


class _Module(NamedTuple):
    """A module of transformers: a matrix, or several of ours side by side.

    weights: names of its weight, of each layer of a stack.   ours: paths of our matrices.
    """

    weights: list[str]
    ours: tuple[str, ...]
    codec: Codec
    is_stack: bool


def _modules(rules: Sequence[Rule]) -> Iterator[_Module]:
    """The modules of expanded rules. The packed projections of a torch.nn.MultiheadAttention are
    not separate modules."""
    for rule in rules:
        weights, is_stack = list(zip(*rule.names, strict=True)), rule.layers is not None
        if len(weights) == 1 and all(path.endswith("/kernel") for path in rule.ours):
            if not rule.ours[-1].endswith("/key_value/kernel"):
                yield _Module(list(weights[0]), rule.ours, rule.codec, is_stack)
        elif len(weights) == len(ATTENTION) and rule.ours[0].endswith("/query/kernel"):
            for names, part in zip(weights, ATTENTION, strict=True):
                path = rule.ours[0].replace("/query/kernel", f"/{part}/kernel")
                yield _Module(list(names), (path,), rename.TRANSPOSED, is_stack)


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
        # one matrix of ours may be three modules in PEFT: they share A and split B by outputs
        is_packed = name.endswith("/query_key_value/kernel")
        parts = [name.replace("query_key_value", x) for x in ATTENTION] if is_packed else [name]
        columns = {x: np.split(adapter[x], len(parts), -1) for x in adapter.keys() - {"a"}}
        query = re.sub("/(key|value)/kernel", "/query/kernel", parts[0])
        modules = {module.ours: module for module in _modules(rename.expand(rules, [query]))}
        for index, part in enumerate(parts):
            if (part,) not in modules:
                raise WeightsError(
                    f"PEFT has no module for the adapter of {name}; export the merged weights "
                    "instead"
                )
            module = modules[(part,)]
            (first,), second = module.codec.save(adapter["a"]), columns["b"][index].T
            # A of a convolution is (rank, 3, patch, patch), of a Linear (rank, inputs)
            spatial = (1,) * (first.ndim - 2)
            prefix = f"{_PREFIX}{module.weights[0].removesuffix('.weight')}.lora_"
            arrays[f"{prefix}A.weight"] = first
            arrays[f"{prefix}B.weight"] = second.reshape(*second.shape, *spatial)
            if "magnitude" in columns:
                shape = (1, -1, *spatial) if spatial else (-1,)
                arrays[f"{prefix}magnitude_vector"] = columns["magnitude"][index].reshape(shape)
    return {key: np.array(x, np.float32, order="C") for key, x in arrays.items()}


def load(
    parts: Parts, names: Collection[str], rules: Sequence[Rule], common: Callable[[str], str] = str
) -> dict[str, dict[str, np.ndarray]]:
    """The adapters in `parts` of `read`, by the matrices of ours that they belong to.

    names: of all matrices (`models.lora.matrices`).   common: name of a weight in the file -> its
    name in `rules`. A packed query_key_value comes back as three adapters with the same A, which
    computes the same; so do several matrices of ours that are one module.
    Raises WeightsError for parts that belong to none of them, and for some layers of a stack only.
    """
    left, adapters = {common(f"{module}.weight"): x for module, x in parts.items()}, {}
    for module in _modules(rename.expand(rules, names)):
        missing = [name for name in module.weights if name not in left]
        if len(missing) == len(module.weights):
            continue
        if missing:
            raise WeightsError(rename.listing("layers without an adapter", missing))
        found = [_converted(module, left.pop(name)) for name in module.weights]
        for index, path in enumerate(module.ours):
            adapters[path] = {
                part: np.stack([layer[part][index] for layer in found])
                if module.is_stack
                else found[0][part][index]
                for part in found[0]
            }
    if left:
        raise WeightsError(rename.listing("adapters of no matrix of this model", sorted(left)))
    return adapters


def _converted(module: _Module, parts: Mapping[str, np.ndarray]) -> dict[str, Sequence[np.ndarray]]:
    """The parts of an adapter for each of our matrices."""
    first, second, name = parts["A"], parts["B"], module.weights[0]
    is_one = len(module.ours) == 1
    a = rename.convert(module.codec.load, name, [first]) if is_one else [first.T] * len(module.ours)
    converted = {"a": a, "b": rename.convert(module.codec.load, name, [second])}
    if "magnitude_vector" in parts:
        column = parts["magnitude_vector"].reshape(-1, *(1,) * (second.ndim - 1))
        converted["magnitude"] = [x[0] for x in module.codec.load(column)]
    return converted


def config(
    arrays: Mapping[str, np.ndarray], rank: int, alpha: float, base: str, dropout: float = 0.0
) -> dict[str, object]:
    """Content of adapter_config.json for `arrays` of `save`.

    base: path of the frozen weights.   dropout: rate used in training.
    """
    modules = {name.removeprefix(_PREFIX).split(".lora_")[0] for name in arrays}
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
