"""Progress of reading a large file, on stderr."""

import shutil
import sys
import time
from pathlib import Path

_PAUSE = 1.0  # seconds
_FIRST, _EVERY, _EVERY_IN_A_FILE = 3.0, 0.2, 10.0  # seconds until the first line, and between


class Progress:
    """A line on stderr from the third second on: "reading captions.csv: 34 %, 400,000 rows".

    Passes over a file without a pause between them count as one.
    """

    def __init__(self, path: Path) -> None:
        self._name = path.name
        self._next, self._ended = 0.0, -_PAUSE
        self._is_shown = False

    def begin(self) -> None:
        """Starts a pass."""
        now = time.monotonic()
        if now - self._ended > _PAUSE:
            self._next = now + _FIRST

    def show(self, share: float, rows: int | None = None) -> None:
        """Prints the share that is read, and the rows if counted, if a line is due."""
        now = time.monotonic()
        if now < self._next:
            return
        is_terminal = sys.stderr.isatty()
        self._next = now + (_EVERY if is_terminal else _EVERY_IN_A_FILE)
        text = f"reading {self._name}: {share:.0%}".replace("%", " %")
        text += "" if rows is None else f", {rows:,} rows"
        # a line that wraps could not be written over
        if is_terminal:
            text = f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}"
        print(text, end="" if is_terminal else "\n", file=sys.stderr, flush=True)
        self._is_shown = True

    def end(self) -> None:
        """Ends a pass; removes the line from a terminal."""
        self._ended = time.monotonic()
        if self._is_shown and sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        self._is_shown = False
