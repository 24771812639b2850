"""Worker processes that make batches: Grain's, without jax and the parent's main module."""

import collections
import contextlib
import importlib.machinery
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np


class WorkerStream:
    """Stream of the batches of `steps[start_step:]` from worker processes, in order.

    For one consuming thread.

    `steps` is a picklable sequence indexed by step of {"batch": arrays, "bad": ...}; worker i of n
    makes every n-th of them.
    """

    def __init__(
        self, steps: Sequence[dict[str, Any]], start_step: int, workers: int, threads: int
    ) -> None:
        self._steps = steps
        self._start_step = start_step
        self._workers = workers
        self._threads = threads
        self._iterator: Any = None
        self._first: collections.deque[Any] = collections.deque()

    def __call__(self, step: int) -> dict[str, Any]:
        """The next batch; `step` is ignored, since batches come in order."""
        if self._iterator is None:
            self._start()
        made = self._first.popleft() if self._first else self._next()
        if isinstance(made, Exception):
            raise made
        # Copied out of shared memory at once: Grain frees it when its own array goes, and may not
        # do so any more when the interpreter ends.
        return made | {"batch": {key: np.array(array) for key, array in made["batch"].items()}}

    def close(self) -> None:
        """Ends the processes, after the batch each is making."""
        if self._iterator is not None:
            self._first.clear()
            self._iterator.close()
            self._iterator = None

    def _start(self) -> None:
        import grain
        from absl import flags

        if not flags.FLAGS.is_parsed():  # in a notebook; grain reads its own flags
            flags.FLAGS.mark_as_parsed()
        read = grain.ReadOptions(num_threads=self._threads, prefetch_buffer_size=self._threads)
        # One batch per worker waits in shared memory: the loader's own queue holds the others.
        processes = grain.MultiprocessingOptions(
            num_workers=self._workers, per_worker_buffer_size=1
        )
        source = grain.MapDataset.source(self._steps)[self._start_step :]
        self._iterator = iter(source.to_iter_dataset(read).mp_prefetch(processes))
        with child_processes():  # the n-th process is certain to have begun with the n-th batch
            for _ in range(self._workers):
                self._first.append(self._next())
                if isinstance(self._first[-1], Exception):
                    break

    def _next(self) -> dict[str, Any] | Exception:
        """The next batch or the exception in its place, which `__call__` raises in its turn."""
        try:
            return next(self._iterator)
        except Exception as error:
            return _explained(error)


def _explained(error: Exception) -> Exception:
    if isinstance(error, RuntimeError) and "terminated unexpectedly" in str(error):
        error.add_note(
            "a loader worker process died; killed for want of memory, or is /dev/shm full? "
            "Fewer workers or smaller batches need less of both"
        )
    return error


_spawning = threading.Lock()


@contextlib.contextmanager
def child_processes() -> Iterator[None]:
    """Processes spawned inside begin with input_pipeline/worker_main.py, not with the main module.

    multiprocessing tells a spawned process to import the parent's main module by the name in its
    `__spec__`: for a training program that means jax and everything else, once per worker.
    """
    main = sys.modules["__main__"]
    with _spawning:  # `__spec__` is one for all threads, and two loaders may start at once
        spec = main.__spec__
        main.__spec__ = importlib.machinery.ModuleSpec("input_pipeline.worker_main", None)
        try:
            yield
        finally:
            main.__spec__ = spec
