"""Worker processes that make batches, without jax and the parent's main module.

Worker i of n makes every n-th batch. A batch is a function of its step, so the replacement of a
dead worker continues at the step that is due.
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

# a killed process that reads from hanging storage may stay for ever
_REAP_PATIENCE_S = 5.0


class WorkerError(Exception):
    """A loader's worker process died twice."""

    exit_code = 30


class WorkerStream:
    """Stream of the batches of `steps` from `start_step` on, from worker processes, in order.

    For one consuming thread; `stop` and `waiting_for` may be called from others.

    `steps` is a sequence indexed by step of {"batch": arrays, "bad": ...}; its classes may be
    defined in a notebook or the main module. A worker that dies is restarted once, with a warning;
    its second death raises WorkerError.
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
        # no process starts while `stop` kills the others
        self._lock = threading.Lock()

    def __call__(self, step: int) -> dict[str, Any]:
        """The batch of `step`; calls come with consecutive steps.

        Raises WorkerError, Cancelled after `stop`, and the error of a worker; every later call
        raises the same error again.
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
        """Frees processes and sockets after `stop`, once no thread consumes batches."""
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
                    f"{end}, its second death in this run; if memory ran out, "
                    "use fewer workers or smaller batches"
                )
            logging.getLogger(__name__).warning("%s; it is started again at step %d", end, step)
            replacement = self._begin(self._awaited, is_restarted=True)
            self._send_steps(replacement, step, cloudpickle.dumps(self._steps))

    def _start(self, step: int) -> None:
        for index in range(self._count):
            self._begin(index, is_restarted=False)
        pickled = cloudpickle.dumps(self._steps)
        # after all have started: their imports run in parallel
        for index, worker in enumerate(self._workers):
            self._send_steps(worker, step + index, pickled)

    def _begin(self, index: int, *, is_restarted: bool) -> "_Worker":
        with self._lock:
            if self._is_stopped:
                raise Cancelled
            name = f"loader worker {index + 1} of {self._count}"
            worker = _Worker(name, is_restarted=is_restarted)
            # appended, or replaces a dead one
            self._workers[index : index + 1] = [worker]
        return worker

    def _send_steps(self, worker: "_Worker", step: int, pickled: bytes) -> None:
        with contextlib.suppress(OSError):  # it died: receiving its first batch raises
            worker_channel.send(worker.connection, (pickled, step, self._count, self._threads))


class _Worker:
    """A worker process and the socket that delivers its batches."""

    def __init__(self, name: str, *, is_restarted: bool) -> None:
        self.name, self.is_restarted = name, is_restarted
        self.connection, child_socket = socket.socketpair()
        with child_socket, child_processes():
            # Only small `args`: they are written to a pipe before the process reads it.
            self.process = multiprocessing.get_context("spawn").Process(
                target=worker_process.run, args=(child_socket,), daemon=True, name=name
            )
            self.process.start()

    def kill(self) -> None:
        """Kills the process; it shares no state that a kill could corrupt."""
        # not terminate: it ignores SIGTERM
        self.process.kill()
        # Wakes the reader, even if the process hangs in storage and cannot be killed.
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def end(self) -> str:
        """Ends a process whose socket is closed; returns how it ended, for a message."""
        self.process.join(_REAP_PATIENCE_S)
        code = self.process.exitcode
        # in case it only lost its socket
        self.kill()
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
    """Processes spawned inside start with worker_main.py of this folder, not the main module.

    A spawned process imports the parent's main module by the name in its `__spec__`: for a training
    program that would load jax and everything else, once per worker.
    """
    main = sys.modules["__main__"]
    # all threads share `__spec__`, and two loaders may start at once
    with _spawning:
        spec = main.__spec__
        main.__spec__ = importlib.machinery.ModuleSpec(
            "vlc_jax.input_pipeline.loader.worker_main", None
        )
        try:
            yield
        finally:
            main.__spec__ = spec
