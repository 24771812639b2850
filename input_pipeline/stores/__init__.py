"""Addresses of object stores (gs://, s3://, ...) and of the hub; local files, read with care."""

import errno
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

# URL scheme -> the package that fsspec needs for it.
KINDS = {"gs": "gcsfs", "s3": "s3fs", "az": "adlfs"}
# Schemes of the Hugging Face hub (stores.hub), whose repositories are only read.
HUBS = ("hf", "open_clip")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+._-]*)://")
MAX_DEPTH = 50  # of nested lists and objects; a config has 4 to 6


class StoreError(OSError):
    """An unreachable or refusing store: errno EIO, with a message that names the store."""

    def __init__(self, message: str):
        super().__init__(errno.EIO, message)

    def __str__(self) -> str:
        return str(self.strerror)


def is_url(path: object) -> bool:
    """True for a URL such as gs://bucket/folder. Raises ValueError for an unknown scheme."""
    match = _URL.match(path) if isinstance(path, str) else None
    if match and match[1] not in (*KINDS, *HUBS):
        known = ", ".join(f"{kind}://" for kind in (*KINDS, *HUBS))
        raise ValueError(f"{path}: addresses begin with {known}; or name a local path")
    return bool(match)


def is_hub(path: object) -> bool:
    """True for an address of the hub. Raises ValueError for an unknown scheme."""
    return is_url(path) and str(path).partition("://")[0] in HUBS


def open_regular(path: Path) -> BinaryIO:
    """Opens a regular file to read it.

    Raises OSError for anything else: a pipe would wait for a writer, a device may have no end.
    """
    # O_NONBLOCK: otherwise opening a pipe waits
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    number = errno.EISDIR if stat.S_ISDIR(mode) else errno.ENODEV
    raise OSError(number, "not a regular file", str(path))


def read_file(path: Path, limit: int | None = None) -> bytes:
    """The bytes of a regular file. Raises OSError as `open_regular`, and above `limit` bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if limit is not None and size > limit:
            raise OSError(errno.EFBIG, f"{size:,} bytes, where {limit:,} are many", str(path))
        return file.read()


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises ValueError for invalid JSON, and for JSON nested deeper than MAX_DEPTH, on which
    recursive functions would raise RecursionError later.
    """
    too_deep = f"it is nested deeper than {MAX_DEPTH} levels"
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError(too_deep) from error
    # Counting brackets is faster than walking the value, and most texts have few of them.
    opening = ("[", "{") if isinstance(text, str) else (b"[", b"{")
    if sum(map(text.count, opening)) > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise ValueError(too_deep)
    return value


def _depth(value: Any, above: int = 0) -> int:
    """Depth of nested lists and objects, counted up to MAX_DEPTH + 1."""
    if not isinstance(value, dict | list) or above > MAX_DEPTH:
        return above
    inner = value.values() if isinstance(value, dict) else value
    return max((_depth(item, above + 1) for item in inner), default=above + 1)


def replace(path: Path, data: bytes) -> None:
    """Writes a file atomically, by a rename: a reader never sees half of it."""
    writing = path.with_name(f".{path.name}.writing")
    # left by a killed process, or a link that points elsewhere
    writing.unlink(missing_ok=True)
    with writing.open("xb") as file:
        file.write(data)
    writing.replace(path)


@contextmanager
def replacing(path: Path, end: str = ".partial") -> Iterator[TextIO]:
    """A text file that replaces `path` when it is complete and on the disk, even after a crash.

    end: of its name until then; a unique one if several processes write it.
    """
    partial = path.with_name(path.name + end)
    # left by a killed process, or a link that points elsewhere
    partial.unlink(missing_ok=True)
    with partial.open("x", encoding="utf-8") as file:
        yield file
        file.flush()
        # before the rename: a power cut must not reorder them
        os.fsync(file.fileno())
    partial.replace(path)
