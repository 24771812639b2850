"""Members of the zip files that `zips.open_zip` has checked."""

import mmap
import struct
import zipfile
import zlib

_LOCAL_HEADER = 30  # bytes, before a member's name, extra field and content
_BLOCK = 2**24  # bytes checked at a time


def read(archive: zipfile.ZipFile, name: str, at_most: int | None = None) -> bytes:
    """Content of a member, or its first `at_most` bytes.

    Raises KeyError for an unknown name, `zips.DAMAGE` if the content does not match its checksum
    (checked at the end of the member only).
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
