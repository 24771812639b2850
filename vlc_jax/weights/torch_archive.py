"""Reader of torch archives that needs no torch and runs no code of the file.

A `.pt` file is a zip with a pickle that describes tensors, and one file of bytes per storage; a
TorchScript archive (OpenAI's CLIP) describes modules that hold tensors. A pickle can call any
function by name, so only the few names that build tensors are allowed. Any other name is refused,
or replaced by an object without code (`Inert`). A small file cannot make the reader allocate much
memory: tensors are views of the bytes read, and all sizes are checked against the size of the file.
"""

import collections
import io
import pickle
import pickletools
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from vlc_jax.errors import WeightsError
from vlc_jax.input_pipeline.stores import zips
from vlc_jax.weights import sizes, zip_file

MAX_ENTRIES = 100_000  # of nested dicts: a pickle can repeat a dict at each of many levels
MAX_NAME = 300  # characters of a name, all levels joined

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


def read(path: Path, only_shapes: bool = False) -> dict[str, np.ndarray]:
    """All tensors of the file as {name: array}, nested names joined by dots.

    They are views of the mapped file, without memory of their own: it must not change while they
    are in use.
    only_shapes: placeholders instead of arrays (`sizes.placeholder`); no values are read.
    Raises WeightsError for a file that is damaged, in the format of torch before 1.6, or holds
    anything but tensors.
    """
    try:
        return _tensors(content(path, only_shapes=only_shapes))
    except ValueError as error:
        raise WeightsError(f"{path} is damaged: {error}") from error


def content(path: Path, *, may_hold_objects: bool = False, only_shapes: bool = False) -> Any:
    """The saved object, with tensors as arrays; only_shapes: as in `read`.

    may_hold_objects: True: objects of other classes become `Inert`; False: they are refused. No
      code of the file is run in either case.
    Raises WeightsError as `read` does.
    """
    if not path.stat().st_size:
        raise WeightsError(f"{path} is empty")
    try:
        with zips.open_zip(path) as archive:
            names = archive.namelist()
            pickles = [name for name in names if name.split("/")[1:] == ["data.pkl"]]
            if not pickles:
                raise WeightsError(f"{path} is a zip without data.pkl, not a torch archive")
            root = pickles[0].split("/")[0]  # all members lie in one folder of any name
            order = f"{root}/byteorder"
            if order in names and zip_file.read(archive, order).strip() != b"little":
                raise WeightsError(f"{path} was written on a big-endian machine")
            return _Unpickler(archive, root, path, may_hold_objects, only_shapes).load()
    except zipfile.BadZipFile as error:
        raise WeightsError(
            f"{path} is damaged, or not a torch archive of torch 1.6 or later: {error}"
        ) from error
    except zips.DAMAGE as error:
        raise WeightsError(f"{path} is damaged: {str(error)[:200]}") from error


class _Storage(NamedTuple):
    """Raw storage that tensors view; not an ndarray, since a view may exceed another view."""

    numbers: np.ndarray


class _Named(NamedTuple):
    """The object that a name in a pickle refers to. A tuple, since a pickle can set the state of
    any object it names: on a bare dtype or function it would change the whole process."""

    value: Any

    def __call__(self, *arguments: Any) -> Any:
        return self.value(*arguments)


class Inert:
    """Placeholder for an object of any class: it holds the pickled state and runs no code."""

    state: Any = None

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accepts and ignores all arguments."""

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __call__(self, *_: Any) -> "Inert":
        return Inert()

    def _take(self, *_: Any) -> None:
        """Ignores the members of lists, sets and dicts of other classes."""

    append = extend = add = __setitem__ = _take


class _Unpickler(pickle.Unpickler):
    def __init__(
        self,
        archive: zipfile.ZipFile,
        root: str,
        path: Path,
        may_hold_objects: bool,
        only_shapes: bool,
    ):
        data = zip_file.read(archive, f"{root}/data.pkl")
        _check_opcodes(data)
        super().__init__(io.BytesIO(data))
        self.archive, self.root, self.path = archive, root, path
        self.may_hold_objects, self.only_shapes = may_hold_objects, only_shapes
        self.mapped = zip_file.map_file(archive)
        self.storages: dict[str, bytes | memoryview | np.ndarray] = {}  # array: a placeholder
        self.spare = zips.MAX_RATIO * path.stat().st_size  # bytes that tensors may still take

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _DTYPES:
            return _Named(_DTYPES[name])
        if module.startswith("__torch__"):  # modules of a TorchScript archive
            return Inert
        known = {
            ("collections", "OrderedDict"): _ordered_dict,
            ("torch._utils", "_rebuild_tensor_v2"): self._tensor,
            ("torch._utils", "_rebuild_parameter"): _first,
            ("torch", "Size"): _first,  # its argument is a tuple already
            # TorchScript's typed lists and attributes: the value without its type.
            ("torch.jit._pickle", "restore_type_tag"): _first,
            **{("torch.jit._pickle", f"build_{kind}list"): _first for kind in _LISTS},
        }
        if (module, name) not in known:
            if self.may_hold_objects:
                return Inert
            raise WeightsError(
                f"{self.path} asks to run {module[:50]}.{name[:50]}; only tensors are read. Save "
                "the bare state dict, best as .safetensors, and use that"
            )
        return _Named(known[module, name])

    def persistent_load(self, saved_id: Any) -> _Storage:
        kind, named, key, _, count = saved_id  # "_" is the device
        dtype = named.value if isinstance(named, _Named) else None
        if kind != "storage" or not isinstance(dtype, np.dtype) or type(count) is not int:
            raise WeightsError(f"{self.path} stores something else than numbers of a tensor")
        # tensors may share a storage
        if key not in self.storages:
            self.storages[key] = self._storage(f"{self.root}/data/{key}")
        data = self.storages[key]
        if not 0 <= count * dtype.itemsize <= len(data):
            raise WeightsError(
                f"{self.path} is truncated: storage {key} has {len(data)} bytes of "
                f"{count * dtype.itemsize}"
            )
        if isinstance(data, np.ndarray):
            return _Storage(sizes.placeholder((count,), dtype))
        # memoryview: a slice of bytes would be a copy
        return _Storage(np.frombuffer(memoryview(data)[: count * dtype.itemsize], dtype))

    def _storage(self, member: str) -> bytes | memoryview | np.ndarray:
        if self.only_shapes:  # only its length is used
            return sizes.placeholder((self.archive.getinfo(member).file_size,), np.dtype(np.uint8))
        return zip_file.read_mapped(self.archive, member, self.mapped)

    def _tensor(self, storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> np.ndarray:
        """Array view of a torch tensor: offset, shape and strides in a storage.

        It has no memory of its own. The arguments come from the pickle and can be anything.
        """
        if not isinstance(storage, _Storage):
            raise WeightsError(f"{self.path} has a tensor of {type(storage).__name__}")
        if not all(type(n) is int for n in (offset, *shape, *strides)):
            # not even numpy integers, which would overflow in the sum below
            raise WeightsError(f"{self.path} has a tensor whose sizes are no whole numbers")
        numbers, summary = storage.numbers, str(shape)[:50]
        last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
        if 0 in shape:
            return np.zeros(shape, numbers.dtype)
        if offset < 0 or min((*shape, *strides), default=0) < 0 or last >= len(numbers):
            raise WeightsError(
                f"{self.path} has a tensor of shape {summary} outside its storage of {len(numbers)}"
            )
        view = self._view(numbers[offset:], shape, strides)
        # A stride of 0 repeats a number any number of times, and users of the view copy it.
        self.spare -= view.nbytes
        if self.spare < 0:
            raise WeightsError(
                f"{self.path} is too small for its tensors: with one of shape {summary} they take "
                f"more than {zips.MAX_RATIO} times its bytes"
            )
        return view

    def _view(self, numbers: np.ndarray, shape: Any, strides: Any) -> np.ndarray:
        """Strided view. Shapes and strides must be checked before: as_strided reads any memory."""
        if self.only_shapes:
            return sizes.placeholder(shape, numbers.dtype)
        steps = [stride * numbers.itemsize for stride in strides]
        return np.lib.stride_tricks.as_strided(numbers, shape, steps, writeable=False)


def _check_opcodes(data: bytes) -> None:
    """Raises ValueError for a pickle with strings longer than itself, or object indices beyond its
    length: Python's unpickler would allocate memory for both."""
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name == "LONG_BINPUT" and argument > len(data):
            raise ValueError(f"a pickle of {len(data)} bytes numbers an object {argument}")


def _ordered_dict(pairs: Any = ()) -> collections.OrderedDict:
    # the numbers of an array would become Python objects
    if not isinstance(pairs, list | tuple):
        raise ValueError(f"a dict of {type(pairs).__name__}")
    return collections.OrderedDict(pairs)


def _first(data: Any, *_: Any) -> Any:
    return data


def _tensors(content: Any) -> dict[str, np.ndarray]:
    """All tensors in nested dicts and modules; entries with names other than strings and integers
    are ignored.

    Raises ValueError if dicts contain one another endlessly.
    """
    tensors, pending, count = {}, [("", content)], 0
    while pending:
        name, value = pending.pop()
        if len(name) > MAX_NAME:
            raise ValueError(f"it has a name of {len(name):,} letters")
        if isinstance(value, Inert):
            value = value.state
        if isinstance(value, np.ndarray):
            tensors[name] = value
        if not isinstance(value, dict):
            continue
        count += len(value) + 1  # 1: empty dicts count, too
        if count > MAX_ENTRIES:
            raise ValueError("its dicts hold one another without end")
        inner = [(key, item) for key, item in value.items() if isinstance(key, str | int)]
        pending += [(f"{name}.{key}" if name else str(key), item) for key, item in inner[::-1]]
    return tensors
