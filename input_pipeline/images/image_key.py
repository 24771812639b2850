"""Keys of images by their content, so that each is decoded and encoded once."""

import dataclasses
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from vlc_jax.input_pipeline.images.image_ops import read_bytes
from vlc_jax.input_pipeline.record import DataError, ImageLike

# of a sha256: two of a billion images share a key with a chance of 1e-21
KEY_BYTES = 16


def image_key(image: ImageLike, file_key: Callable[[Path], bytes] | None = None) -> bytes:
    """Key of an image, KEY_BYTES long; images with equal keys have equal pixels.

    The key of a file hashes its bytes, whatever its path. The key of a lazy image, a dataclass such
    as `Crop`, hashes its class and its fields, files among them by their bytes.

    file_key: path -> key, for files whose key is known without reading them. Raises DataError for
    an unreadable file and for a value that is not an image.
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
    return _digest(f"fields {[len(part) for part in parts]}", b"".join(parts))


class ImageKeys:
    """Cached `image_key`: a file is read again only if its size or modification time changed."""

    def __init__(self) -> None:
        self._file_keys: dict[tuple[str, int, int], bytes] = {}

    def __call__(self, image: ImageLike) -> bytes:
        """The key. Raises DataError as `image_key` does."""
        return image_key(image, self._file_key)

    def _file_key(self, path: Path) -> bytes:
        try:
            status = os.stat(path)
        except (OSError, ValueError):  # reading the file raises a DataError with the reason
            return image_key(path)
        identity = (str(path), status.st_size, status.st_mtime_ns)
        if identity not in self._file_keys:
            self._file_keys[identity] = image_key(path)
        return self._file_keys[identity]


def _digest(kind: str, content: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(kind.encode() + b"\n")
    digest.update(content)
    return digest.digest()[:KEY_BYTES]
