"""Handler of SIGTERM and SIGINT: the first saves and stops the run, the second ends it at once."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import jax

from vlc_jax.errors import PreemptedError

T = TypeVar("T")
# Signal -> signal that the parent of a guarded process sends in its place (guard.py).
FORWARDED = {signal.SIGTERM: signal.SIGUSR1, signal.SIGINT: signal.SIGUSR2}


class StopSignal:
    """Flag that SIGTERM or SIGINT sets. Install it once, from the main thread."""

    ALL = (*FORWARDED, *FORWARDED.values())

    def __init__(self) -> None:
        self.name = ""  # of the first signal that arrived

    def install(self, is_guarded: bool = False) -> "StopSignal":
        """Installs the handlers; is_guarded: of the signals in FORWARDED, sent by the parent."""
        for number, forwarded in FORWARDED.items():
            signal.signal(forwarded if is_guarded else number, partial(self._receive, number))
        return self

    @staticmethod
    def ignore() -> None:
        """Ignores signals from now on, once the command is done.

        Python gives them back to the system while it ends, which takes seconds: a finished run
        would be killed without a line, and count as stopped.
        """
        for number in StopSignal.ALL:
            signal.signal(number, signal.SIG_IGN)

    @property
    def is_set(self) -> bool:
        return bool(self.name)

    def _receive(self, number: int, received: int, frame: object) -> None:
        if self.is_set:
            # Not sys.exit: its exception could be caught, and exit handlers wait for threads.
            os._exit(128 + number)  # the shell's code for a process killed by this signal
        self.name = signal.Signals(number).name
        # os.write: a handler may interrupt a print, and buffered files are not reentrant.
        os.write(
            sys.stderr.fileno(),
            f"\n{self.name}: stopping; once more to stop at once, without saving\n".encode(),
        )

    def check(self) -> None:
        """Raises PreemptedError if a signal has arrived."""
        if self.is_set:
            raise PreemptedError(self.name)

    def interrupt(self, work: Callable[[], T], has_begun: bool = True) -> T:
        """The result of `work()`, run on another thread so that a signal can interrupt it.

        For long calls that do not return to Python, such as a compilation or a read from hanging
        storage: Python handles signals on the main thread only, between bytecodes. Raises
        PreemptedError on a signal; `work` then continues until the process ends. Several processes
        must save the same step: with them `work` runs on this thread, uninterrupted, unless
        `has_begun` is False, where the others notice that this process is gone.
        """
        # in this order: before the processes are connected JAX must not be asked
        if has_begun and jax.process_count() > 1:
            return work()
        result: list[T] = []
        failure: list[BaseException] = []

        def run() -> None:
            try:
                result.append(work())
            except BaseException as error:
                failure.append(error)

        # daemon: does not hold up the exit
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while thread.is_alive():
            # With a timeout: a join without one continues after the handler, without a check.
            thread.join(timeout=0.1)
            self.check()
        if failure:
            raise failure[0]
        return result[0]
