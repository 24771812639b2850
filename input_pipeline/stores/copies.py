"""The cache of copies on this host: folders whose files are copied once, under a lock."""

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, NamedTuple

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.record import DataError, StageError, path_below
from vlc_jax.input_pipeline.stores import progress

# In a copy: file -> [sha256, digest of the source, bytes, mtime].
MANIFEST = ".copies.json"
THREADS = 16
# Bytes of the disk that stay free, for logs and other programs.
_SPARE = 10**9


class Wanted(NamedTuple):
    """A file of a copy.

    size: bytes.   digest: changes whenever the content does.   fetch: writes it to a path and
    returns its sha256, or None.
    """

    size: int
    digest: str
    fetch: Callable[[Path], str | None]


def root() -> Path:
    """The folder of all copies on this host."""
    return Path(os.environ.get("VLC_STORES") or Path.home() / ".cache" / "vlc_jax").absolute()


def make(
    name: str,
    folder: Path,
    files: Mapping[str, Wanted],
    manifest: str = MANIFEST,
    is_whole: bool = False,
) -> None:
    """Fetches the files that are missing in the folder, or that changed there or at their source.

    name: for messages.   files: by path in the folder.   manifest: name of the list of its copies.
    is_whole: all copies of the manifest that are not in `files` are removed.
    One process of a host copies, the others wait. Raises DataError for a path that leads out of the
    folder or is that of a manifest, StageError if the disk is too full, and the errors of `fetch`.
    """
    check_names(name, files)
    if ours := [path for path in files if is_manifest(path)]:
        raise DataError(f"{name}: {ours[0]!r:.80} is the name of a list of copies; rename it")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        before = _entries(folder / manifest)
        # Before new files are written: an old file may be a folder by now.
        gone = before.keys() - files.keys() if is_whole else set()
        for path in gone:
            (folder / path).unlink(missing_ok=True)
        entries = {path: entry for path, entry in before.items() if path not in gone}

        def is_here(path: str) -> bool:
            return entries.get(path, [])[1:] == [files[path].digest, *_stat(folder / path)]

        missing = [path for path in files if not is_here(path)]
        # after an error, too: the next start does not fetch finished files again
        try:
            if missing:
                _fetch(name, folder, {path: files[path] for path in missing}, entries)
        finally:
            if missing or gone:
                stores.replace(folder / manifest, json.dumps(entries).encode())


def _fetch(
    name: str, folder: Path, files: Mapping[str, Wanted], entries: dict[str, list[Any]]
) -> None:
    """Fetches files in threads, and adds the entry of each. Raises the first error."""
    total, copied, errors = sum(file.size for file in files.values()), 0, []
    check_room(name, folder, total)
    print(f"copying {name}, {total / 1e6:,.1f} MB", file=sys.stderr)

    def fetch(path: str) -> tuple[str, list[Any]] | None:
        if errors:  # no further files
            return None
        file = folder / path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            sha256 = files[path].fetch(file)
            return path, [sha256, files[path].digest, *_stat(file)]
        except Exception as error:
            errors.append(error)
            return None

    # Its threads are daemons: an interrupt waits for none, and a file may take an hour.
    with ThreadPool(THREADS) as pool, progress.bar(f"copying {name}, MB", total // 10**6) as show:
        for fetched in pool.imap_unordered(fetch, files):
            if fetched is not None:
                path, entry = fetched
                entries[path] = entry
                copied += files[path].size
                show(copied // 10**6)
    if errors:
        raise errors[0]


def known(folder: Path) -> dict[str, str]:
    """sha256 of the files that `make` has fetched into a folder, by path."""
    return {path: entry[0] for path, entry in _entries(folder / MANIFEST).items()}


def is_manifest(path: str) -> bool:
    """True for the name of a list of copies, which a stranger's file must not replace."""
    name = path.rpartition("/")[2]
    return name.startswith(".") and name.endswith(MANIFEST)


def check_names(where: str, names: Iterable[str]) -> None:
    """Raises DataError for a name below `where` that leads out of a folder."""
    for name in names:
        try:
            path_below(Path(), name.rstrip("/"))
        except DataError as error:
            raise DataError(f"{where}: {error}") from None


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


def _entries(manifest: Path) -> dict[str, list[Any]]:
    try:
        content = json.loads(manifest.read_bytes())
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
