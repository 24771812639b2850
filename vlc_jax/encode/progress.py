"""Progress line of an evaluation on stderr:

set 2 of 5, sugarcrepe: images 1,024 of 1,561, texts 0 of 14,000, more than 0:00:09 left
"""

import datetime
import time
from collections.abc import Mapping

from vlc_jax.input_pipeline.stores import progress


class Progress:
    """Counts of the images and texts of a set that are encoded, and of its scores and answers.

    A terminal shows one line that is overwritten; a log gets one every ten seconds. Before `begin`
    nothing is shown.
    """

    def __init__(self) -> None:
        self._line: progress.Line | None = None

    def begin(self, title: str, totals: Mapping[str, int], *, is_overwritten: bool = True) -> None:
        """Begins a set. totals: kind ("images", ...) -> expected number; may be estimates.

        is_overwritten: False if the terminal has another line that is overwritten.
        """
        self._title, self._totals = title, dict(totals)
        self._done, self._cached = dict.fromkeys(totals, 0), dict.fromkeys(totals, 0)
        self._timed: dict[str, tuple[int, float]] = {}  # kind -> (items, seconds), after the first
        self._last = time.monotonic()
        self._line = progress.Line(is_terminal=None if is_overwritten else False)

    def expect(self, kind: str, number: int) -> None:
        """Sets the number of items of a kind that are still to do; the others are cached."""
        if self._line is not None:
            self._cached[kind] = max(self._totals[kind] - number, 0)
            self._totals[kind] = self._cached[kind] + number

    def count(self, kind: str, number: int) -> None:
        """Counts finished items; the time since the last call is theirs.

        The first call of a kind sets no pace: its time is mostly that of a compilation.
        """
        if self._line is None:
            return
        now = time.monotonic()
        if kind in self._timed:
            items, seconds = self._timed[kind]
            self._timed[kind] = (items + number, seconds + now - self._last)
        else:
            self._timed[kind] = (0, 0.0)
        self._done[kind] = self._done.get(kind, 0) + number
        self._last = now
        if self._line.is_due():
            self._line.show(self._text())

    def end(self) -> None:
        """Ends a set, whose line leaves the terminal."""
        self._line.end()
        self._line = None

    def _text(self) -> str:
        counts, left, is_known = [], 0.0, True
        for kind, done in self._done.items():
            total, ready = self._totals.get(kind, 0), self._cached.get(kind, 0) + done
            if ready > total:  # the protocol scores other pairs than the estimate counts
                counts.append(f"{kind} {ready:,}")
                is_known = False
            elif total:
                counts.append(f"{kind} {ready:,} of {total:,}")
                items, seconds = self._timed.get(kind, (0, 0.0))
                left += (total - ready) * seconds / items if items else 0.0
                is_known &= items > 0 or ready == total
        left = round(left)
        if is_known or left:  # "more than 0:00:00" says nothing
            counts.append(
                f"{'' if is_known else 'more than '}{datetime.timedelta(seconds=left)} left"
            )
        return f"{self._title}: {', '.join(counts)}"
