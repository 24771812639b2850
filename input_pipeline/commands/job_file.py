"""A pickled job in a file, whose arrays every process of a machine shares.

The file is the number of parts and their sizes (8 bytes each, little endian), then the parts, each
at a multiple of 64 bytes: the pickle, and its arrays, which readers map into memory. So a source of
millions of samples is in memory once, and a worker reads of it what its shards need.
"""

import errno
import hashlib
import mmap
import pickle
import struct
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import cloudpickle

from vlc_jax.input_pipeline.stores import any_path
from vlc_jax.input_pipeline.stores.any_path import AnyPath, StorePath

_ALIGNMENT = 64
_SIZE = struct.Struct("<Q")


def write(path: AnyPath, value: Any) -> str:
    """Writes the file of a value and returns the sha256 of its beginning, all but the arrays."""
    arrays: list[memoryview] = []
    data = cloudpickle.dumps(
        value, protocol=5, buffer_callback=lambda buffer: arrays.append(buffer.raw())
    )
    parts = [memoryview(data), *arrays]
    head = b"".join(map(_SIZE.pack, [len(parts), *(part.nbytes for part in parts)]))
    with any_path.drafts([path]) as (draft,):
        with draft.open("xb") as file:
            file.write(head)
            for start, part in zip(_starts([part.nbytes for part in parts]), parts, strict=True):
                file.seek(start)
                file.write(part)
            # an empty last part is in the file, too
            file.truncate(max(file.tell(), start))
        any_path.put(draft, path)
    return hashlib.sha256(head + data).hexdigest()


def read(path: AnyPath, digest: str) -> Any:
    """The value; its arrays stay in the file, or in a copy of it if it is in an object store.

    Raises OSError if it is not the file of `digest`.
    """
    with tempfile.TemporaryDirectory() as folder:
        local = path
        if isinstance(path, StorePath):
            path.download(local := Path(folder) / path.name)
        # a copy needs no name once it is mapped
        with local.open("rb") as file:
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    (count,) = _SIZE.unpack_from(content)
    head = content[: _SIZE.size * (1 + count)]
    sizes = [size for (size,) in _SIZE.iter_unpack(head[_SIZE.size :])]
    starts = _starts(sizes)
    data, *arrays = [
        content[start : start + size] for start, size in zip(starts, sizes, strict=True)
    ]
    # a pickle runs code: only that of our own run
    if hashlib.sha256(bytes(head) + data).hexdigest() != digest:
        raise OSError(errno.EIO, f"{path} is not the file that this run wrote")
    return pickle.loads(data, buffers=arrays)


def _starts(sizes: Sequence[int]) -> Iterator[int]:
    """First bytes of parts of these sizes."""
    start = _SIZE.size * (1 + len(sizes))
    for size in sizes:
        start += -start % _ALIGNMENT
        yield start
        start += size
