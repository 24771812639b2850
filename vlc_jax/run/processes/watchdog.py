"""Watchdog: ends a run that makes no progress, after writing the stacks of all its threads."""

import contextlib
import faulthandler
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from vlc_jax.errors import ExitCode
from vlc_jax.run.metrics import StepClock

POLL_SECONDS = 1.0
LAST_WORDS_SECONDS = 5.0  # timeout of the last writes to the workdir, whose storage may hang
ANNOUNCE_SECONDS = 25.0  # timeout of telling other processes, through an object store


class Watchdog:
    """Ends the process with ExitCode.HANG when no step finishes for too long.

    That is `seconds`, but at least `factor` times the mean step. Only seconds in which this process
    was awake count, so that a suspended process is not ended. Off while `clock` is paused, in
    compilations, saves and evaluations. 0 seconds: no watchdog.

    stacks: file for the stacks.   on_hang: called with the reason; may not return.
    announce: called before the end, to wait until the other processes know.
    lost: as `Peers.lost`. A process that reports a hang may be waiting for this one, so this one
      writes its stacks, too.
    """

    def __init__(
        self,
        clock: StepClock,
        seconds: float,
        factor: float,
        stacks: Path,
        on_hang: Callable[[str], None],
        lost: Callable[[], tuple[int, str] | None] = lambda: None,
        announce: Callable[[], None] = lambda: None,
    ):
        self._clock, self._seconds, self._factor = clock, seconds, factor
        self._stacks, self._on_hang, self._lost = stacks, on_hang, lost
        self._announce = announce
        self._is_over = threading.Event()
        if seconds:
            threading.Thread(target=self._watch, daemon=True, name="watchdog").start()

    def close(self) -> None:
        self._is_over.set()

    def _watch(self) -> None:
        stalled, last = 0.0, self._clock.ticks
        while not self._is_over.wait(POLL_SECONDS):
            if (lost := self._lost()) and lost[0] == ExitCode.HANG:
                self._end("Peer", lost[1])
                return
            if self._clock.is_paused or self._clock.ticks != last:
                stalled, last = 0.0, self._clock.ticks
                continue
            stalled += POLL_SECONDS
            if stalled >= max(self._seconds, self._factor * self._clock.mean_step()):
                self._end("Hang", f"no step finished for {stalled:.0f} s (config.watchdog)")
                return

    def _end(self, kind: str, reason: str) -> None:
        with contextlib.suppress(OSError), self._stacks.open("w") as file:
            faulthandler.dump_traceback(file, all_threads=True)
            reason += f"; the stacks of all threads are in {self._stacks}"
        print(f"{kind}: {reason}", file=sys.stderr, flush=True)
        _for_at_most(LAST_WORDS_SECONDS, self._on_hang, reason)
        # before the end: the other processes write their stacks and end, too
        _for_at_most(ANNOUNCE_SECONDS, self._announce)
        os._exit(ExitCode.HANG)


def _for_at_most(seconds: float, function: Callable[..., None], *arguments: str) -> None:
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    thread.join(seconds)
