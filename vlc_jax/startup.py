"""Signals while a command imports its libraries, which takes seconds: one line, and the exit code.

Imports the standard library only; its handlers stay until `run.preemption` takes over.
"""

import os
import signal
import sys
from types import FrameType

# As vlc_jax.errors.ExitCode has them: PREEMPTED, there is no state to save yet; and the shell's.
CODES = {signal.SIGTERM: 75, signal.SIGINT: 130}


def install() -> None:
    """Handles SIGTERM and SIGINT from now on."""
    for number in CODES:
        signal.signal(number, _end)


def _end(number: int, frame: FrameType | None) -> None:
    name = signal.Signals(number).name
    # os.write and os._exit: a half-finished import must not have to print, or to clean up
    os.write(sys.stderr.fileno(), f"{name}: stopped before the run had begun\n".encode())
    os._exit(CODES[number])


def cli() -> None:
    """The console script vlc-jax."""
    install()
    from vlc_jax import main

    main.cli()
