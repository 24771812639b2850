"""Progress of the questions of a run, on stderr."""

import shutil
import sys
import time

from vlc_jax.input_pipeline.hard_texts.llm.log import Log

_EVERY = 1.0  # seconds between two updates of a terminal's progress line
_EVERY_IN_A_FILE = 60.0  # seconds between two lines if stderr is not a terminal


class Meter:
    """Prints answers, rate, time left, tokens: one updated line, or a line a minute."""

    def __init__(self, log: Log, total: int) -> None:
        self._log, self._total = log, total
        self._start, self._answers = time.monotonic(), len(log)
        self._is_terminal = sys.stderr.isatty()
        self._next = self._start + _EVERY

    def show(self) -> None:
        """Prints the progress if it is due."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (_EVERY if self._is_terminal else _EVERY_IN_A_FILE)
        rate = (len(self._log) - self._answers) / (now - self._start)
        left = max(self._total - len(self._log), 0) / rate if rate else float("inf")
        text = (
            f"{len(self._log):,} of {self._total:,} answers, {rate:,.1f} per second, "
            f"{_duration(left)} left, {self._log.state()}"
        )
        if self._is_terminal:  # a wrapped line could not be overwritten
            text = f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}"
        else:
            text += "\n"
        print(text, end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Ends the progress line of a terminal."""
        if self._is_terminal:
            print(file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    if seconds == float("inf"):
        return "unknown time"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"
