"""Text files as people save them: UTF-8 or UTF-16, with or without a byte order mark."""

import codecs
import tempfile
from functools import partial
from pathlib import Path
from typing import BinaryIO

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.record import DataError

_MARKS = {  # that of UTF-32-LE begins with that of UTF-16-LE
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
}
_ZEROS = {(1, 3): "utf-16-le", (0, 2): "utf-16-be"}  # positions in two ASCII letters
_CHUNK = 1 << 20  # bytes


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


def whole_lines(path: Path) -> list[str]:
    """The lines of a file that a process appends to, without their ends; [] without the file.

    A last line without an end, which a killed process has left, is removed from the file. Bytes
    that are not UTF-8 are replaced.
    """
    data = path.read_bytes() if path.is_file() else b""
    whole = data[: data.rfind(b"\n") + 1]
    if whole != data:
        stores.replace(path, whole)
    return whole.decode("utf-8", "replace").split("\n")[:-1]


def decode(data: bytes, path: Path, errors: str = "strict") -> str:
    """The text of a file's bytes; see `read`. A byte order mark is no part of it."""
    try:
        text = data.decode(encoding(data), errors)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error.reason}; save it as UTF-8") from error
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def first_line(path: Path) -> str:
    """The first line of a text file, of its first MiB; bytes of another encoding are replaced."""
    with path.open("rb") as file:
        return decode(file.read(_CHUNK), path, "replace").partition("\n")[0]


def open_utf8(path: Path) -> BinaryIO:
    """Opens a text file to read its bytes in UTF-8: the file itself, or an unnamed temporary copy.

    A damaged character of UTF-16 becomes bytes that are not UTF-8, and so damages its own line.
    Raises DataError for a file that ends within a character or has none of its encoding.
    """
    file = path.open("rb")
    name = encoding(file.read(4))
    file.seek(0)
    if name == "utf-8":
        return file
    copy = tempfile.TemporaryFile()  # noqa: SIM115
    chunks = iter(partial(file.read, _CHUNK), b"")
    try:
        with file:
            for text in codecs.iterdecode(chunks, name, "surrogatepass"):
                copy.write(text.encode("utf-8", "surrogatepass"))
    except UnicodeDecodeError as error:
        copy.close()
        raise DataError(
            f"{path} is {name.upper()} and damaged ({error.reason}): copy it again, whole"
        ) from error
    copy.seek(0)
    return copy


def encoding(data: bytes) -> str:
    """The encoding of a text by its byte order mark; without one, utf-16-le or utf-16-be by the
    zeros of two ASCII letters, else utf-8. data: at least the first 4 bytes of a file."""
    for name, mark in _MARKS.items():
        if data.startswith(mark):
            return name
    zeros = tuple(position for position, byte in enumerate(data[:4]) if not byte)
    return _ZEROS.get(zeros, "utf-8")
