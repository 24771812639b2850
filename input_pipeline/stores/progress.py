"""Progress on stderr: a line that is overwritten on a terminal; in a log a line now and then."""

import contextlib
import datetime
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_PAUSE = 1.0  # seconds
_FIRST = 3.0  # seconds of reading a table before its first line
_EVERY, _EVERY_IN_A_FILE = 0.2, 10.0  # seconds between two lines


class Line:
    """The line.   wait: seconds until it is first due.

    is_terminal: whether it is overwritten; None: if stderr is a terminal.
    """

    def __init__(self, wait: float | None = None, is_terminal: bool | None = None) -> None:
        self._is_terminal = sys.stderr.isatty() if is_terminal is None else is_terminal
        self._is_shown = False
        self._every = _EVERY if self._is_terminal else _EVERY_IN_A_FILE
        self._next = time.monotonic() + (self._every if wait is None else wait)

    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def show(self, text: str) -> None:
        self._next = time.monotonic() + self._every
        # a line that wraps could not be written over
        if self._is_terminal:
            text = f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}"
        print(text, end="" if self._is_terminal else "\n", file=sys.stderr, flush=True)
        self._is_shown = True

    def end(self) -> None:
        """Removes the line from a terminal."""
        if self._is_shown and self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        self._is_shown = False


@contextlib.contextmanager
def bar(title: str, total: int, done: int = 0) -> Iterator[Callable[[int], None]]:
    """Progress with rate and time left: yields a function of the number done.

    done: number already done at the start, which does not count for the rate.
    """
    line, first, start = Line(), done, time.monotonic()

    def advance(done: int) -> None:
        if not line.is_due():
            return
        new, passed, pace = done - first, time.monotonic() - start, "? left"
        if new and passed:
            left = datetime.timedelta(seconds=round((total - done) * passed / new))
            pace = f"{new / passed:,.1f}/s, {left} left"
        line.show(f"{title}: {done:,} of {total:,}, {pace}")

    try:
        yield advance
    finally:
        line.end()


class Progress:
    """Reading a large file, from the third second on: "reading a.csv: 34 %, 400,000 rows".

    Passes over a file without a pause between them count as one.
    """

    def __init__(self, path: Path) -> None:
        self._name, self._line, self._ended = path.name, Line(_FIRST), -_PAUSE

    def begin(self) -> None:
        """Starts a pass."""
        if time.monotonic() - self._ended > _PAUSE:
            self._line = Line(_FIRST)

    def show(self, share: float, rows: int | None = None) -> None:
        """Prints the share that is read, and the rows if counted, if a line is due."""
        if self._line.is_due():
            counted = "" if rows is None else f", {rows:,} rows"
            self._line.show(f"reading {self._name}: {100 * share:.0f} %{counted}")

    def end(self) -> None:
        """Ends a pass; removes the line from a terminal."""
        self._ended = time.monotonic()
        self._line.end()
