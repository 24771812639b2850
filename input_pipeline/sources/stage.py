"""Stage: copies of shards on a local disk, up to a limit; the least recently used are removed.

Copies are named by the sha256 of their content, so that several runs and processes of a host share
a folder. A copy is written under a temporary name, checked and then renamed: a file with its final
name is complete, even if processes are killed.
"""

import fcntl
import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from vlc_jax.input_pipeline.record import ShardError, StageError
from vlc_jax.input_pipeline.stores import any_path
from vlc_jax.input_pipeline.stores.any_path import AnyPath

GIGABYTE = 10**9
# while other processes' unfinished copies fill the folder, for seconds
_RETRY_S = 0.05
# no other file is removed
_COPY_NAME = re.compile(r"[0-9a-f]{64}\.array_record(\.partial)?")


class Stage:
    """Folder of copies of shards, `limit` bytes at most; pickles to workers.

    Raises ValueError if the folder cannot be made or the limit is not above 0.
    """

    def __init__(self, folder: str | Path, limit: float) -> None:
        if not str(folder):
            raise ValueError("stage names a folder on a local disk; got ''")
        if not limit > 0:
            raise ValueError(f"stage_gb must be above 0; got {limit / GIGABYTE:g}")
        self.folder, self.limit = Path(folder).absolute(), limit
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"cannot make the folder `stage`, {folder}: {error}") from error

    def path(self, shard: dict[str, Any]) -> Path:
        """The path of a shard's copy, whether it exists or not. shard: entry of a manifest."""
        return self.folder / f"{shard['sha256']}.array_record"

    def use(self, shard: dict[str, Any]) -> bool:
        """Marks a copy as the most recently used; False if there is none."""
        try:
            os.utime(self.path(shard))
        except FileNotFoundError:
            return False
        return True

    def remove_damaged(self, shard: dict[str, Any]) -> bool:
        """Removes a copy that contradicts the manifest's sha256; False if it is right or gone.

        A copy is checked while it is made; later its disk may change it.
        """
        path = self.path(shard)
        try:
            with path.open("rb") as file:
                is_right = hashlib.file_digest(file, "sha256").hexdigest() == shard["sha256"]
        except OSError:
            is_right = not path.exists()
        if not is_right:
            with self._folder_lock():
                path.unlink(missing_ok=True)
        return not is_right

    def copy(self, folder: AnyPath, shard: dict[str, Any], *, waits: bool = True) -> int:
        """Copies a shard of a folder unless its copy exists; returns the number of bytes copied.

        A reader opens the copy and, if it is not there or not there any more, calls this again.
        waits: True waits for another process or thread that is copying it; False returns 0 at once.
        Raises ShardError, naming the file, if the shard contradicts the manifest, StageError if the
        local disk is full, or if either storage fails.
        """
        local = self.path(shard)
        if local.exists():
            return 0
        partial = local.with_name(f"{local.name}.partial")
        with _locked(partial, waits) as file:
            if file is None:
                return 0
            # Removed while it is locked: a process that waits for the lock sees that it is gone.
            if local.exists():
                partial.unlink(missing_ok=True)
                return 0
            try:
                self._reserve(file, shard)
                self._fill(file, folder, shard)
                with self._local_errors(shard):
                    # else a crash of the host could leave zeros there
                    os.fsync(file.fileno())
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
            # a process that counts bytes sees exactly one of the names
            with self._folder_lock():
                # Somebody emptied the folder meanwhile. What is there now is another's, unfinished.
                if not _is_at(partial, file.fileno()):
                    return 0
                try:
                    os.replace(partial, local)
                except FileNotFoundError:
                    return 0
        return shard["bytes"]

    def _fill(self, file: BinaryIO, folder: AnyPath, shard: dict[str, Any]) -> None:
        digest, size = hashlib.sha256(), 0
        origin = folder / shard["name"]
        try:
            for piece in any_path.pieces(origin):
                digest.update(piece)
                size += len(piece)
                with self._local_errors(shard):
                    _write(file, piece)
        except FileNotFoundError as error:
            raise ShardError(f"shard {origin} is missing") from error
        except OSError as error:
            raise StageError(f"cannot read the shard {origin}: {error.strerror}") from error
        if digest.hexdigest() != shard["sha256"]:
            raise ShardError(
                f"shard {origin} of {size} bytes contradicts its manifest, which has "
                f"{shard['bytes']} bytes and another sha256; find the damage with python -m "
                f"vlc_jax.input_pipeline.commands.check {folder}"
            )

    def _reserve(self, file: BinaryIO, shard: dict[str, Any]) -> None:
        """Makes room and gives the file its final size, so that other processes count it."""
        size = shard["bytes"]
        # bytes that a killed process left must not count
        file.truncate(0)
        while True:
            with self._folder_lock(), self._local_errors(shard):
                if self._make_room(size):
                    file.truncate(size)
                    return
            time.sleep(_RETRY_S)

    def _make_room(self, size: int) -> bool:
        """Removes least recently used copies until `size` bytes fit.

        Returns False if the unfinished copies of other processes leave too little room.
        """
        copies = []
        for entry in [*os.scandir(self.folder)]:  # read to the end, which closes it
            if not _COPY_NAME.fullmatch(entry.name):
                continue
            try:
                status = entry.stat()
            except FileNotFoundError:
                # of a copy that failed meanwhile
                return False
            copies.append((status.st_mtime_ns, status.st_size, Path(entry.path)))
        used = sum(bytes_of for _, bytes_of, _ in copies)
        for _, _, path in sorted(copies):
            if used + size <= self.limit:
                break
            used -= _remove(path)
        return used + size <= self.limit

    def _folder_lock(self) -> AbstractContextManager[BinaryIO | None]:
        return _locked(self.folder / "lock", waits=True)

    @contextmanager
    def _local_errors(self, shard: dict[str, Any]) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StageError(
                f"cannot copy {shard['name']} ({shard['bytes'] / 1e6:.1f} MB) to the stage "
                f"{self.folder}: {error.strerror}; make room there, lower "
                f"stage_gb={self.limit / GIGABYTE:g}, or name another folder as stage"
            ) from error


def _write(file: BinaryIO, data: bytes) -> None:
    rest = memoryview(data)
    # a write to an unbuffered file may be partial
    while rest:
        rest = rest[file.write(rest) :]


def _remove(path: Path) -> int:
    """Removes a copy, complete or left by a dead process, and returns its size in bytes.

    Returns 0 for a copy that is being made, which stays.
    """
    if path.suffix != ".partial":
        size = path.stat().st_size
        # readers that have it open can continue
        path.unlink()
        return size
    with _locked(path, waits=False) as file:
        if file is None:
            return 0
        size = os.fstat(file.fileno()).st_size
        path.unlink()
        return size


@contextmanager
def _locked(path: Path, waits: bool) -> Iterator[BinaryIO | None]:
    """Opens and locks a file, made if missing; None if it is locked and `waits` is False."""
    # An flock, not a lock file: the kernel releases it when the process dies, however it dies.
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise StageError(f"cannot write to the stage {path.parent}: {error}") from error
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            except BlockingIOError:
                yield None
                return
            # It may have been renamed or removed between our `open` and our `flock`.
            if _is_at(path, descriptor):
                yield file
                return


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
