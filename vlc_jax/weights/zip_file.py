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

# Arrays of a file take at most this many times its bytes. Weights hardly compress, zeros do by
# 1,000; tensors that share their numbers (tied weights) count once each.
MAX_RATIO = 100
_LOCAL_HEADER = 30  # bytes, before a member's name, an extra field and its content
_BLOCK = 2**24  # bytes checked at a time
# What reading a damaged zip, pickle or header raises, in Python's and numpy's own words.
DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, pickle.UnpicklingError, EOFError),
    *(ValueError, TypeError, AttributeError, LookupError, OverflowError, RuntimeError, OSError),
)


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """The zip at `path`, of members that are stored or deflated and together of a possible size.

    Raises WeightsError for another one, DAMAGE for a file that is no zip.
    """
    with zipfile.ZipFile(path) as archive:
        size, unpacked = path.stat().st_size, 0
        for member in archive.infolist():
            unpacked += member.file_size
            # bit 0: encrypted. Other methods than these two ask for memory that the file names.
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

    Raises KeyError for an unknown name, DAMAGE for other content than its checksum, which is known
    only at its end.
    """
    size = archive.getinfo(name).file_size
    with archive.open(name) as file:
        # not read(): without a size it unpacks all that the data make, and cuts it then
        return file.read(size if at_most is None else min(size, at_most))


def map_file(archive: zipfile.ZipFile) -> memoryview:
    """The bytes of the whole zip, mapped: they take none of a process's own memory."""
    return memoryview(mmap.mmap(archive.fp.fileno(), 0, access=mmap.ACCESS_READ))


def read_mapped(archive: zipfile.ZipFile, name: str, mapped: memoryview) -> memoryview | bytes:
    """Content of a member as `read` gives it, a part of `map_file` if it is stored unpacked.

    Raises what `read` does.
    """
    member = archive.getinfo(name)
    if member.compress_type != zipfile.ZIP_STORED:
        return read(archive, name)
    archive.open(member).close()  # compares the header there with the table of contents
    start = member.header_offset
    lengths = struct.unpack_from("<HH", mapped, start + _LOCAL_HEADER - 4)
    start += _LOCAL_HEADER + sum(lengths)
    content, checksum = mapped[start : start + member.file_size], 0
    for first in range(0, len(content), _BLOCK):
        checksum = zlib.crc32(content[first : first + _BLOCK], checksum)
    if len(content) != member.file_size or checksum != member.CRC:
        raise zipfile.BadZipFile(f"Bad CRC-32 for file {name!r}")
    return content
