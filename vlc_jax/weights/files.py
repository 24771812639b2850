"""Readers of weights files: safetensors, torch archives, npz, Hugging Face folders."""

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import safetensors

from vlc_jax.errors import WeightsError
from vlc_jax.weights import torch_archive

SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".npz")
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
    if not path.exists():
        raise WeightsError(f"no weights at {path}")
    if path.name.endswith(".index.json"):
        return _read_shards(path)
    if path.suffix not in SUFFIXES:
        raise WeightsError(f"{path} is none of {', '.join(SUFFIXES)}, nor a folder")
    arrays = _READERS[path.suffix](path)
    if not arrays:
        raise WeightsError(f"{path} holds no arrays")
    return without_wrappers(arrays)


def without_wrappers(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`arrays` without the prefixes of trainers: "state_dict." (open_clip) and "module." (DDP)."""
    prefix = "state_dict."
    inner = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
    arrays = inner or dict(arrays)
    if all(name.startswith("module.") for name in arrays):
        arrays = {name.removeprefix("module."): value for name, value in arrays.items()}
    return arrays


def _read_shards(index: Path) -> dict[str, np.ndarray]:
    try:
        names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(f"{index} is damaged: {error!r}") from error
    # Path(name).name: an index may name files of its own folder only.
    return {k: v for name in names for k, v in read(index.parent / Path(name).name).items()}


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    try:
        with safetensors.safe_open(path, framework="np") as file:
            names = list(file.keys())
            return {name: file.get_tensor(name) for name in names}
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise WeightsError(f"{path} is damaged, or not safetensors: {error}") from error


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    try:
        # allow_pickle=False: an object array would run code when it is read.
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise WeightsError(f"{path} is damaged, or holds more than arrays: {error}") from error


_READERS = {
    ".safetensors": _read_safetensors,
    ".npz": _read_npz,
    **dict.fromkeys((".pt", ".pth", ".bin"), torch_archive.read),
}
