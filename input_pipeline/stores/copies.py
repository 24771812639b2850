"""The cache of copies on this host: its folder, its locks, and copies of single files by hash."""

import fcntl
import json
import os
import queue
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.record import StageError

_MANIFEST = ".copies.json"  # in a copy: file -> [sha256, digest of the source, bytes, mtime]
# Bytes of the disk that stay free, for logs and other programs.
_SPARE = 10**9


class Wanted(NamedTuple):
    """A file of a copy.

    size: bytes.   digest: changes whenever the content does.   fetch: writes it to a path and
    returns its sha256.
    """

    size: int
    digest: str
    fetch: Callable[[Path], str]


def root() -> Path:
    """The folder of all copies on this host."""
    return Path(os.environ.get("VLC_STORES") or Path.home() / ".cache" / "vlc_jax").absolute()


def make(name: str, folder: Path, files: Mapping[str, Wanted], threads: int) -> None:
    """Fetches the files that are missing in the folder, or that were changed there.

    name: for messages.   files: by path in the folder. One process of a host copies, the others
    wait. Raises StageError if the disk is too full, and the errors of `fetch`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        entries = _entries(folder)

        def is_here(path: str) -> bool:
            entry = entries.get(path)
            return entry is not None and entry[1:] == [files[path].digest, *_stat(folder / path)]

        missing = [path for path in files if not is_here(path)]
        if not missing:
            return
        total = sum(files[path].size for path in missing)
        check_room(name, folder, total)
        print(f"copying {name}, {total / 1e6:,.1f} MB", file=sys.stderr)

        def fetch(path: str) -> None:
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.unlink(missing_ok=True)
            sha256 = files[path].fetch(file)
            entries[path] = [sha256, files[path].digest, *_stat(file)]

        # after an error, too: the next start does not fetch finished files again
        try:
            _for_each(fetch, missing, threads)
        finally:
            stores.replace(folder / _MANIFEST, json.dumps(dict(entries)).encode())


def _for_each(do: Callable[[str], None], items: Sequence[str], threads: int) -> None:
    """Calls `do` with each item in threads; after an error no further ones. Raises the first.

    An interrupt waits for no thread, unlike one of a pool: the file of each may take an hour.
    """
    waiting, done = queue.SimpleQueue[str](), queue.SimpleQueue[BaseException | None]()
    errors: list[BaseException] = []
    for item in items:
        waiting.put(item)

    def work() -> None:
        while not waiting.empty():
            try:
                item = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                if not errors:
                    do(item)
                done.put(None)
            except BaseException as error:
                done.put(error)

    for _ in range(min(threads, len(items))):
        threading.Thread(target=work, daemon=True).start()
    for _ in items:
        if error := done.get():
            errors.append(error)
    if errors:
        raise errors[0]


def known(folder: Path) -> dict[str, str]:
    """sha256 of the files that `make` has fetched into a folder, by path."""
    return {path: entry[0] for path, entry in _entries(folder).items()}


def check_room(name: str, copy: Path, total: int) -> None:
    """Raises StageError if the disk has no room for `total` bytes more."""
    free = shutil.disk_usage(copy).free
    if total + _SPARE > free:
        raise StageError(
            f"{name} has {total / 1e9:.1f} GB to copy, {copy} has room for {free / 1e9:.1f} GB: "
            "set VLC_STORES to a folder on a larger disk, or, for shards in an object store, name "
            "a folder as config.input.source_options.stage with a limit stage_gb"
        )


@contextmanager
def locked(copy: Path) -> Iterator[None]:
    """Lock of a copy: one process of a host copies, the others wait for it."""
    lock = copy.with_name(f".{copy.name}.lock")
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _entries(folder: Path) -> dict[str, list[Any]]:
    try:
        content = json.loads((folder / _MANIFEST).read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _stat(path: Path) -> list[int]:
    try:
        status = path.stat()
    # also a link whose target was removed from another program's cache
    except FileNotFoundError:
        return []
    return [status.st_size, status.st_mtime_ns]
