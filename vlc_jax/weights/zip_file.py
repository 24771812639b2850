"""Zip files of arrays, of any origin: sizes are checked before anything is unpacked."""

import mmap
import pickle
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vlc_jax.errors import WeightsError

# Maximum ratio of the arrays' bytes to the file's. Weights hardly compress, zeros compress by
# 1,000; tensors that share storage (tied weights) count once each.
MAX_RATIO = 100
_LOCAL_HEADER = 30  # bytes, before a member's name, extra field and content
_BLOCK = 2**24  # bytes checked at a time
# Exceptions of Python and numpy while they read a damaged zip, pickle or header.
DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    OverflowError,
    RuntimeError,
    OSError,
)


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Context manager: the zip at `path`, with checked compression methods and total size.

    Raises WeightsError if a check fails, DAMAGE for a file that is no zip.
    """
    with zipfile.ZipFile(path) as archive:
        size, unpacked = path.stat().st_size, 0
        for member in archive.infolist():
            unpacked += member.file_size
            # bit 0: encrypted. Other methods allocate memory of a size set by the file.
            if member.flag_bits & 1 or member.compress_type not in (
                zipfile.ZIP_STORED,
                zipfile.ZIP_DEFLATED,
            ):
                raise WeightsError(f"{path} is encrypted or packed by another method than deflate")
            if member.compress_size > size or unpacked > MAX_RATIO * size:
                raise WeightsError(
                    f"{path} of {size:,} bytes cannot hold what its table of contents names: "
                    f"{unpacked:,} bytes or more"
                )
        yield archive


def read(archive: zipfile.ZipFile, name: str, at_most: int | None = None) -> bytes:
    """Content of a member, or its first `at_most` bytes.

    Raises KeyError for an unknown name, DAMAGE if the content does not match its checksum (checked
    at the end of the member only).
    """
    size = archive.getinfo(name).file_size
    with archive.open(name) as file:
        # not read(): without a size it unpacks all data before it cuts them
        return file.read(size if at_most is None else min(size, at_most))


def map_file(archive: zipfile.ZipFile) -> memoryview:
    """The bytes of the whole zip as a memory map."""
    return memoryview(mmap.mmap(archive.fp.fileno(), 0, access=mmap.ACCESS_READ))


def read_mapped(archive: zipfile.ZipFile, name: str, mapped: memoryview) -> memoryview | bytes:
    """Content of a member as `read` returns it; a view of `map_file` if stored uncompressed.

    Raises the errors of `read`.
    """
    member = archive.getinfo(name)
    if member.compress_type != zipfile.ZIP_STORED:
        return read(archive, name)
    # checks the local header against the table of contents
    archive.open(member).close()
    start = member.header_offset
    lengths = struct.unpack_from("<HH", mapped, start + _LOCAL_HEADER - 4)
    start += _LOCAL_HEADER + sum(lengths)
    content, checksum = mapped[start : start + member.file_size], 0
    for first in range(0, len(content), _BLOCK):
        checksum = zlib.crc32(content[first : first + _BLOCK], checksum)
    if len(content) != member.file_size or checksum != member.CRC:
        raise zipfile.BadZipFile(f"Bad CRC-32 for file {name!r}")
    return content
