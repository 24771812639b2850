"""Runs several processes at a time on one machine, each on its share of the cores and GPUs."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

LATER = object()  # from `take`: no item can start before another one ends
# vlc_jax.errors.ExitCode.PREEMPTED, without its import
PREEMPTED = 75
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# On a CPU, XLA's temporary buffers are mapped anew in every step: in large pages at a third of the
# cost. glibc, from 2.35 on, reads it when a process starts.
LARGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


class Share(NamedTuple):
    """Share of a machine for one process: cores, and GPUs if CUDA_VISIBLE_DEVICES is set."""

    cores: Sequence[int]
    gpus: Sequence[str]


def shares(jobs: int) -> list[Share]:
    """Splits the machine into `jobs` shares. Raises ValueError if a share has no core or GPU."""
    cores = sorted(os.sched_getaffinity(0))
    gpus = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    most = min(len(cores), len(gpus)) if gpus else len(cores)
    if not 1 <= jobs <= most:
        resources = f"{len(cores)} cores" + (f" and {len(gpus)} GPUs" if gpus else "")
        raise ValueError(f"{jobs} jobs at a time do not fit {resources}; use 1 to {most}")
    return [Share(cores[i::jobs], gpus[i::jobs]) for i in range(jobs)]


class Scheduler:
    """Processes items, one at a time per share, until none is left or a signal arrives.

    take: returns the next item, None if none is left, or LATER. do: processes an item on a share.
    finish: called with the item and its result. Only `do` runs on several threads at once. SIGTERM,
    SIGINT and SIGHUP are forwarded to all processes as SIGTERM; then no item starts, and
    `is_stopped` is True.
    """

    def __init__(
        self,
        parts: Sequence[Share],
        take: Callable[[], Any],
        do: Callable[[Any, Share], Any],
        finish: Callable[[Any, Any], None],
    ) -> None:
        self.is_stopped = False
        self._shares, self._take, self._do, self._finish = parts, take, do, finish
        self._changed = threading.Condition()
        self._processes: set[subprocess.Popen] = set()
        self._errors: list[BaseException] = []

    def run(self) -> None:
        """Processes all items; after a signal, only those already started.

        Call it from the main thread, the only one that can handle signals. Errors of take, do and
        finish are raised after the processes have stopped."""
        before = {number: signal.signal(number, lambda *_: self._stop()) for number in SIGNALS}
        workers = [threading.Thread(target=self._work, args=(part,)) for part in self._shares]
        for worker in workers:
            worker.start()
        for worker in workers:
            # With a timeout: of a signal that arrives just before a wait, or on another thread, the
            # handler runs after the wait.
            while worker.is_alive():
                worker.join(timeout=0.5)
        for number, handler in before.items():
            signal.signal(number, handler)
        if self._errors:
            raise self._errors[0]

    def process(self, command: Sequence[str], cwd: Path, log: Path, share: Share) -> int:
        """Runs a command, appends its output to `log`, and returns its exit code.

        The code is 128 + N after signal N, as in a shell. Raises OSError."""
        gpus = {"CUDA_VISIBLE_DEVICES": ",".join(share.gpus)} if share.gpus else {}
        with log.open("ab") as output, self._changed:
            if self.is_stopped:
                return PREEMPTED
            # In its own session: else Ctrl-C in a terminal would reach it twice, directly and
            # forwarded, and the second signal ends a run without saving.
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env={**LARGE_PAGES, **os.environ, **gpus},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            with contextlib.suppress(ProcessLookupError):  # it has already ended
                # before it starts threads
                os.sched_setaffinity(process.pid, share.cores)
            self._processes.add(process)
        code = process.wait()
        with self._changed:
            self._processes.remove(process)
        return code if code >= 0 else 128 - code

    def _work(self, share: Share) -> None:
        try:
            while (item := self._next()) is not None:
                result = self._do(item, share)
                with self._changed:
                    self._finish(item, result)
                    self._changed.notify_all()
        except BaseException as error:
            self._errors.append(error)
            self._stop()

    def _next(self) -> Any:
        with self._changed:
            while not self.is_stopped:
                if (item := self._take()) is not LATER:
                    return item
                self._changed.wait()
        return None

    def _stop(self) -> None:
        self.is_stopped = True
        with self._changed:
            for process in self._processes:
                process.terminate()
            self._changed.notify_all()
