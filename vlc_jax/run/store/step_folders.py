"""Folders of checkpoint steps, on a file system or in an object store.

A complete step has a manifest.json with the sha256 of every file. On a file system it is written
under another name and renamed. A store has no rename: there the manifest, which is written last and
removed first, marks a complete step.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from vlc_jax.errors import UsageError, usage_errors
from vlc_jax.input_pipeline.stores import StoreError, any_path
from vlc_jax.input_pipeline.stores.any_path import AnyPath, StorePath
from vlc_jax.input_pipeline.stores.fetch import store_of
from vlc_jax.run import workdir_files

MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 100_000_000  # a file has about 130
MAX_STEP_DIGITS = 15
MAX_PART_BYTES = 255  # of a file system's names
# of the error for a file that only a manifest of another program lists: not a failing disk
UNUSABLE = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENODEV, errno.ENXIO, errno.EACCES)
# To hash files; training continues meanwhile and needs the other cores.
THREADS_DISK = 4
# More, since they mostly wait for the store.
THREADS_STORE = 16
Share = tuple[int, int]  # (index, count): every count-th file of a step, starting at index
WHOLE: Share = (0, 1)


def steps_of(workdir: Path) -> "LocalSteps | StoreSteps":
    """The steps of the run in `workdir`, which may be the local copy of a run in a store.

    Raises UsageError for a folder that names a store and is no copy of ours.
    """
    with usage_errors():
        url = store_of(workdir)
    if url is None:
        return LocalSteps(workdir / "checkpoints")
    return StoreSteps(StorePath(f"{url}/checkpoints"))


class LocalSteps:
    """Steps in a folder of a file system."""

    def __init__(self, path: Path):
        self.path = Path(path).absolute()
        self.name = str(self.path)

    def exists(self) -> bool:
        return self.path.exists()

    def make(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    def steps(self) -> list[int]:
        """Steps with a complete folder, oldest first. Raises UsageError as `_step`."""
        paths = [*self.path.iterdir()] if self.path.exists() else []
        # isdecimal: int() refuses "\u00b2", which isdigit accepts
        paths = [path for path in paths if path.name.isdecimal()]
        for path in paths:
            if path.is_symlink() or not path.is_dir():
                raise UsageError(f"{path} is not the folder of a step: move or remove it")
        return sorted(_step(self.name, path.name) for path in paths)

    def where(self, step: int) -> str:
        """The path from which Orbax reads a complete step."""
        return f"{self.path / str(step)}/state"

    def where_written(self, step: int) -> str:
        """The path to which Orbax writes a step."""
        return f"{self._writing(step)}/state"

    def begin(self, step: int) -> None:
        """Makes the folder of a step, after removing leftovers of a killed run or a failed try."""
        shutil.rmtree(self._writing(step), ignore_errors=True)
        self._writing(step).mkdir()

    def commit(self, step: int) -> None:
        """Marks a written step as complete."""
        # In this order: a folder with a bare number always has its manifest.
        write_manifest(self._writing(step))
        self._writing(step).rename(self.path / str(step))

    def remove(self, step: int) -> None:
        # Renamed first: a half-deleted folder must not carry a bare number.
        deleting = self.path / f".{step}.deleting"
        (self.path / str(step)).rename(deleting)
        shutil.rmtree(deleting)

    def clean(self) -> None:
        """Removes leftovers of interrupted saves and deletions."""
        for pattern in (".*.writing", ".*.deleting"):
            for left_over in self.path.glob(pattern):
                shutil.rmtree(left_over, ignore_errors=True)

    def set_aside(self, step: int) -> None:
        """Renames a damaged step to <step>.damaged, so that it can be saved again."""
        aside = self.path / f"{step}.damaged"
        # one damaged copy of a step is enough
        shutil.rmtree(aside, ignore_errors=True)
        (self.path / str(step)).rename(aside)

    def damage(self, step: int, share: Share = WHOLE) -> str | None:
        """Description of a step's damage; None if every file of the share matches the manifest."""
        folder = self.path / str(step)
        # Orbax also reads files that the manifest does not list, and would wait for a pipe
        for path in workdir_files.special_files(folder):
            return f"file {path.relative_to(folder)} is not a regular file"
        return _damage(folder, share, THREADS_DISK)

    def _writing(self, step: int) -> Path:
        # The dot keeps an unfinished folder out of steps(), which reads bare numbers only.
        return self.path / f".{step}.writing"


class StoreSteps:
    """Steps in a folder of an object store."""

    def __init__(self, path: StorePath):
        self.path, self.name = path, str(path)

    def exists(self) -> bool:
        return bool(self.steps())

    def make(self) -> None:
        """Stores have no folders."""

    def steps(self) -> list[int]:
        """Complete steps, oldest first; at most two calls of the store per step."""
        steps = self._all_steps()
        marks = _each(lambda step: self._mark(step).exists(), steps, THREADS_STORE)
        return sorted(step for step, mark in zip(steps, marks, strict=True) if mark)

    def _all_steps(self) -> list[int]:
        """Complete and incomplete steps."""
        names = (name for name in self.path.folders() if name.isdecimal())
        return [_step(self.name, name) for name in names]

    def where(self, step: int) -> str:
        return f"{self.name}/{step}/state"

    where_written = where

    def begin(self, step: int) -> None:
        self._remove_all(f"{step}/")

    def commit(self, step: int) -> None:
        saved = self.path / str(step)
        names = list(saved.files())
        if not any(name.startswith("state/") for name in names):
            raise StoreError(f"{saved} has no state after it was written")
        self._mark(step).write_bytes(_manifest(saved, names, THREADS_STORE))

    def remove(self, step: int) -> None:
        self._mark(step).unlink()
        self._remove_all(f"{step}/")

    def clean(self) -> None:
        for step in {*self._all_steps()} - {*self.steps()}:
            self._remove_all(f"{step}/")

    def set_aside(self, step: int) -> None:
        """Copies a damaged step to <step>.damaged, so that it can be saved again."""
        self._remove_all(f"{step}.damaged/")
        for name in (self.path / str(step)).files():
            (self.path / f"{step}/{name}").copy(self.path / f"{step}.damaged/{name}")
        self.remove(step)

    def damage(self, step: int, share: Share = WHOLE) -> str | None:
        return _damage(self.path / str(step), share, THREADS_STORE)

    def _remove_all(self, prefix: str) -> None:
        for name in self.path.files(prefix):
            (self.path / name).unlink()

    def _mark(self, step: int) -> StorePath:
        return self.path / f"{step}/{MANIFEST}"


def write_manifest(path: Path) -> None:
    """Writes the sha256 of every file below `path` into its manifest.json, synced to disk."""
    content = _manifest(path, any_path.files(path), THREADS_DISK)
    with (path / MANIFEST).open("wb") as file:
        file.write(content)
        file.flush()
        # before the rename that follows: a power cut must not reorder them
        os.fsync(file.fileno())


def _step(folder: str, name: str) -> int:
    """The step of a folder's name. Raises UsageError for "007", which no save writes."""
    if name != name.lstrip("0") + "0" * (name == "0") or len(name) > MAX_STEP_DIGITS:
        short = name if len(name) <= MAX_STEP_DIGITS else f"{name[:MAX_STEP_DIGITS]}..."
        raise UsageError(
            f"{folder} has a folder {short!r}, which is not the name of a step as a run writes it "
            "(such as '12'): rename or remove it"
        )
    return int(name)


def _damage(saved: AnyPath, share: Share, threads: int) -> str | None:
    try:
        entry = any_path.find(saved / MANIFEST)
        if entry is not None and entry.size > MAX_MANIFEST_BYTES:
            return f"{MANIFEST} has {entry.size:,} bytes"
        sums = json.loads(any_path.content(saved / MANIFEST))["sha256"]
    # a failing store does not mean that the step is damaged
    except StoreError:
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return f"no readable {MANIFEST} ({type(error).__name__})"
    if not isinstance(sums, dict) or not any(name.startswith("state/") for name in sums):
        return f"{MANIFEST} lists no state"
    # before any is opened
    for name in sums:
        if not _is_inside(name):
            return f"{MANIFEST} lists {name[:80]!r}, not a file of the step"

    def check(name: str) -> str | None:
        try:
            is_same = _sha256(saved, name) == sums[name]
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return f"file {name} is missing"
        except OSError as error:
            if error.errno not in UNUSABLE:
                raise
            return f"file {name} cannot be opened ({error.strerror})"
        return None if is_same else f"file {name} does not match its sha256"

    index, count = share
    return next(filter(None, _each(check, sorted(sums)[index::count], threads)), None)


def _is_inside(name: str) -> bool:
    """True for a relative path that a file system can have and that stays inside its folder."""
    # not printable: NUL, and lone surrogates
    return name.isprintable() and all(
        part not in ("", ".", "..") and len(part.encode()) <= MAX_PART_BYTES
        for part in name.split("/")
    )


def _manifest(saved: AnyPath, names: Iterable[str], threads: int) -> bytes:
    names = sorted(names)
    sums = _each(lambda name: _sha256(saved, name), names, threads)
    return json.dumps({"sha256": dict(zip(names, sums, strict=True))}, indent=1).encode()


def _sha256(saved: AnyPath, name: str) -> str:
    digest = hashlib.sha256()
    for piece in any_path.pieces(saved / name):
        digest.update(piece)
    return digest.hexdigest()


def _each(work: Callable[[Any], Any], items: Iterable[Any], threads: int) -> Iterator[Any]:
    """Yields the results for `items` in order; closing the generator cancels waiting items."""
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(work, items)
