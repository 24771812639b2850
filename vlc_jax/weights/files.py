"""Readers of weights files: safetensors, torch archives, npz, GGUF, folders of Hugging Face and of
Orbax."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import safetensors

from vlc_jax.errors import WeightsError
from vlc_jax.input_pipeline.stores import hub
from vlc_jax.weights import gguf, npz, orbax_folder, rename, sizes, torch_archive

TORCH = (".pt", ".pth", ".th", ".bin")
SUFFIXES = (".safetensors", *TORCH, ".npz", gguf.SUFFIX)
MAX_FILE_NAME = 255  # characters, the limit of common file systems
SAFETENSORS_DTYPES = (
    "F64",
    "F32",
    "F16",
    "BF16",
    "BOOL",
    *(f"{sign}{bits}" for sign in "IU" for bits in (8, 16, 32, 64)),
)


def read(path: str | Path, *, only_shapes: bool = False) -> dict[str, np.ndarray]:
    """Arrays of a file, or of the model in a folder, by their names in the file.

    only_shapes: placeholders instead of arrays (`sizes.placeholder`); no values are read.
    In a training checkpoint only the "state_dict" is read, and a common prefix "module." of all
    names is removed. Raises WeightsError for a missing, damaged or unknown file.
    """
    path = _in_folder(Path(path))
    parts = [_read_file(shard, only_shapes) for shard in _shards(path)]
    arrays = {name: array for part in parts for name, array in part.items()}
    if not arrays:
        raise WeightsError(f"{path} holds no arrays")
    _check(path, arrays)
    return without_wrappers(arrays)


def _in_folder(path: Path) -> Path:
    """The weights file or Orbax checkpoint in a folder; a path that is no folder as it is."""
    if not path.is_dir():
        return path
    present = [path / name for name in hub.WEIGHTS if (path / name).exists()]
    present = present or orbax_folder.find(path)
    if not present:
        names = ", ".join(hub.WEIGHTS)
        raise WeightsError(f"{path} holds no weights; looked for {names}, an Orbax checkpoint")
    return present[0]


def open_arrays(path: str | Path) -> Mapping[str, np.ndarray]:
    """The arrays of a file or folder, without memory of their own where the format allows that.

    Safetensors are read at access, GGUF is dequantised at access, torch archives are views of the
    mapped files, .npz files are read at once. Raises WeightsError as `read` does, also at access.
    """
    shards = _shards(_in_folder(Path(path)))
    if shards[0].suffix == gguf.SUFFIX:
        return gguf.Arrays(shards[0])
    is_lazy = all(shard.suffix == ".safetensors" for shard in shards)
    if not is_lazy:
        return read(path)
    places: dict[str, tuple[Any, str]] = {}
    for shard in shards:
        # checks names, dtypes and the length of the file from the header
        _check(shard, placeholders := _read_file(shard, only_shapes=True))
        file = safetensors.safe_open(shard, framework="np")
        places |= {name: (file, name) for name in placeholders}
    return rename.AtAccess(places, lambda place: place[0].get_tensor(place[1]))


def read_json(path: Path) -> Any:
    """Content of a JSON file. Raises WeightsError for a missing or damaged one."""
    if not path.is_file():
        raise WeightsError(f"no file {path}")
    try:
        return json.loads(path.read_text("utf-8-sig"))
    except RecursionError as error:
        raise WeightsError(f"{path} is damaged: its brackets are nested too deeply") from error
    except (ValueError, OSError) as error:
        raise WeightsError(f"{path} is damaged: {error}") from error


def naming(path: str | Path, error: Exception) -> WeightsError:
    """`error` with the path of its file in front, unless it has it."""
    return WeightsError(f"{error}" if str(path) in f"{error}" else f"{path}: {error}")


def beside(folder: Path, key: str) -> Path:
    """The folder of a frozen part that weights lack: `key` of their config.json names it, itself or
    by the last part of its name beside `folder`. Raises WeightsError if there is none."""
    name = str(read_json(folder / "config.json").get(key, ""))
    near = folder.resolve().parent / Path(name).name
    for path in (Path(name), near):
        if name and path.is_dir():
            return path
    what = "language model" if key.startswith("lang") else "CLIP"
    raise WeightsError(
        f"a part is missing: config.json names {name!r} as {key}; download that {what} to {near}"
    )


def _read_file(path: Path, only_shapes: bool) -> dict[str, np.ndarray]:
    if not path.exists():
        raise WeightsError(f"no weights at {path}")
    if (path / orbax_folder.MANIFEST).is_file():
        return orbax_folder.read(path, only_shapes)
    if path.suffix not in SUFFIXES:
        raise WeightsError(f"{path} is none of {', '.join(SUFFIXES)}, nor a folder")
    # reading a pipe blocks, reading a device never ends
    if not path.is_file():
        raise WeightsError(f"{path} is no file")
    return _READERS[path.suffix](path, only_shapes)


def _check(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Raises WeightsError for dtypes other than real numbers, and for names too long or unprintable
    for an error message."""
    for name, array in arrays.items():
        if len(name) > torch_archive.MAX_NAME or not name.isprintable():
            raise WeightsError(f"{path} has an array with the name {name[:50]!r}")
        # kinds: bool, signed, unsigned, floating; numpy has bfloat16 under kind "void"
        if array.dtype.kind not in "biuf" and array.dtype != ml_dtypes.bfloat16:
            raise WeightsError(
                f"{path}: {name} is of dtype {array.dtype}; only real numbers are weights"
            )


def without_wrappers(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`arrays` without the prefixes of trainers: "state_dict." (open_clip) and "module." (DDP)."""
    prefix = "state_dict."
    inner = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
    arrays = inner or dict(arrays)
    if all(name.startswith("module.") for name in arrays):
        arrays = {name.removeprefix("module."): value for name, value in arrays.items()}
    return arrays


def _shards(index: Path) -> list[Path]:
    """The files listed by an index, all in its own folder; of any other file, the file itself."""
    if not index.name.endswith(".index.json"):
        return [index]
    content = read_json(index)
    names = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(names, dict) or not all(isinstance(x, str) for x in names.values()):
        raise WeightsError(f"{index} is damaged: it has no weight_map of file names")
    shards = [index.parent / Path(name).name for name in sorted(set(names.values()))]
    for shard in shards:
        # SUFFIXES exclude .json: an index could list itself
        if shard.suffix not in SUFFIXES or len(shard.name) > MAX_FILE_NAME or "\0" in shard.name:
            raise WeightsError(f"{index} names {shard.name[:50]!r}, no file of {SUFFIXES}")
    return shards


def _read_safetensors(path: Path, only_shapes: bool) -> dict[str, np.ndarray]:
    arrays = {}
    try:
        with safetensors.safe_open(path, framework="np") as file:
            for name in file.keys():  # noqa: SIM118, not a dict
                header = file.get_slice(name)
                if (dtype := header.get_dtype()) not in SAFETENSORS_DTYPES:
                    raise WeightsError(
                        f"{path}: {name[:50]} is of dtype {dtype}; known are "
                        f"{', '.join(SAFETENSORS_DTYPES)}"
                    )
                if only_shapes:  # float32 for every dtype, which is checked above
                    arrays[name] = sizes.placeholder(header.get_shape())
                else:
                    arrays[name] = file.get_tensor(name)
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise WeightsError(f"{path} is damaged, or not safetensors: {error}") from error
    return arrays


_READERS = {
    ".safetensors": _read_safetensors,
    ".npz": npz.read,
    gguf.SUFFIX: gguf.read,
    **dict.fromkeys(TORCH, torch_archive.read),
}
