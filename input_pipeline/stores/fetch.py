"""Local copies of what lies in object stores: weights, tables, images, shards, runs.

Libraries that read files (memory maps, tars, tokenizers, array_record) want them on a disk, and a
copy is read faster than a store anyway. Copies are kept below $VLC_STORES (default
~/.cache/vlc_jax/stores) and compared with the store once per process: what changed is copied again.
Shards that do not fit on the disk are read through `input.shards.stage` instead.
"""

import fcntl
import functools
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.record import StageError
from vlc_jax.input_pipeline.stores import mirror

STORE = ".store"  # in the copy of a run: its address, since its checkpoints stay there
# Below the address of a run, and in no copy of it: Orbax and the lock use the store itself, and
# what is in pretrain/ is a run of its own.
APART = ("checkpoints/", "lock/", "processes/", "pretrain/")
_TAGS = ".tags.json"  # beside a copy: file -> tags of the objects that it was made of
_SPARE = 10**9  # bytes of the disk that stay free
_TRIES = 3
_SAID_SECONDS = 10.0


def cache_folder(url: str, kind: str = "stores") -> Path:
    """The folder of this host for what belongs to an address."""
    root = os.environ.get("VLC_STORES") or Path.home() / ".cache" / "vlc_jax"
    return Path(root).absolute() / kind / url.replace("://", "/").rstrip("/")


def local(path: str | os.PathLike[str], skip: Iterable[str] = ()) -> Path:
    """A local path as it is; of an address, the copy of that object or folder.

    skip: endings of names that are left where they are. The checkpoints of a run are, too.
    Raises ValueError for an address of an unknown kind or without anything there, StageError if
    the disk has no room for it, StoreError if the store fails.
    """
    if not stores.is_url(os.fspath(path)):
        return Path(path)
    # A try lists anew. Only a missing file is tried again: faults of the store are for its client.
    for _ in range(_TRIES):
        try:
            return _fetch(str(path).rstrip("/"), tuple(skip))
        except FileNotFoundError:  # a run that goes on has replaced it since it was listed
            continue
    raise stores.StoreError(f"{path} changes faster than it can be copied")


def refresh(path: str | os.PathLike[str]) -> Path:
    """The path that `local` gives, compared with the store anew."""
    _fetch.cache_clear()
    return local(path)


@functools.cache
def _fetch(url: str, skip: tuple[str, ...]) -> Path:
    parent, _, name = url.rpartition("/")
    around = stores.folder(parent)
    # An object before a folder: beside a/b there may be a/b/c, and who names a file wants the file.
    found = around.stat(name)
    parts = {} if found else around.list(f"{name}.parts/")  # of a file that grew
    if found or parts:
        copy = cache_folder(parent)
        _copy_all(around, parts or {name: found}, copy, f".{name}{_TAGS}")
        return copy / name
    inside = stores.folder(url).list()
    if not inside:
        raise ValueError(f"{url}: there is no such object or folder")
    copy, is_run = cache_folder(url), "config.json" in inside
    wanted = {
        path: found
        for path, found in inside.items()
        if not path.endswith(skip) and not (is_run and path.startswith(APART))
    }
    _copy_all(stores.folder(url), wanted, copy, _TAGS)
    if is_run:  # last: an object of that name must not lead elsewhere
        (copy / STORE).write_text(url)
    return copy


def remove(path: Path) -> None:
    """Removes a copy, a file or a folder."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _copy_all(
    remote: stores.Folder, objects: Mapping[str, stores.Object], copy: Path, tags_name: str
) -> None:
    """Copies what is not there yet, or changed; removes what is gone from the store."""
    files = mirror.files(objects)
    tags = {file: [objects[name].tag for name in names] for file, names in files.items()}
    copy.mkdir(parents=True, exist_ok=True)
    with _locked(copy):
        journal = copy / tags_name
        known = _read(journal)
        # Before the new files come: what was a file may be a folder by now.
        for file in known.keys() - files.keys():
            (copy / file).unlink(missing_ok=True)
        # Without a tag nothing says that the content is still the same.
        missing = [
            file
            for file in files
            if known.get(file) != tags[file] or "" in tags[file] or not (copy / file).is_file()
        ]
        total = sum(objects[name].size for file in missing for name in files[file])
        _check_room(remote.name, copy, total)
        done = {file: known[file] for file in files if file in known and file not in missing}
        progress = _Progress(remote.name, len(missing), total)

        def fetch(file: str) -> None:
            mirror.download(remote, file, files[file], copy / file)
            # Once it is there, with the tags of the listing: if the object was replaced between the
            # two, they are those of the old one, and the next start copies it again.
            done[file] = tags[file]
            progress.add(sum(objects[name].size for name in files[file]))

        try:
            with ThreadPoolExecutor(mirror.THREADS) as pool:
                list(pool.map(fetch, missing))
        finally:  # what is there is not copied again by the next start
            if missing or known.keys() - files.keys():
                stores.LocalFolder(copy).write(tags_name, json.dumps(done).encode())


def _check_room(name: str, copy: Path, total: int) -> None:
    free = shutil.disk_usage(copy).free
    if total + _SPARE > free:
        raise StageError(
            f"{name} has {total / 1e9:.1f} GB to copy, {copy} has room for {free / 1e9:.1f} GB: "
            "set VLC_STORES to a folder on a larger disk, or, for shards, name a folder as "
            "config.input.shards.stage with a limit stage_gb"
        )


def _read(journal: Path) -> dict[str, list[str]]:
    try:
        found = json.loads(journal.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def _locked(copy: Path) -> Iterator[None]:
    """Lock of a copy: of several processes of a host one copies, the others wait for it."""
    lock = copy.with_name(f".{copy.name}.lock")
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class _Progress:
    """A line on stderr every ten seconds: files, bytes and the time that is left."""

    def __init__(self, name: str, count: int, total: int):
        self._name, self._count, self._total = name, count, total
        self._files = self._bytes = 0
        self._began = self._said = time.monotonic()
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        with self._lock:
            self._files, self._bytes = self._files + 1, self._bytes + size
            now = time.monotonic()
            if now - self._said < _SAID_SECONDS:
                return
            self._said = now
            left = (now - self._began) * (self._total / max(self._bytes, 1) - 1)
            print(
                f"copying {self._name}: {self._files:,} of {self._count:,} files, "
                f"{self._bytes / 1e9:.2f} of {self._total / 1e9:.2f} GB, {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )
