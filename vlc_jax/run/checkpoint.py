"""Checkpoints of a run, saved asynchronously with Orbax and verified by sha256 when restored.

A step is written into `checkpoints/.<step>.writing/`, every file is hashed into its manifest.json,
and only then is the folder renamed to `checkpoints/<step>/`. A folder with a bare number is
therefore complete, and a later change (a flipped bit, a missing file) is found by `restore`, which
falls back to the step before. This is the only module that imports orbax.
"""

import errno
import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

MANIFEST = "manifest.json"
RETRY_AFTER_S = (1.0, 4.0, 16.0)  # of passing faults of network storage; then the save fails


class CheckpointError(Exception):
    """No usable checkpoint: all are damaged, or do not fit. Nothing was deleted."""


class SaveError(Exception):
    """A checkpoint could not be written."""


class ShapeMismatchError(CheckpointError):
    """A checkpoint of another model or optimizer: names or shapes of arrays differ."""


class Checkpoints:
    """The checkpoints of one run: asynchronous save, verified restore, deletion of old ones.

    Args:
      directory: folder of all steps; created if missing.
      keep_last: number of newest steps to keep.
      keep_every: steps divisible by it are kept for ever; 0: none.
      on_event: called with the name of an event ("save", "save_retry", "corrupt_checkpoint",
        "restore") and its fields.
    """

    def __init__(
        self,
        directory: Path,
        keep_last: int = 2,
        keep_every: int = 0,
        on_event: Callable[..., None] = lambda event, **fields: None,
    ):
        self.directory = Path(directory).absolute()
        self.keep_last, self.keep_every, self.on_event = keep_last, keep_every, on_event
        self.directory.mkdir(parents=True, exist_ok=True)
        self._orbax = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())
        self._commit: threading.Thread | None = None
        self._error: BaseException | None = None

    def steps(self) -> list[int]:
        """Steps on disk, oldest first."""
        # isdecimal: "\u00b2" is a digit, and no number
        names = [path.name for path in self.directory.iterdir()]
        return sorted(int(name) for name in names if name.isdecimal())

    def save(self, step: int, state: Any) -> None:
        """Starts an asynchronous save; returns once `state` is copied off the devices.

        Waits for the previous save first and raises SaveError if that one failed. A run of one
        process tries again after an input/output error (EIO); several would have to do so together.
        """
        self.wait()
        # A resumed run is due to save the very step that it was restored from.
        if step in self.steps():
            return
        state = _without_empty(state)
        if jax.process_count() == 1:
            # Its own copy: the next step overwrites the state, which another try would need.
            work = partial(self._save_with_retries, step, _copy_to_host(state))
        else:
            self._write(step, state)
            work = partial(self._finish, step)
        # Hashing and the rename wait for Orbax's writes: on a thread, so that training does not.
        self._commit = threading.Thread(target=self._keep_error, args=(work,), daemon=True)
        self._commit.start()

    def wait(self) -> None:
        """Blocks until the last save is committed; raises SaveError if it failed."""
        if self._commit is not None:
            self._commit.join()
            self._commit = None
        if self._error is not None:
            error, self._error = self._error, None
            raise SaveError(f"could not save to {self.directory}: {error}") from error

    def restore(self, shapes: Any, *, set_aside: bool = True) -> Any | None:
        """The newest undamaged state, or None if no step was ever saved.

        shapes: jax.ShapeDtypeStruct with sharding for every array of the state.
        set_aside: for training: rename damaged steps newer than the restored one to
          <step>.damaged, so that it can save them again, and remove what interrupted saves and
          deletions left behind. No step is ever deleted here.
        A damaged step is reported as an event and the step before it is tried. Raises
        CheckpointError if every step is damaged, ShapeMismatchError if the state does not fit
        `shapes`.
        """
        if set_aside and jax.process_index() == 0:
            for pattern in (".*.writing", ".*.deleting"):
                for left_over in self.directory.glob(pattern):
                    shutil.rmtree(left_over, ignore_errors=True)
        damaged = {}
        for step in reversed(self.steps()):
            problem = damage(self.directory / str(step))
            if problem is None:
                path = self.directory / str(step) / "state"
                # Read from the metadata, so that an error names the arrays that do not fit.
                self._check_shapes(path, shapes)
                saved = _without_empty(shapes)
                state = self._orbax.restore(path, args=ocp.args.StandardRestore(saved))
                self.on_event("restore", step=step)
                # Only now: while no step could be read, all keep their names, for a repair by hand.
                if set_aside:
                    self._set_aside(damaged)
                return shapes._replace(**state) if hasattr(shapes, "_replace") else state
            damaged[step] = problem
            self.on_event("corrupt_checkpoint", step=step, problem=problem)
        if damaged:
            listing = "; ".join(f"{step}: {problem}" for step, problem in damaged.items())
            raise CheckpointError(
                f"every checkpoint in {self.directory} is damaged ({listing}). Nothing was "
                "deleted: repair or remove them by hand, or start again in another workdir"
            )
        return None

    def _set_aside(self, steps: Iterable[int]) -> None:
        if jax.process_index() != 0:
            return
        for step in steps:
            aside = self.directory / f"{step}.damaged"
            shutil.rmtree(aside, ignore_errors=True)  # one damaged copy of a step is enough
            (self.directory / str(step)).rename(aside)

    def _check_shapes(self, path: Path, shapes: Any) -> None:
        saved = _shapes_by_name(self._orbax.metadata(path).item_metadata.tree)
        expected = _shapes_by_name(shapes)
        differences = [
            f"{name}: saved {saved.get(name, 'nothing')}, wanted {expected.get(name, 'nothing')}"
            for name in sorted(saved.keys() | expected.keys())
            if saved.get(name) != expected.get(name)
        ]
        if differences:
            shown = "\n  ".join(differences[:6]) + ("\n  ..." if len(differences) > 6 else "")
            raise ShapeMismatchError(
                f"the checkpoint {path.parent} does not fit this config "
                f"({len(differences)} arrays differ):\n  {shown}\n"
                "use the config it was saved with, or another workdir"
            )

    def _keep_error(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # raised on the main thread by wait()
            self._error = error

    def _save_with_retries(self, step: int, state: Any) -> None:
        for seconds in (*RETRY_AFTER_S, None):
            try:
                if step in self.steps():  # it is in place, and what comes after it failed
                    self._prune()
                else:
                    self._write(step, state)
                    self._finish(step)
                return
            except Exception as error:
                if seconds is None or not _is_io_error(error):
                    raise
                time.sleep(seconds)  # before the event, whose file may be on the same storage
                # TensorStore adds a page of its own settings
                self.on_event("save_retry", step=step, problem=str(error)[:300])

    def _write(self, step: int, state: Any) -> None:
        """Starts to write the state; every process calls it."""
        writing = self._writing(step)
        if jax.process_index() == 0:
            shutil.rmtree(writing, ignore_errors=True)  # left by a killed run or a failed try
            writing.mkdir()
        self._orbax.save(writing / "state", args=ocp.args.StandardSave(state))

    def _finish(self, step: int) -> None:
        """Waits for the writing of all processes and puts the step in place."""
        self._orbax.wait_until_finished()
        if jax.process_index() == 0:
            # In this order: a folder with a bare number always has its manifest.
            write_manifest(self._writing(step))
            self._writing(step).rename(self.directory / str(step))
            self.on_event("save", step=step)
            self._prune()  # last: the old checkpoints go once the new one is in place

    def _writing(self, step: int) -> Path:
        # The dot keeps an unfinished folder out of steps(), which reads bare numbers only.
        return self.directory / f".{step}.writing"

    def _prune(self) -> None:
        steps = self.steps()
        for step in steps[: -self.keep_last]:
            if self.keep_every and step % self.keep_every == 0:
                continue
            # Renamed first: a half-deleted folder must not carry a bare number.
            deleting = self.directory / f".{step}.deleting"
            (self.directory / str(step)).rename(deleting)
            shutil.rmtree(deleting)


def _without_empty(state: Any) -> Any:
    """A NamedTuple as the dict of its fields, without those that are {}: Orbax would refuse a
    checkpoint from before there was such a field."""
    if not hasattr(state, "_asdict"):
        return state
    fields = state._asdict().items()
    return {name: field for name, field in fields if not isinstance(field, dict) or field}


def _copy_to_host(state: Any) -> Any:
    for array in jax.tree.leaves(state):
        array.copy_to_host_async()  # all at once; np.array waits for one after the other
    return jax.tree.map(np.array, state)  # not asarray, which on a CPU shares the state's memory


def _is_io_error(error: BaseException | None) -> bool:
    """True if an error comes from EIO of the storage."""
    while error is not None:
        # TensorStore, which writes the arrays for Orbax, names the number in its text alone.
        is_eio = isinstance(error, OSError) and error.errno == errno.EIO
        if is_eio or f"os_error_code='{errno.EIO}'" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def write_manifest(folder: Path) -> None:
    """Writes the sha256 of every file below `folder` into its manifest.json, synced to disk."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sums = {str(path.relative_to(folder)): _sha256(path) for path in files}
    with (folder / MANIFEST).open("w") as file:
        json.dump({"sha256": sums}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())  # on disk before the rename that follows, also in a power cut


def damage(folder: Path) -> str | None:
    """Description of the damage of a saved step, None if every file matches its manifest."""
    try:
        sums = json.loads((folder / MANIFEST).read_text())["sha256"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return f"no readable {MANIFEST} ({type(error).__name__})"
    if not isinstance(sums, dict) or not any(name.startswith("state/") for name in sums):
        return f"{MANIFEST} lists no state"
    for name, expected in sums.items():
        path = folder / name
        if not path.is_file():
            return f"file {name} is missing"
        if _sha256(path) != expected:
            return f"file {name} does not match its sha256"
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _shapes_by_name(tree: Any) -> dict[str, tuple[int, ...]]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {"/".join(str(_key(k)) for k in path): tuple(leaf.shape) for path, leaf in leaves}


def _key(entry: Any) -> Any:
    """Plain name or index of one entry of a tree path.

    Orbax's metadata have dicts and lists where our state has NamedTuples, so that the entries of
    the same path are of different classes.
    """
    for attribute in ("key", "name", "idx"):
        if hasattr(entry, attribute):
            return getattr(entry, attribute)
    return entry
