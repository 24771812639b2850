"""Keys of images by what they show, so that each is decoded and encoded once."""

import dataclasses
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from vlc_jax.input_pipeline.images.image_ops import read_bytes
from vlc_jax.input_pipeline.record import DataError, ImageLike

KEY_BYTES = 16  # of a sha256: two of a billion images share a key with a chance of 1e-21


def image_key(image: ImageLike, file_key: Callable[[Path], bytes] | None = None) -> bytes:
    """Key of an image, KEY_BYTES long; images with equal keys have equal pixels.

    A file has the key of its bytes, wherever it lies. Of an image that is read lazily, a dataclass
    such as a box in a file, the key is that of its class and its fields, files among them by their
    bytes.

    file_key: the key of a file, where it is known without reading. Raises DataError for a file that
    cannot be read, and for anything that is no image.
    """
    if isinstance(image, Path):
        return file_key(image) if file_key else _digest("encoded", read_bytes(image))
    if isinstance(image, bytes):
        return _digest("encoded", image)
    if isinstance(image, np.ndarray):
        described = f"pixels {image.dtype} {image.shape}"
        return _digest(described, np.ascontiguousarray(image).data)
    if not dataclasses.is_dataclass(image) or isinstance(image, type):
        raise DataError(f"an image is bytes, a Path or a uint8 array; got {type(image).__name__}")
    parts = [type(image).__qualname__.encode()]
    for field in dataclasses.fields(image):
        value = getattr(image, field.name)
        is_image = isinstance(value, Path | bytes | np.ndarray) or dataclasses.is_dataclass(value)
        parts.append(image_key(value, file_key) if is_image else repr(value).encode())
    # lengths first: no two lists of parts read the same when they are joined
    return _digest(f"parts {[len(part) for part in parts]}", b"".join(parts))


class ImageKeys:
    """`image_key`, for which a file is read again only if its size or time of change is new."""

    def __init__(self) -> None:
        self._of_files: dict[tuple[str, int, int], bytes] = {}

    def __call__(self, image: ImageLike) -> bytes:
        """The key. Raises DataError as `image_key` does."""
        return image_key(image, self._file_key)

    def _file_key(self, path: Path) -> bytes:
        try:
            status = os.stat(path)
        except (OSError, ValueError):  # what is wrong with it, the reading says
            return image_key(path)
        identity = (str(path), status.st_size, status.st_mtime_ns)
        if identity not in self._of_files:
            self._of_files[identity] = image_key(path)
        return self._of_files[identity]


def _digest(kind: str, content: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(kind.encode() + b"\n")
    digest.update(content)
    return digest.digest()[:KEY_BYTES]
