"""Tensors of a torch archive without torch, and without running what the archive asks to run.

A `.pt` file is a zip with a pickle that describes tensors and one file of bytes per storage; a
TorchScript archive (OpenAI's CLIP) describes modules that hold them. A pickle may call anything, so
only the few names that build tensors are known here; any other is refused by name, or stands for
nothing but what it is given.
"""

import collections
import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from vlc_jax.errors import WeightsError

_DTYPES = {
    "FloatStorage": np.dtype(np.float32),
    "HalfStorage": np.dtype(np.float16),
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "DoubleStorage": np.dtype(np.float64),
    "LongStorage": np.dtype(np.int64),
    "IntStorage": np.dtype(np.int32),
    "ShortStorage": np.dtype(np.int16),
    "CharStorage": np.dtype(np.int8),
    "ByteStorage": np.dtype(np.uint8),
    "BoolStorage": np.dtype(np.bool_),
}

_LISTS = ("int", "float", "double", "bool", "tensor")


def read(path: Path) -> dict[str, np.ndarray]:
    """Name -> array of everything that is a tensor, nested names joined by dots.

    Raises WeightsError for a file that is damaged, in the format torch had before 1.6, or asks for
    anything but tensors.
    """
    return dict(_tensors(content(path), ""))


def content(path: Path, *, may_hold_objects: bool = False) -> Any:
    """What was saved, its tensors as arrays.

    may_hold_objects: whether objects of other kinds are no reason to refuse a file. Each of them is
      then an `Inert`; nothing of what the file asks to run is run.
    Raises WeightsError as `read` does.
    """
    if not path.stat().st_size:
        raise WeightsError(f"{path} is empty")
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            pickles = [name for name in names if name.split("/")[1:] == ["data.pkl"]]
            if not pickles:
                raise WeightsError(f"{path} is a zip without data.pkl, not a torch archive")
            root = pickles[0].split("/")[0]
            order = f"{root}/byteorder"
            if order in names and archive.read(order).strip() != b"little":
                raise WeightsError(f"{path} was written on a big-endian machine")
            return _Unpickler(archive, root, path, may_hold_objects).load()
    except zipfile.BadZipFile as error:
        raise WeightsError(
            f"{path} is damaged, or not a torch archive of torch 1.6 or later: {error}"
        ) from error
    except (EOFError, KeyError, ValueError, TypeError, IndexError, pickle.UnpicklingError) as error:
        raise WeightsError(f"{path} is damaged: {error}") from error


class Inert:
    """Stands for an object of any class: it has the state that it was given, and does nothing."""

    state: Any = None

    def __init__(self, *_: Any, **__: Any) -> None:
        """Whatever it is made of."""

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __call__(self, *_: Any) -> "Inert":
        return Inert()

    def _take(self, *_: Any) -> None:
        """Members of lists, sets and dicts of other classes."""

    append = extend = add = __setitem__ = _take


class _Unpickler(pickle.Unpickler):
    def __init__(self, archive: zipfile.ZipFile, root: str, path: Path, may_hold_objects: bool):
        super().__init__(io.BytesIO(archive.read(f"{root}/data.pkl")))
        self.archive, self.root, self.path = archive, root, path
        self.may_hold_objects = may_hold_objects
        self.storages: dict[str, np.ndarray] = {}

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _DTYPES:
            return _DTYPES[name]
        if module.startswith("__torch__"):
            return Inert
        known = {
            ("collections", "OrderedDict"): collections.OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _tensor,
            ("torch._utils", "_rebuild_parameter"): _first,
            ("torch", "Size"): tuple,
            # TorchScript's lists and types of attributes, which hold no tensors of interest
            ("torch.jit._pickle", "restore_type_tag"): _first,
            **{("torch.jit._pickle", f"build_{kind}list"): _first for kind in _LISTS},
        }
        if (module, name) not in known:
            if self.may_hold_objects:
                return Inert
            raise WeightsError(
                f"{self.path} asks to run {module}.{name}; only tensors are read. Save the bare "
                "state dict, best as .safetensors, and use that"
            )
        return known[module, name]

    def persistent_load(self, saved_id: Any) -> np.ndarray:
        kind, dtype, key, _, count = saved_id
        if kind != "storage" or not isinstance(dtype, np.dtype):
            raise WeightsError(f"{self.path} stores {kind!r} of {dtype!r}, not a tensor")
        if key not in self.storages:
            data = self.archive.read(f"{self.root}/data/{key}")
            if len(data) < count * dtype.itemsize:
                raise WeightsError(
                    f"{self.path} is truncated: storage {key} has {len(data)} bytes of "
                    f"{count * dtype.itemsize}"
                )
            self.storages[key] = np.frombuffer(data, dtype, count)
        return self.storages[key]


def _tensor(
    storage: np.ndarray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any
) -> np.ndarray:
    """A view of a storage, inside its bounds."""
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if 0 in shape:
        return np.zeros(shape, storage.dtype)
    if offset < 0 or min(strides, default=0) < 0 or last >= len(storage):
        raise WeightsError(f"a tensor of shape {shape} lies outside its storage of {len(storage)}")
    step = storage.itemsize
    view = np.lib.stride_tricks.as_strided(
        storage[offset:], shape, [stride * step for stride in strides], writeable=False
    )
    return np.array(view)


def _first(data: Any, *_: Any) -> Any:
    return data


def _tensors(content: Any, prefix: str) -> Any:
    """(name, array) of all tensors in nested dicts and modules."""
    if isinstance(content, Inert):
        content = content.state
    if isinstance(content, np.ndarray):
        yield prefix, content
    elif isinstance(content, dict):
        for key, value in content.items():
            yield from _tensors(value, f"{prefix}.{key}" if prefix else str(key))
