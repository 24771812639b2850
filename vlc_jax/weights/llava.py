"""Weights of LLaVA, PaliGemma, Gemma 3, Qwen3-VL, InstructBLIP, Otter, and of language models
(Llama, Mistral, Phi-3, Gemma, MPT).

Array names of all folder layouts (Hugging Face before and since transformers 5, LLaVA's own, plain
language models) are first mapped to common names; rules then map these to our tree {image,
projector, lm}, where the layers of `lm` are stacked. One stacked array at a time is in host memory.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from vlc_jax.errors import WeightsError
from vlc_jax.weights import files, flamingo, gguf, llava_sizes, paligemma, rename
from vlc_jax.weights.lm_config import MPT
from vlc_jax.weights.rename import Codec, Rule, rule

_NAMES = (  # regular expressions of prefixes -> common prefix; the first match is used
    (r"(model\.)?vision_tower\.(vision_tower\.)?(vision_model\.)?", "vision_model."),
    (r"vision_model\.", "vision_model."),
    (r"(model\.)?visual\.", "visual."),
    (r"(model\.)?multi_modal_projector\.", "projector."),
    (r"model\.mm_projector\.0\.", "projector.linear_1."),
    (r"model\.mm_projector\.2\.", "projector.linear_2."),
    (r"(language_model\.)?lm_head\.", "lm.lm_head."),
    (r"(model\.)?language_model\.(model\.)?", "lm."),
    (r"(model\.)?(?=(embed_tokens|layers|norm)\.)", "lm."),
    *flamingo.NAMES,
)
# buffers, and SigLIP's pooling, which no language model reads
_IGNORED = (r".*\.position_ids", r".*\.rotary_emb\.inv_freq", r"vision_model\.head\..*")
_TOWERS = ("vision_model.", "visual.", "img/")  # common prefixes of image towers
# The rest of a whole CLIP, from which only the image tower is taken.
_OTHER_TOWER = r"text_model\..*|text_projection\..*|visual_projection\..*|logit_scale"


def rules(sizes: Mapping[str, Any], *, is_fused: bool) -> list[Rule]:
    """Rules for the common names of all layouts; "{i}" is the index of a layer.

    is_fused: query, key and value are one matrix, and so are gate and up (Phi-3).
    """
    family, is_mpt = llava_sizes.FAMILIES.get(sizes.get("kind", "")), sizes["family"] == MPT
    return [
        *((*family.rules(sizes), *family.projector) if family else ()),
        rule("lm.embed_tokens.weight", "lm/token_embedding/embedding"),
        *(flamingo.blocks(sizes) if is_mpt else _blocks(sizes, is_fused)),
        rule("lm.norm.weight", "lm/norm/scale"),
        rule("lm.lm_head.weight", "lm/head", rename.TRANSPOSED),
    ]


# Norms of a block, by the family of the language model: theirs -> ours
_NORMS = {"input_layernorm": "attention_norm", "post_attention_layernorm": "mlp_norm"}
_QWEN3_NORMS = {"self_attn.q_norm": "query_norm", "self_attn.k_norm": "key_norm", **_NORMS}
_GEMMA3_NORMS = {
    "input_layernorm": "attention_norm",
    "self_attn.q_norm": "query_norm",
    "self_attn.k_norm": "key_norm",
    "post_attention_layernorm": "attention_post_norm",
    "pre_feedforward_layernorm": "mlp_norm",
    "post_feedforward_layernorm": "mlp_post_norm",
}
_NORMS_OF = {"gemma3_text": _GEMMA3_NORMS, "qwen3_vl_text": _QWEN3_NORMS}


def _blocks(sizes: Mapping[str, Any], is_fused: bool) -> list[Rule]:
    theirs, ours = "lm.layers.{i}", "lm/blocks"
    lm, norms = sizes["lm"], _NORMS_OF.get(sizes["family"], _NORMS)

    def matrix(name: str, path: str) -> Rule:
        return rule(f"{theirs}.{name}.weight", f"{ours}/{path}/kernel", rename.TRANSPOSED)

    def fused(name: str, rows: Mapping[str, int]) -> Rule:
        paths = [f"{ours}/{path}/kernel" for path in rows]
        return rule(f"{theirs}.{name}.weight", paths, _rows(list(rows.values())))

    head = lm["head_width"] or lm["width"] // lm["heads"]
    key_value = head * (lm["kv_heads"] or lm["heads"])
    if is_fused:
        query_key_value = {"query": head * lm["heads"], "key": key_value, "value": key_value}
        gate_up = dict.fromkeys(("gate", "up"), lm["mlp_width"])
        inner = [fused("self_attn.qkv_proj", query_key_value), fused("mlp.gate_up_proj", gate_up)]
    else:
        projections = {"query": "q", "key": "k", "value": "v"}
        inner = [matrix(f"self_attn.{x}_proj", path) for path, x in projections.items()]
        inner += [matrix(f"mlp.{x}_proj", x) for x in ("gate", "up")]
    blocks = [
        *(rule(f"{theirs}.{x}.weight", f"{ours}/{path}/scale") for x, path in norms.items()),
        *inner,
        matrix("self_attn.o_proj", "out"),
        matrix("mlp.down_proj", "down"),
    ]
    return [each._replace(layers=range(lm["depth"])) for each in blocks]


def _rows(counts: Sequence[int]) -> Codec:
    """Codec of a torch Linear that concatenates several matrices along its outputs (rows)."""
    ends = np.cumsum(counts)

    def load(weight: np.ndarray) -> tuple[np.ndarray, ...]:
        if len(weight) != ends[-1]:
            raise ValueError(f"expected {ends[-1]} rows, {' + '.join(map(str, counts))}")
        return tuple(part.T for part in np.split(weight, ends[:-1]))

    return Codec(load, lambda *parts: (np.concatenate([part.T for part in parts]),))


def read_sizes(folder: str | Path) -> dict[str, Any]:
    """Architecture of the model in a folder, from its config.json, see `llava_sizes.read`; for a
    big_vision file, from its arrays; for a GGUF file, from its metadata."""
    if Path(folder).suffix == ".npz":
        return paligemma.read_sizes(folder)
    path = config_file(folder)
    try:
        config, places = read_config(folder), None
        if isinstance(config, dict) and config.get("model_type") == flamingo.OPEN_FLAMINGO:
            config, places = flamingo.with_parts(config, Path(folder))
        return llava_sizes.read(config, places=places)
    except WeightsError as error:
        raise files.naming(path, error) from error


def config_file(folder: str | Path) -> Path:
    """The file with the architecture: config.json, or the GGUF file itself."""
    path = Path(folder)
    return path if path.suffix == gguf.SUFFIX and path.is_file() else path / "config.json"


def read_config(folder: str | Path) -> dict[str, Any]:
    """config.json of a folder, or the same fields from the metadata of a GGUF file."""
    path = config_file(folder)
    return gguf.config(path) if path.suffix == gguf.SUFFIX else files.read_json(path)


def load(
    folder: str | Path,
    sizes: Mapping[str, Any],
    shapes: Mapping[str, Any],
    *,
    put: rename.Put | None = None,
    dtype: Any = None,
) -> dict[str, Any]:
    """Parameters of a folder, of PaliGemma's `.npz` or of a GGUF file, a tree like `shapes`.

    sizes: from `read_sizes`.   shapes: {"image", "projector", "lm"} for LLaVA, for InstructBLIP
    also {"reader"}, {"lm"} for a language model, of arrays or jax.ShapeDtypeStruct.
    put: moves each parameter to its devices: (path, array) -> the leaf of the result.   dtype:
      dtype of all parameters; None: the dtypes of the file.
    LLaVA's own files may lack the frozen image tower. It is then read from the CLIP named
    mm_vision_tower in config.json: that folder, or a folder of the same last name beside `folder`.
    Strict: raises WeightsError for names left over or missing, a missing layer, other shapes, NaN
    and infinity.
    """
    folder, is_part = Path(folder), sizes.get("kind") == flamingo.OPEN_FLAMINGO
    is_npz = folder.suffix == ".npz"
    try:
        source = folder / flamingo.CHECKPOINT if is_part else folder
        arrays = paligemma.open_arrays(folder) if is_npz else files.open_arrays(source)
        named = _named(arrays, sizes)
        if is_part:
            named = flamingo.with_frozen(named, _frozen(folder, flamingo.LANGUAGE, sizes))
        if "image" in shapes and not any(name.startswith(_TOWERS) for name in named):
            key = flamingo.VISION if is_part else "mm_vision_tower"
            named |= _frozen(folder, key, sizes, _OTHER_TOWER)
        used = paligemma.rules(sizes) if is_npz else rules(sizes, is_fused=is_fused(named))
        expected = {path: tuple(x.shape) for path, x in rename.flatten(shapes).items()}
        arrays = rename.AtAccess(named, lambda place: place[0][place[1]])
        params = rename.load(used, arrays, expected, put=put, dtype=dtype, is_exact=True)
        return rename.unflatten(params)
    except WeightsError as error:
        raise files.naming(folder, error) from error


Named = dict[str, tuple[Mapping[str, np.ndarray], str]]  # common name -> (file, name in the file)


def _named(arrays: Mapping[str, np.ndarray], sizes: Mapping[str, Any], unused: str = "") -> Named:
    """The arrays of a file by their common names, without unused ones.

    unused: regular expression of further unused common names.
    """
    skipped = [*_IGNORED, unused]
    if "image" in sizes:  # blocks after the selected hidden state
        depth = sizes["image"]["depth"]
        later = range(depth + 1 + sizes["layer"], depth)
        skipped += [rf"vision_model\.encoder\.layers\.{i}\..*" for i in later]
    if sizes["lm"]["is_tied"]:
        skipped.append(r"lm\.lm_head\.weight")
    named: Named = {}
    for name in arrays:
        one = one_name(name)
        if any(re.fullmatch(regex, one) for regex in skipped):
            continue
        if one in named:
            raise WeightsError(f"{name} and {named[one][1]} are the same parameter")
        named[one] = (arrays, name)
    return named


def one_name(name: str) -> str:
    """The name common to all layouts of the array `name` of a file."""
    for regex, one in _NAMES:
        if match := re.match(regex, name):
            return match.expand(one) + name[match.end() :]
    return name


def _frozen(folder: Path, key: str, sizes: Mapping[str, Any], unused: str = "") -> Named:
    """The arrays of a frozen part, of the folder that `key` of config.json names."""
    return _named(files.open_arrays(files.beside(folder, key)), sizes, unused)


def is_fused(names: Iterable[str]) -> bool:
    """True if query, key and value are one matrix; `names` are names common to all layouts."""
    return any(name.endswith(".qkv_proj.weight") for name in names)


def save(
    params: Mapping[str, Any],
    sizes: Mapping[str, Any],
    folder: str | Path,
    max_shard_bytes: int = 5 * 10**9,
) -> None:
    """Writes a folder that Hugging Face's classes load: config.json and safetensors, in shards.

    The saved image tower has only the blocks in `params`, and its last hidden state is selected.
    Raises WeightsError for parameters that the format has no name for, for MPT and Qwen3-VL.
    """
    if sizes["family"] in (MPT, "qwen3_vl_text"):
        raise WeightsError("MPT, Otter, OpenFlamingo and Qwen3-VL are read, and not written")
    folder, flat = Path(folder), rename.flatten(params)
    folder.mkdir(parents=True, exist_ok=True)
    if "image" in sizes:
        depth = sizes["image"]["depth"] + 1 + sizes["layer"]
        sizes = {**sizes, "image": {**sizes["image"], "depth": depth}, "layer": -1}
    config = llava_sizes.write(sizes)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    shards, shard_of, total = [], {}, 0
    for shard in _shards(_their_arrays(flat, sizes), max_shard_bytes):
        shards.append(folder / f"part-{len(shards)}.safetensors")
        safetensors.numpy.save_file(shard, shards[-1], {"format": "pt"})
        shard_of |= dict.fromkeys(shard, len(shards) - 1)
        total += sum(array.nbytes for array in shard.values())
    if len(shards) == 1:
        shards[0].rename(folder / "model.safetensors")
        return
    for number, path in enumerate(shards):
        name = f"model-{number + 1:05}-of-{len(shards):05}.safetensors"
        shards[number] = path.rename(folder / name)
    weight_map = {name: shards[number].name for name, number in shard_of.items()}
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def _their_arrays(
    flat: Mapping[str, Any], sizes: Mapping[str, Any]
) -> Iterator[tuple[str, np.ndarray]]:
    prefixes = {"lm.": "model.", "lm.lm_head.": "lm_head."}
    if "image" in sizes:
        prefixes = {"lm.": "language_model.model.", "lm.lm_head.": "language_model.lm_head."}
        if sizes["kind"] == "instructblip":
            prefixes[""] = ""
        else:
            prefixes["vision_model."] = "vision_tower.vision_model."
            prefixes["projector."] = "multi_modal_projector."
    for name, array in rename.saved(rules(sizes, is_fused=sizes["family"] == "phi3"), flat):
        prefix = max((p for p in prefixes if name.startswith(p)), key=len)
        yield prefixes[prefix] + name.removeprefix(prefix), array


def _shards(
    arrays: Iterator[tuple[str, np.ndarray]], limit: int
) -> Iterator[dict[str, np.ndarray]]:
    shard: dict[str, np.ndarray] = {}
    for name, array in arrays:
        if shard and sum(x.nbytes for x in shard.values()) + array.nbytes > limit:
            yield shard
            shard = {}
        shard[name] = array
    yield shard
