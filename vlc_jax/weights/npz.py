"""Reader of .npz files that never allocates more memory than the file has data."""

import io
import math
from pathlib import Path

import numpy as np

from vlc_jax.errors import WeightsError
from vlc_jax.input_pipeline.stores import zips
from vlc_jax.weights import sizes, zip_file

MAX_HEADER = 10_000  # bytes of an array's header, numpy's own limit; usual are about 128


def read(path: Path, only_shapes: bool = False) -> dict[str, np.ndarray]:
    """All arrays of the file, {name in the file: array}.

    only_shapes: placeholders instead of arrays (`sizes.placeholder`); no values are read.
    Raises WeightsError for a file that is damaged or holds anything but arrays.
    """
    arrays = {}
    try:
        with zips.open_zip(path) as archive:
            for name in archive.namelist():
                data = zip_file.read(archive, name, MAX_HEADER if only_shapes else None)
                size = archive.getinfo(name).file_size if only_shapes else len(data)
                arrays[name.removesuffix(".npy")] = _array(data, size, only_shapes)
    except zips.DAMAGE as error:
        raise WeightsError(f"{path} is damaged, or holds more than arrays: {error}") from error
    return arrays


def read_one(path: Path, name: str) -> np.ndarray:
    """One array of the file. Raises WeightsError as `read` does."""
    try:
        with zips.open_zip(path) as archive:
            data = zip_file.read(archive, f"{name}.npy")
        return _array(data, len(data), False)
    except zips.DAMAGE as error:
        raise WeightsError(f"{name} cannot be read: {error}") from error


def _array(data: bytes, size: int, only_shapes: bool) -> np.ndarray:
    """The array of an .npy file of `size` bytes; numpy's own reader would allocate the shape of the
    header unchecked. only_shapes: `data` may be the header only."""
    shape, is_fortran, dtype, start = _header(data[:MAX_HEADER])
    needed = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or needed != size - start:
        raise ValueError(f"an array of shape {shape}, which needs {needed} bytes, in {size}")
    if needed and only_shapes:
        return sizes.placeholder(shape, dtype)
    array = np.frombuffer(data, dtype, offset=start) if needed else np.zeros(0, dtype)
    return array.reshape(shape, order="F" if is_fortran else "C")


def _header(data: bytes) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Shape, whether the order is Fortran's, dtype, and offset of the data."""
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
    except (RecursionError, MemoryError) as error:  # from Python's parser at deep nesting
        raise ValueError("the header of an array cannot be read") from error
    # reading it would run code
    if dtype.hasobject:
        raise ValueError("an array of objects")
    return shape, is_fortran, dtype, file.tell()
