"""Text files as people save them: UTF-8 or UTF-16, with or without a byte order mark."""

import codecs
from pathlib import Path

from vlc_jax.input_pipeline.record import DataError

_UTF16 = {"utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}


def read(path: Path, errors: str = "strict") -> str:
    """The text of a file, its line ends as "\\n".

    errors: of `bytes.decode`. Raises OSError for a missing file, DataError for bytes of another
    encoding.
    """
    return decode(path.read_bytes(), path, errors)


def lines(path: Path) -> list[str]:
    """The lines of a text file, without their ends. Raises as `read` does."""
    # str.splitlines would also split at U+2028, U+0085 and others, which a text may hold
    return read(path).removesuffix("\n").split("\n")


def decode(data: bytes, path: Path, errors: str = "strict") -> str:
    """The text of a file's bytes; see `read`. A byte order mark is no part of it."""
    try:
        text = data.decode(encoding(data), errors)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error.reason}; save it as UTF-8") from error
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def encoding(data: bytes) -> str:
    """utf-16-le or utf-16-be by the byte order mark, or by the zeros of two ASCII letters without
    it; else utf-8. data: at least the first 4 bytes of a file."""
    for name, mark in _UTF16.items():
        zeros = [position for position, byte in enumerate(data[:4]) if not byte]
        if data.startswith(mark) or zeros == ([1, 3] if name == "utf-16-le" else [0, 2]):
            return name
    return "utf-8"
