"""Zip files of any origin: sizes are checked before anything is unpacked."""

import errno
import pickle
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.stores import copies

# Maximum ratio of the unpacked bytes to the file's. Weights and images hardly compress, zeros
# compress by 1,000; tensors that share storage (tied weights) count once each.
MAX_RATIO = 100
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
    ArithmeticError,
    RuntimeError,
    OSError,
)


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Context manager: the zip at `path`, with checked compression methods and total size.

    Raises DAMAGE if a check fails, and for a file that is no zip.
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
                raise zipfile.BadZipFile("it is encrypted or packed by another method than deflate")
            if member.compress_size > size or unpacked > MAX_RATIO * size:
                raise zipfile.BadZipFile(
                    f"{size:,} bytes cannot hold what its table of contents names: {unpacked:,} "
                    "bytes or more"
                )
        yield archive


def unpack(path: Path, folder: Path) -> None:
    """Unpacks a zip archive into a new folder. Raises StageError if the disk is too full, DataError
    for a damaged archive, and for one whose files no folder can have; it is removed."""
    folder.mkdir()
    try:
        with open_zip(path) as opened:
            size = sum(entry.file_size for entry in opened.infolist())
            copies.check_room(path.name, folder, size)
            # names with ".." and absolute ones are made relative, links are files
            opened.extractall(folder)
    except DAMAGE as error:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        path.unlink()
        shutil.rmtree(folder)
        raise DataError(f"{path}: {error!s:.200}; it is removed: fetch it again") from error
