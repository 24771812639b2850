"""The only room that says "orbax": save, verify, restore, fall back.

A step is written into `checkpoints/.<step>.writing/`, hashed file by file into its manifest.json,
and only then renamed to `checkpoints/<step>/`: a folder with a bare number is complete, and
whatever is wrong with it later (a flipped bit, a missing file) is damage that `restore` notices.
"""

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

MANIFEST = "manifest.json"


class CheckpointError(Exception):
    """No saved state can be used; nothing was deleted."""


class SaveError(Exception):
    """A state could not be written."""


class ShapeMismatchError(CheckpointError):
    """The saved state belongs to another model or optimizer."""


class Checkpoints:
    """The saved states of one run.

    Args:
      directory: the folder of all steps; created when missing.
      keep_last: how many of the newest steps stay.
      keep_every: steps divisible by it stay for ever; 0 for none.
      on_event: called with an event name and its facts ("save", "corrupt_checkpoint", "restore").
    """

    def __init__(
        self,
        directory: Path,
        keep_last: int = 2,
        keep_every: int = 0,
        on_event: Callable[..., None] = lambda event, **facts: None,
    ):
        self.directory = Path(directory).absolute()
        self.keep_last, self.keep_every, self.on_event = keep_last, keep_every, on_event
        self.directory.mkdir(parents=True, exist_ok=True)
        self._orbax = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())
        self._commit: threading.Thread | None = None
        self._error: BaseException | None = None

    def steps(self) -> list[int]:
        """Steps on disk, oldest first."""
        return sorted(int(path.name) for path in self.directory.iterdir() if path.name.isdigit())

    def save(self, step: int, state: Any) -> None:
        """Starts saving `state` as `step`; returns once it is copied off the devices.

        Waits for the save before, and raises what went wrong with it.
        """
        self.wait()
        if step in self.steps():
            return
        writing = self.directory / f".{step}.writing"
        if jax.process_index() == 0:
            shutil.rmtree(writing, ignore_errors=True)  # what a killed run left behind
            writing.mkdir()
        self._orbax.save(writing / "state", args=ocp.args.StandardSave(state))
        self._commit = threading.Thread(target=self._finish, args=(step, writing), daemon=True)
        self._commit.start()

    def wait(self) -> None:
        """Returns when the last save is safely on disk; raises what went wrong with it."""
        if self._commit is not None:
            self._commit.join()
            self._commit = None
        if self._error is not None:
            error, self._error = self._error, None
            raise SaveError(f"could not save to {self.directory}: {error}") from error

    def restore(self, shapes: Any, *, set_aside: bool = True) -> Any | None:
        """The newest undamaged state, placed as `shapes` (ShapeDtypeStruct with sharding) says.

        None when nothing was ever saved. A damaged step is reported and the one before it taken.
        Raises CheckpointError when every step is damaged, ShapeMismatchError when the state does
        not fit `shapes`. Nothing is ever deleted here: with `set_aside`, damaged steps newer than
        the one that is restored are renamed to <step>.damaged, so that training can save them anew.
        """
        damaged = {}
        for step in reversed(self.steps()):
            problem = damage(self.directory / str(step))
            if problem is None:
                path = self.directory / str(step) / "state"
                self._check_shapes(path, shapes)
                state = self._orbax.restore(path, args=ocp.args.StandardRestore(shapes))
                self.on_event("restore", step=step)
                if set_aside:
                    self._set_aside(damaged)
                return state
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
        wanted = _shapes_by_name(shapes)
        differences = [
            f"{name}: saved {saved.get(name, 'nothing')}, wanted {wanted.get(name, 'nothing')}"
            for name in sorted(saved.keys() | wanted.keys())
            if saved.get(name) != wanted.get(name)
        ]
        if differences:
            shown = "\n  ".join(differences[:6]) + ("\n  ..." if len(differences) > 6 else "")
            raise ShapeMismatchError(
                f"the checkpoint {path.parent} does not fit this config "
                f"({len(differences)} arrays differ):\n  {shown}\n"
                "use the config it was saved with, or another workdir"
            )

    def _finish(self, step: int, writing: Path) -> None:
        try:
            self._orbax.wait_until_finished()
            if jax.process_index() == 0:
                write_manifest(writing)
                writing.rename(self.directory / str(step))
                self.on_event("save", step=step)
                self._prune()
        except BaseException as error:  # raised on the main thread by wait()
            self._error = error

    def _prune(self) -> None:
        steps = self.steps()
        for step in steps[: -self.keep_last]:
            if self.keep_every and step % self.keep_every == 0:
                continue
            # Renamed first: a half-deleted folder must not carry a bare number.
            doomed = self.directory / f".{step}.deleting"
            (self.directory / str(step)).rename(doomed)
            shutil.rmtree(doomed)


def write_manifest(folder: Path) -> None:
    """Writes the sha256 of every file below `folder` into its manifest.json, synced to disk."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sums = {str(path.relative_to(folder)): _sha256(path) for path in files}
    with (folder / MANIFEST).open("w") as file:
        json.dump({"sha256": sums}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def damage(folder: Path) -> str | None:
    """What is wrong with a committed step, or None: every file must match its manifest."""
    try:
        sums = json.loads((folder / MANIFEST).read_text())["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"no readable {MANIFEST} ({type(error).__name__})"
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
    """The plain name or index of one step of a tree path, alike for tuples, lists and dicts."""
    for attribute in ("key", "name", "idx"):
        if hasattr(entry, attribute):
            return getattr(entry, attribute)
    return entry
