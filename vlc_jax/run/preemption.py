"""SIGTERM and SIGINT: the first asks the run to save and stop, the second ends it at once."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from vlc_jax.errors import PreemptedError

T = TypeVar("T")


class StopSignal:
    """Whether this process was asked to stop. Install once, from the main thread."""

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
            os._exit(128 + number)
        self.name = signal.Signals(number).name
        # os.write, since a handler may interrupt a print in progress.
        os.write(
            sys.stderr.fileno(),
            f"\n{self.name}: saving and stopping; once more to stop at once\n".encode(),
        )

    def check(self) -> None:
        """Raises PreemptedError if a signal has arrived."""
        if self.is_set:
            raise PreemptedError(self.name)

    def interrupt(self, work: Callable[[], T]) -> T:
        """Runs `work` on another thread and stops waiting for it when a signal arrives.

        For calls that never return to Python while they last, such as a compilation: the main
        thread must be free to handle signals. Raises PreemptedError; `work` is left behind.
        """
        result: list[T] = []
        failure: list[BaseException] = []

        def run() -> None:
            try:
                result.append(work())
            except BaseException as error:
                failure.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(timeout=0.1)
            self.check()
        if failure:
            raise failure[0]
        return result[0]
