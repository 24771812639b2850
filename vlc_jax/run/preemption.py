"""Handler of SIGTERM and SIGINT: the first saves and stops the run, the second ends it at once."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

import jax

from vlc_jax.errors import PreemptedError

T = TypeVar("T")


class StopSignal:
    """Flag that SIGTERM or SIGINT sets. Install it once, from the main thread."""

    def __init__(self) -> None:
        self.name = ""  # of the first signal that arrived

    def install(self) -> "StopSignal":
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)
        return self

    @property
    def is_set(self) -> bool:
        return bool(self.name)

    def _receive(self, number: int, frame: object) -> None:
        if self.is_set:
            # Not sys.exit: its exception could be caught, and exit handlers wait for threads.
            os._exit(128 + number)  # as a shell reports a process that died of a signal
        self.name = signal.Signals(number).name
        # os.write: a handler may interrupt a print, and buffered files are not reentrant.
        os.write(
            sys.stderr.fileno(),
            f"\n{self.name}: saving and stopping; once more to stop at once\n".encode(),
        )

    def check(self) -> None:
        """Raises PreemptedError if a signal has arrived."""
        if self.is_set:
            raise PreemptedError(self.name)

    def interrupt(self, work: Callable[[], T]) -> T:
        """The result of `work()`, run on another thread, unless a signal arrives first.

        For long calls that do not return to Python, such as a compilation or a read from hanging
        storage: Python handles signals on the main thread only, between bytecodes. Raises
        PreemptedError on a signal; `work` then goes on until the process ends. Several processes
        must stop at the same step: there `work` runs on this thread and is not interrupted.
        """
        if jax.process_count() > 1:
            return work()
        result: list[T] = []
        failure: list[BaseException] = []

        def run() -> None:
            try:
                result.append(work())
            except BaseException as error:
                failure.append(error)

        thread = threading.Thread(target=run, daemon=True)  # daemon: does not hold up the exit
        thread.start()
        while thread.is_alive():
            # A join without timeout resumes after the handler has run, and the flag is not read.
            thread.join(timeout=0.1)
            self.check()
        if failure:
            raise failure[0]
        return result[0]
