"""Worker processes that make batches, without jax and the parent's main module.

Worker i of n makes every n-th batch. A batch is a function of its step, so that a worker that died
is replaced by one that goes on at the step it owed.
"""

import contextlib
import importlib.machinery
import logging
import multiprocessing
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import cloudpickle
import psutil

from vlc_jax.input_pipeline.loader import worker_channel, worker_process
from vlc_jax.input_pipeline.loader.examples import Cancelled

_REAP_PATIENCE_S = 5.0  # a killed process that reads from hanging storage may stay for ever


class WorkerError(Exception):
    """A loader's worker process died twice."""

    exit_code = 30


class WorkerStream:
    """Stream of the batches of `steps` from `start_step` on, from worker processes, in order.

    For one consuming thread; `stop` and `waiting_for` may be called from others.

    `steps` is a sequence indexed by step of {"batch": arrays, "bad": ...}; what it is made of may
    be defined in a notebook or the main module. A worker that dies is started once more, with a
    warning; its second death raises WorkerError.
    """

    def __init__(
        self, steps: Sequence[dict[str, Any]], start_step: int, workers: int, threads: int
    ) -> None:
        self._steps = steps
        self._start_step = start_step
        self._count = workers
        self._threads = threads
        self._workers: list[_Worker] = []
        self._awaited = 0  # index of the worker that the consumer waits for
        self._failure: Exception | None = None
        self._is_stopped = False
        self._lock = threading.Lock()  # no process begins while others are being ended

    def __call__(self, step: int) -> dict[str, Any]:
        """The batch of `step`, which is the one after that of the call before.

        Raises WorkerError, Cancelled after `stop`, and what a worker raised; then always that.
        """
        if self._failure is None:
            made = self._next(step)
            if not isinstance(made, Exception):
                return made
            self._failure = made
        raise self._failure

    def stop(self) -> None:
        """Kills the processes; the consumer, if it waits for one of them, gets Cancelled."""
        with self._lock:
            self._is_stopped = True
            for worker in self._workers:
                worker.kill()

    def close(self) -> None:
        """Frees what is left after `stop`, once nobody consumes any more."""
        deadline = time.monotonic() + _REAP_PATIENCE_S
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            worker.connection.close()

    def waiting_for(self) -> str:
        """Name and state of the worker whose batch comes next."""
        workers = self._workers
        return workers[self._awaited].describe() if workers else "the loader workers to start"

    def _next(self, step: int) -> dict[str, Any] | Exception:
        if not self._workers:
            self._start(step)
        self._awaited = (step - self._start_step) % self._count
        while True:
            worker = self._workers[self._awaited]
            try:
                return worker_channel.receive(worker.connection)
            except (EOFError, OSError):  # it died
                if self._is_stopped:
                    return Cancelled()
            end = worker.end()
            if worker.is_restarted:
                return WorkerError(
                    f"{end}, its second death in this run; if that was for want of memory, "
                    "fewer workers or smaller batches need less"
                )
            logging.getLogger(__name__).warning("%s; it is started again at step %d", end, step)
            again = self._begin(self._awaited, is_restarted=True)
            self._tell(again, step, cloudpickle.dumps(self._steps))

    def _start(self, step: int) -> None:
        for index in range(self._count):
            self._begin(index, is_restarted=False)
        pickled = cloudpickle.dumps(self._steps)
        for index, worker in enumerate(self._workers):  # all of them import meanwhile
            self._tell(worker, step + index, pickled)

    def _begin(self, index: int, *, is_restarted: bool) -> "_Worker":
        with self._lock:
            if self._is_stopped:
                raise Cancelled
            name = f"loader worker {index + 1} of {self._count}"
            worker = _Worker(name, is_restarted=is_restarted)
            self._workers[index : index + 1] = [worker]  # the next one, or in place of a dead one
        return worker

    def _tell(self, worker: "_Worker", step: int, pickled: bytes) -> None:
        with contextlib.suppress(OSError):  # it died, as its first batch will show
            worker_channel.send(worker.connection, (pickled, step, self._count, self._threads))


class _Worker:
    """A worker process and the socket that its batches come from."""

    def __init__(self, name: str, *, is_restarted: bool) -> None:
        self.name, self.is_restarted = name, is_restarted
        self.connection, theirs = socket.socketpair()
        with theirs, child_processes():
            # Little goes this way: it is written while the process does not read yet.
            self.process = multiprocessing.get_context("spawn").Process(
                target=worker_process.run, args=(theirs,), daemon=True, name=name
            )
            self.process.start()

    def kill(self) -> None:
        """Ends the process, which shares nothing that it could leave in disorder."""
        self.process.kill()  # not terminate: it ignores SIGTERM
        # Wakes who reads, also when the process hangs in the storage and cannot be killed.
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def end(self) -> str:
        """Ends a process whose socket is closed; a sentence about how it ended."""
        self.process.join(_REAP_PATIENCE_S)
        code = self.process.exitcode
        self.kill()  # for one that only lost its socket
        self.connection.close()
        if code is None:
            return f"{self._title()} closed its socket"
        if code < 0:
            return f"{self._title()} was killed by {signal.Signals(-code).name}"
        return f"{self._title()} ended with exit code {code}"

    def describe(self) -> str:
        """Name and state, as "sleeping" or "stopped"."""
        try:
            state = psutil.Process(self.process.pid).status()
        except psutil.Error:
            state = "gone"
        return f"{self.name} (process {self.process.pid}, {state})"

    def _title(self) -> str:
        return f"{self.name} (process {self.process.pid})"


_spawning = threading.Lock()


@contextlib.contextmanager
def child_processes() -> Iterator[None]:
    """Processes spawned inside begin with worker_main.py of this folder, not with the main module.

    multiprocessing tells a spawned process to import the parent's main module by the name in its
    `__spec__`: for a training program that means jax and everything else, once per worker.
    """
    main = sys.modules["__main__"]
    with _spawning:  # `__spec__` is one for all threads, and two loaders may start at once
        spec = main.__spec__
        main.__spec__ = importlib.machinery.ModuleSpec(
            "vlc_jax.input_pipeline.loader.worker_main", None
        )
        try:
            yield
        finally:
            main.__spec__ = spec
