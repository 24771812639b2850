"""Local cache of objects in object stores: weights, tables, images, shards, runs.

Libraries that read files (memory maps, tars, tokenizers, array_record) need them on a disk, and a
disk is faster than a store. The cache is below $VLC_STORES (default ~/.cache/vlc_jax); each copy
is compared with the store once per process, and changed objects are copied again. Shards that do
not fit on the disk are read through the option `stage` of the source instead.
"""

import functools
import os
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.stores import any_path, copies, hub, mirror

STORE = ".store"  # file in the copy of a run with its URL, since checkpoints stay in the store
# Subfolders of a run that are not copied: Orbax and the lock use the store itself, and pretrain/
# is a separate run.
APART = ("checkpoints/", "lock/", "processes/", "pretrain/", "features/")
_TRIES = 3


def cache_folder(url: str, kind: str = "stores") -> Path:
    """Cache folder of a URL on this host."""
    return copies.root() / kind / _path_of(url)


def _path_of(url: str) -> str:
    return url.replace("://", "/").rstrip("/")


def has_copies(address: str) -> bool:
    """True if this machine has a copy of anything in the bucket or repository of an address."""
    if stores.is_hub(address):
        return hub.has_copies(address)
    kind, _, path = address.partition("://")
    return cache_folder(f"{kind}://{path.partition('/')[0]}").is_dir()


def store_of(copy: Path) -> str | None:
    """URL of the store that a folder of the cache is a copy of a run of; None for other folders.

    Raises ValueError for a folder elsewhere that names a store: its author could have any store
    contacted, with the credentials of whoever reads the folder.
    """
    file = copy / STORE
    if not file.is_file():
        return None
    url = file.read_text(errors="replace").strip()
    # below stores/, or of a run in progress below workdirs/process_000/
    above = Path(str(copy.absolute()).removesuffix(f"/{_path_of(url)}"))
    if cache_folder("") != above and cache_folder("", "workdirs") != above.parent:
        raise ValueError(
            f"{file} names {url[:80]!r}, but its folder is not the copy of that run below "
            f"{cache_folder('').parent}: use the address itself, or remove the file"
        )
    return url


def local(path: str | os.PathLike[str], skip: Iterable[str] = ()) -> Path:
    """Local path; an object or folder at a URL, or files of the hub, are downloaded first.

    skip: endings of names that are not copied; neither are the checkpoints of a run.
    Raises ValueError for a URL of an unknown scheme or without an object, StageError if the disk is
    too full, StoreError if the store fails.
    """
    if not stores.is_url(os.fspath(path)):
        return Path(path)
    if stores.is_hub(os.fspath(path)):
        return hub.local(str(path))
    # Each try lists again. Only a missing file is retried: the store's client retries other faults.
    for _ in range(_TRIES):
        try:
            return _fetch(str(path).rstrip("/"), tuple(skip))
        # a run still in progress has removed the file since the listing
        except FileNotFoundError:
            continue
    raise stores.StoreError(f"{path} changes faster than it can be copied")


def refresh(path: str | os.PathLike[str]) -> Path:
    """Local path as `local` returns it, after re-validating the cached copy."""
    _fetch.cache_clear()
    return local(path)


@functools.cache
def _fetch(url: str, skip: tuple[str, ...]) -> Path:
    parent, _, name = url.rpartition("/")
    there, copy = any_path.StorePath(url), cache_folder(parent)
    # Objects before folders: a/b and a/b/c may both exist, and the URL of a file means the file.
    if single := any_path.find(there):
        wanted = {name: _wanted(there, single)}
        copies.make(url, copy, wanted, f".{name}{copies.MANIFEST}")
        return copy / name
    listed, copy = there.files(), cache_folder(url)
    if not listed:
        raise ValueError(f"{url}: there is no such object or folder")
    is_run = "config.json" in listed
    wanted = {
        path: _wanted(there / path, stamp)
        for path, stamp in listed.items()
        if not path.endswith(skip)
        and not (path == STORE or copies.is_manifest(path))
        and not (is_run and path.startswith(APART))
    }
    copies.make(url, copy, wanted, is_whole=True)
    if is_run:
        (copy / STORE).write_text(url)
    return copy


def _wanted(there: any_path.StorePath, stamp: any_path.Stamp) -> copies.Wanted:
    # With the tag of the listing: an object that is replaced before its download has another tag at
    # the next start, which copies it again.
    def fetch(path: Path) -> None:
        mirror.download(there, path)

    # without a tag a change of the content would go unnoticed: copied at each start
    return copies.Wanted(stamp.size, stamp.tag or uuid.uuid4().hex, fetch)


def remove(path: Path) -> None:
    """Removes a copy, a file or a folder."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
