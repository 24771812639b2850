"""Interruption of an encoder by SIGTERM or SIGINT."""

from collections.abc import Callable
from typing import TypeVar

from vlc_jax.devices import sharding
from vlc_jax.errors import PreemptedError
from vlc_jax.run.processes.preemption import StopSignal

T = TypeVar("T")


class Interrupt:
    """Stops an encoder on a signal; without a `StopSignal` nothing interrupts it."""

    def __init__(self, stop: StopSignal | None = None) -> None:
        self._stop = stop

    def check(self) -> None:
        """Raises PreemptedError if any process got a signal; called before each batch."""
        # any process: one that stopped alone would leave the others waiting in a collective
        if self._stop and sharding.any_process(self._stop.is_set):
            raise PreemptedError(self._stop.name or "another process")

    def call(self, work: Callable[[], T]) -> T:
        """The result of `work()`; a signal interrupts it, even a read from hanging storage."""
        return self._stop.interrupt(work) if self._stop else work()


NEVER = Interrupt()
