"""Progress of a run of questions on stderr."""

import shutil
import sys
import time

from vlc_jax.input_pipeline.hard_texts.llm.log import Log

_EVERY = 1.0  # seconds between two states of the progress line of a terminal
_EVERY_IN_A_FILE = 60.0  # and between two lines of progress elsewhere


class Meter:
    """Answers, rate, time left, tokens: a line that changes on a terminal, else one per minute."""

    def __init__(self, log: Log, total: int) -> None:
        self._log, self._total = log, total
        self._begun, self._answers = time.monotonic(), len(log)
        self._is_terminal = sys.stderr.isatty()
        self._next = self._begun + _EVERY

    def show(self) -> None:
        """Prints the progress if it is due."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + (_EVERY if self._is_terminal else _EVERY_IN_A_FILE)
        rate = (len(self._log) - self._answers) / (now - self._begun)
        left = max(self._total - len(self._log), 0) / rate if rate else float("inf")
        text = (
            f"{len(self._log):,} of {self._total:,} answers, {rate:,.1f} per second, "
            f"{_duration(left)} left, {self._log.state()}"
        )
        if self._is_terminal:  # a line that wraps could not be written over
            text = f"\r\x1b[K{text[: shutil.get_terminal_size().columns - 1]}"
        else:
            text += "\n"
        print(text, end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Ends the line of a terminal."""
        if self._is_terminal:
            print(file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    if seconds == float("inf"):
        return "unknown time"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"
