"""Checkpoints of a run, saved asynchronously with Orbax and verified by sha256 when restored.

A step counts only after all its files are written and hashed into its manifest.json
(run/store/step_folders.py). So every step of `steps` is complete. `restore` detects later changes
(a flipped bit, a missing file) and falls back to the step before. Only this module imports orbax.
"""

import errno
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from vlc_jax.errors import ExitCode
from vlc_jax.run.store.step_folders import LocalSteps, StoreSteps

RETRY_AFTER_S = (1.0, 4.0, 16.0)  # for transient faults of network storage; then the save fails
SAVE_SECONDS = 1800.0  # without an end a save hangs, on dead storage
# Orbax measures its time-outs by the time of day, which may be set forward meanwhile.
ORBAX_SECONDS = 100 * 365 * 86_400
PROBLEM_BYTES = 400  # of a message in the all-gather of `_first_problem`; file names have 60


class CheckpointError(Exception):
    """No usable checkpoint: all are damaged or do not fit. Nothing was deleted."""

    exit_code = ExitCode.DATA


class SaveError(Exception):
    """A checkpoint could not be written."""

    exit_code = ExitCode.INFRASTRUCTURE


class ShapeMismatchError(CheckpointError):
    """A checkpoint of another model or optimizer: names or shapes of arrays differ."""

    exit_code = ExitCode.USAGE


class Checkpoints:
    """The checkpoints of one run: asynchronous save, verified restore, deletion of old ones.

    Args:
      folders: folders of the steps, or the path of a local folder; created if missing.
      keep_last: number of newest steps to keep.
      keep_every: steps divisible by it are never deleted; 0: none.
      on_event: called with the name of an event ("save", "save_retry", "corrupt_checkpoint",
        "restore") and its fields.
      before_commit: called after a step is written and before it counts, to write other files that
        a resumed run needs.
    """

    def __init__(
        self,
        folders: LocalSteps | StoreSteps | Path,
        keep_last: int = 2,
        keep_every: int = 0,
        on_event: Callable[..., None] = lambda event, **fields: None,
        before_commit: Callable[[], None] = lambda: None,
    ):
        import orbax.checkpoint as ocp  # here: it is slow, and published weights need none

        self.folders = LocalSteps(folders) if isinstance(folders, Path) else folders
        self.keep_last, self.keep_every, self.on_event = keep_last, keep_every, on_event
        self._before_commit = before_commit
        self.folders.make()
        self._args = ocp.args
        self._orbax = ocp.AsyncCheckpointer(
            ocp.StandardCheckpointHandler(),
            async_options=ocp.options.AsyncOptions(timeout_secs=ORBAX_SECONDS),
        )
        self._newest: int | None = None  # the step of the last restore or started save
        self._commit: threading.Thread | None = None
        self._error: BaseException | None = None

    def steps(self) -> list[int]:
        """Complete steps, oldest first."""
        return self.folders.steps()

    def save(self, step: int, state: Any) -> None:
        """Starts an asynchronous save; returns once `state` is copied off the devices.

        Waits for the previous save first, and raises SaveError if it failed. A single process
        retries after an input/output error (EIO); several do not, since all would have to retry
        together. Each save leaves 220 bytes per array in memory: TensorStore 0.1.86 never frees the
        keys that `Spec.to_json` returns to Orbax.
        """
        self.wait()
        # A resumed run would save the step that it was restored from, and a run that is stopped in
        # an evaluation the step before it. By `_newest` and not by files, since all processes must
        # decide alike while process 0 may still be committing that step.
        if step == self._newest:
            return
        self._newest = step
        state = _without_empty(state)
        if jax.process_count() == 1:
            # A copy for retries: the next training step overwrites the donated state.
            work = partial(self._save_with_retries, step, _copy_to_host(state))
        else:
            try:
                self._write(step, state)
            except Exception as error:  # of Orbax, by storage, time-outs or lost processes
                raise SaveError(_message(self.folders.name, error)) from error
            work = partial(self._finish, step)
        # On a thread: hashing and the rename wait for Orbax's writes, and training must not.
        self._commit = threading.Thread(target=self._keep_error, args=(work,), daemon=True)
        self._commit.start()

    def wait(self) -> None:
        """Blocks until the last save is committed; raises SaveError if it failed or hangs."""
        if self._commit is not None:
            self._commit.join(SAVE_SECONDS)
            if self._commit.is_alive():
                raise SaveError(f"no end of a save to {self.folders.name} in {SAVE_SECONDS:.0f} s")
            self._commit = None
        if self._error is not None:
            error, self._error = self._error, None
            raise SaveError(_message(self.folders.name, error)) from error

    def restore(self, shapes: Any, *, set_aside: bool = True) -> Any | None:
        """Reads the newest undamaged state; None if no step was ever saved.

        shapes: jax.ShapeDtypeStruct with sharding for every array of the state.
        set_aside: for training: rename damaged steps newer than the restored one to
          <step>.damaged, so that they can be saved again, and remove leftovers of interrupted saves
          and deletions. No step is ever deleted here.
        An optional field, one with a default in its NamedTuple, is {} if `shapes` or the checkpoint
        lacks it. A damaged step is an event, and the step before it is tried, by all processes
        alike: each verifies a share of the files and sends the result to the others. Raises
        CheckpointError if every step is damaged, ShapeMismatchError if the state does not fit
        `shapes`.
        """
        if set_aside and jax.process_index() == 0:
            self.folders.clean()
        damaged = {}
        for step in reversed(self.steps()):
            problem = self._damage(step, is_shared=set_aside)
            if problem is None:
                path = self.folders.where(step)
                expected = self._expected(path, shapes)
                # Before Orbax reads them, so that our error names the arrays that do not fit.
                self._check_shapes(path, expected)
                state = self._orbax.restore(path, args=self._args.StandardRestore(expected))
                self.on_event("restore", step=step)
                self._newest = step
                # Only after a successful restore: otherwise all steps keep their names for a repair
                # by hand.
                if set_aside and jax.process_index() == 0:
                    for name in damaged:
                        self.folders.set_aside(name)
                if not hasattr(shapes, "_replace"):
                    return state
                for name in _optional(shapes):
                    if not getattr(shapes, name) or name not in state:
                        state[name] = {}
                return shapes._replace(**state)
            damaged[step] = problem
            self.on_event("corrupt_checkpoint", step=step, problem=problem)
        if damaged:
            listing = "; ".join(f"{step}: {problem}" for step, problem in damaged.items())
            raise CheckpointError(
                f"every checkpoint in {self.folders.name} is damaged ({listing}). Nothing was "
                "deleted: repair or remove them by hand, or start again in another workdir"
            )
        return None

    def _damage(self, step: int, is_shared: bool) -> str | None:
        """Description of a step's damage, as found by any process; None without damage.

        With `is_shared` it has a collective: all processes see the same files (the run's workdir,
        or an object store), and each verifies a share. Any other path may be another disk on every
        host, where each process verifies all files.
        """
        if jax.process_count() == 1 or not (is_shared or isinstance(self.folders, StoreSteps)):
            return self.folders.damage(step)
        share = jax.process_index(), jax.process_count()
        return _first_problem(self.folders.damage(step, share))

    def _expected(self, path: str, shapes: Any) -> Any:
        """`_without_empty(shapes)`, with the optional fields that the checkpoint has.

        An optional field has a default in its NamedTuple. If the checkpoint has one that `shapes`
        lacks, its shapes are the saved ones, since Orbax reads all fields or fails.
        """
        expected, optional = _without_empty(shapes), _optional(shapes)
        if not optional:
            return expected
        saved = self._orbax.metadata(path).item_metadata.tree
        like = partial(jax.ShapeDtypeStruct, sharding=shapes.step.sharding)
        for name in optional:
            if name not in saved:
                expected.pop(name, None)
            elif name not in expected:
                expected[name] = jax.tree.map(lambda x: like(x.shape, x.dtype), saved[name])
        return expected

    def _check_shapes(self, path: str, shapes: Any) -> None:
        saved = _shapes_by_name(self._orbax.metadata(path).item_metadata.tree)
        expected = _shapes_by_name(shapes)
        differences = [
            f"{name}: saved {saved.get(name, 'nothing')}, expected {expected.get(name, 'nothing')}"
            for name in sorted(saved.keys() | expected.keys())
            if saved.get(name) != expected.get(name)
        ]
        if differences:
            listed = "\n  ".join(differences[:6]) + ("\n  ..." if len(differences) > 6 else "")
            raise ShapeMismatchError(
                f"the checkpoint {path.removesuffix('/state')} does not fit this config "
                f"({len(differences)} arrays differ):\n  {listed}\n"
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
                # committed in an earlier try, whose pruning failed
                if step in self.steps():
                    self._prune()
                else:
                    self._write(step, state)
                    self._finish(step)
                return
            except Exception as error:
                if seconds is None or not _may_pass(error):
                    raise
                # before the event, whose file may be on the same storage
                time.sleep(seconds)
                # cut, since TensorStore appends a page of its settings
                self.on_event("save_retry", step=step, problem=str(error)[:300])

    def _write(self, step: int, state: Any) -> None:
        """Starts to write the state; called by every process."""
        if jax.process_index() == 0:
            self.folders.begin(step)
        self._orbax.save(self.folders.where_written(step), args=self._args.StandardSave(state))

    def _finish(self, step: int) -> None:
        """Waits for the writes of all processes and commits the step."""
        self._orbax.wait_until_finished()
        if jax.process_index() == 0:
            self._before_commit()
            self.folders.commit(step)
            self.on_event("save", step=step)
            # last: old checkpoints are deleted after the new one is committed
            self._prune()

    def _prune(self) -> None:
        steps = self.steps()
        for step in steps[: -self.keep_last]:
            if self.keep_every and step % self.keep_every == 0:
                continue
            self.folders.remove(step)


def _message(name: str, error: BaseException) -> str:
    # cut, since TensorStore appends a page of its settings
    return f"could not save to {name}: {str(error)[:300]}"


def _first_problem(problem: str | None) -> str | None:
    """The first process's problem, on all processes (all-gather); None if none has one."""
    text = (problem or "").encode()[:PROBLEM_BYTES].ljust(PROBLEM_BYTES, b"\0")
    rows = multihost_utils.process_allgather(np.frombuffer(text, np.uint8))
    messages = (row.tobytes().rstrip(b"\0").decode(errors="replace") for row in rows)
    return next(filter(None, messages), None)


def _optional(state: Any) -> list[str]:
    """Fields of a NamedTuple that have a default."""
    return list(getattr(state, "_field_defaults", ()))


def _without_empty(state: Any) -> Any:
    """A NamedTuple as a dict of its fields, without empty ones ({}).

    With an empty field, Orbax would refuse older checkpoints that lack the field.
    """
    if not hasattr(state, "_asdict"):
        return state
    fields = state._asdict().items()
    return {name: field for name, field in fields if not isinstance(field, dict) or field}


def _copy_to_host(state: Any) -> Any:
    for array in jax.tree.leaves(state):
        # start all copies: np.array waits for one after the other
        array.copy_to_host_async()
    # np.asarray would share the state's memory on a CPU
    return jax.tree.map(np.array, state)


def _may_pass(error: BaseException | None) -> bool:
    """True if an error comes from EIO of the storage, or from a time-out of Orbax.

    Such a time-out is slow storage, or a clock that was set forward.
    """
    while error is not None:
        if isinstance(error, TimeoutError):
            return True
        # TensorStore, which writes the arrays for Orbax, has the number in its message only.
        is_eio = isinstance(error, OSError) and error.errno == errno.EIO
        if is_eio or f"os_error_code='{errno.EIO}'" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _shapes_by_name(tree: Any) -> dict[str, tuple[int, ...]]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {"/".join(str(_key(k)) for k in path): tuple(leaf.shape) for path, leaf in leaves}


def _key(entry: Any) -> Any:
    """Plain name or index of one entry of a tree path.

    Orbax's metadata has dicts and lists in place of the state's NamedTuples, so that entries of the
    same path have different classes.
    """
    for attribute in ("key", "name", "idx"):
        if hasattr(entry, attribute):
            return getattr(entry, attribute)
    return entry
