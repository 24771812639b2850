"""Readers of weights files: safetensors, torch archives, npz, Hugging Face folders."""

import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import safetensors

from vlc_jax.errors import WeightsError
from vlc_jax.weights import torch_archive, zip_file

SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".npz")
MAX_FILE_NAME = 255  # letters, of any file system
# File names in folders of Hugging Face and open_clip; an index lists shards. safetensors first: it
# holds arrays only, whereas the .bin files are pickles.
IN_FOLDER = (
    "model.safetensors",
    "model.safetensors.index.json",
    "open_clip_model.safetensors",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "open_clip_pytorch_model.bin",
)
SAFETENSORS_DTYPES = (
    *("F64", "F32", "F16", "BF16", "BOOL"),
    *(f"{sign}{bits}" for sign in "IU" for bits in (8, 16, 32, 64)),
)


def read(path: str | Path) -> dict[str, np.ndarray]:
    """Arrays of a file, or of the model in a folder, by their names there.

    Of a training checkpoint only its "state_dict" is read, and a "module." before all names is
    removed. Raises WeightsError for a missing, damaged or unknown file.
    """
    path = Path(path)
    if path.is_dir():
        present = [path / name for name in IN_FOLDER if (path / name).exists()]
        if not present:
            raise WeightsError(f"{path} holds no weights; looked for {', '.join(IN_FOLDER)}")
        path = present[0]
    if path.name.endswith(".index.json"):
        shards = [_read_file(shard) for shard in _shards(path)]
        arrays = {name: array for shard in shards for name, array in shard.items()}
    else:
        arrays = _read_file(path)
    if not arrays:
        raise WeightsError(f"{path} holds no arrays")
    _check(path, arrays)
    return without_wrappers(arrays)


def read_json(path: Path) -> Any:
    """Content of a JSON file. Raises WeightsError for a missing or damaged one."""
    if not path.is_file():
        raise WeightsError(f"no file {path}")
    try:
        return json.loads(path.read_text("utf-8"))
    except RecursionError as error:
        raise WeightsError(f"{path} is damaged: its brackets are nested too deeply") from error
    except (ValueError, OSError) as error:
        raise WeightsError(f"{path} is damaged: {error}") from error


def _read_file(path: Path) -> dict[str, np.ndarray]:
    if not path.exists():
        raise WeightsError(f"no weights at {path}")
    if path.suffix not in SUFFIXES:
        raise WeightsError(f"{path} is none of {', '.join(SUFFIXES)}, nor a folder")
    if not path.is_file():  # a pipe would be waited for, a device has no end
        raise WeightsError(f"{path} is no file")
    return _READERS[path.suffix](path)


def _check(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Raises WeightsError for arrays of anything but real numbers, and for names that no line of an
    error message could hold."""
    for name, array in arrays.items():
        if len(name) > torch_archive.MAX_NAME or not name.isprintable():
            raise WeightsError(f"{path} has an array with the name {name[:50]!r}")
        # kinds: bool, signed, unsigned, floating; bfloat16 is of numpy's kind "void"
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
    """The files that an index names, all in its own folder."""
    content = read_json(index)
    names = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(names, dict) or not all(isinstance(x, str) for x in names.values()):
        raise WeightsError(f"{index} is damaged: it has no weight_map of file names")
    shards = [index.parent / Path(name).name for name in sorted(set(names.values()))]
    for shard in shards:
        # an index among the shards could name itself
        if shard.suffix not in SUFFIXES or len(shard.name) > MAX_FILE_NAME or "\0" in shard.name:
            raise WeightsError(f"{index} names {shard.name[:50]!r}, no file of {SUFFIXES}")
    return shards


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    arrays = {}
    try:
        with safetensors.safe_open(path, framework="np") as file:
            for name in file.keys():  # noqa: SIM118, it is no dict
                if (dtype := file.get_slice(name).get_dtype()) not in SAFETENSORS_DTYPES:
                    raise WeightsError(
                        f"{path}: {name[:50]} is of dtype {dtype}; known are "
                        f"{', '.join(SAFETENSORS_DTYPES)}"
                    )
                arrays[name] = file.get_tensor(name)
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise WeightsError(f"{path} is damaged, or not safetensors: {error}") from error
    return arrays


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        with zip_file.open_zip(path) as archive:
            return {
                name.removesuffix(".npy"): _read_npy(zip_file.read(archive, name))
                for name in archive.namelist()
            }
    except zip_file.DAMAGE as error:
        raise WeightsError(f"{path} is damaged, or holds more than arrays: {error}") from error


def _read_npy(data: bytes) -> np.ndarray:
    """The array of an .npy file; not by numpy's reader, which sets aside what its header names."""
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise ValueError(f"an array in version {version} of the format")
    try:
        shape, is_fortran, dtype = readers[version](file)
    except (RecursionError, MemoryError) as error:  # what Python's parser says of deep nesting
        raise ValueError("the header of an array cannot be read") from error
    if dtype.hasobject:  # reading it would run code
        raise ValueError("an array of objects")
    start, size = file.tell(), math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or size != len(data) - start:
        raise ValueError(f"an array of shape {shape}, which needs {size} bytes, in {len(data)}")
    array = np.frombuffer(data, dtype, offset=start) if size else np.zeros(0, dtype)
    return array.reshape(shape, order="F" if is_fortran else "C")


_READERS = {
    ".safetensors": _read_safetensors,
    ".npz": _read_npz,
    **dict.fromkeys((".pt", ".pth", ".bin"), torch_archive.read),
}
