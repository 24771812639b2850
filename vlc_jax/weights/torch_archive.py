"""Reader of torch archives that needs no torch and runs no code of the file.

A `.pt` file is a zip with a pickle that describes tensors, and one file of bytes per storage; a
TorchScript archive (OpenAI's CLIP) describes modules that hold tensors. A pickle may call any
function by name, so only the few names that build tensors are allowed here. Any other is refused,
or replaced by an object without code (`Inert`).
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
    """All tensors of the file as {name: array}, nested names joined by dots.

    Raises WeightsError for a file that is damaged, in the format of torch before 1.6, or holds
    anything but tensors.
    """
    return dict(_tensors(content(path), ""))


def content(path: Path, *, may_hold_objects: bool = False) -> Any:
    """The saved object, with its tensors as arrays.

    may_hold_objects: accept objects of other classes, each as an `Inert`; else they are refused.
      No code of the file is run either way.
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
            root = pickles[0].split("/")[0]  # all members lie in a folder named by who saved it
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
    """Placeholder for an object of any class: it keeps the pickled state and runs nothing."""

    state: Any = None

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accepts and drops all arguments."""

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __call__(self, *_: Any) -> "Inert":
        return Inert()

    def _take(self, *_: Any) -> None:
        """Drops the members of lists, sets and dicts of other classes."""

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
        if module.startswith("__torch__"):  # modules of a TorchScript archive
            return Inert
        known = {
            ("collections", "OrderedDict"): collections.OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _tensor,
            ("torch._utils", "_rebuild_parameter"): _first,
            ("torch", "Size"): tuple,
            # TorchScript's typed lists and attributes: the value without its type.
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
        kind, dtype, key, _, count = saved_id  # "_" is the device
        if kind != "storage" or not isinstance(dtype, np.dtype):
            raise WeightsError(f"{self.path} stores {kind!r} of {dtype!r}, not a tensor")
        if key not in self.storages:  # tensors may share a storage
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
    """Array of a torch tensor: an offset, shape and strides in a storage, as torch stores it."""
    last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
    if 0 in shape:
        return np.zeros(shape, storage.dtype)
    if offset < 0 or min(strides, default=0) < 0 or last >= len(storage):
        raise WeightsError(f"a tensor of shape {shape} lies outside its storage of {len(storage)}")
    # Only after the check above: as_strided itself reads any memory.
    step = storage.itemsize
    view = np.lib.stride_tricks.as_strided(
        storage[offset:], shape, [stride * step for stride in strides], writeable=False
    )
    return np.array(view)


def _first(data: Any, *_: Any) -> Any:
    return data


def _tensors(content: Any, prefix: str) -> Any:
    """Yields (name, array) of all tensors in nested dicts and modules."""
    if isinstance(content, Inert):
        content = content.state
    if isinstance(content, np.ndarray):
        yield prefix, content
    elif isinstance(content, dict):
        for key, value in content.items():
            yield from _tensors(value, f"{prefix}.{key}" if prefix else str(key))
