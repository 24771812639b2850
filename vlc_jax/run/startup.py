"""Steps before the imports of a command: signals end it in one line, C++ libraries are quiet.

Imports the standard library only. Its handlers stay until `run.preemption` takes over.
"""

import os
import signal
import sys
from functools import partial
from types import FrameType

# As vlc_jax.errors.ExitCode has them: PREEMPTED, there is no state to save yet; and the shell's.
CODES = {signal.SIGTERM: 75, signal.SIGINT: 130}

# Of XLA and gRPC, read at their import: what ends a run reaches Python as an exception, whose one
# line is ours.
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "GRPC_VERBOSITY": "NONE"}


def install() -> None:
    """Handles SIGTERM and SIGINT from now on; C++ libraries log what the environment asks for."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    for number in CODES:
        signal.signal(number, partial(end, number))


def end(number: int, received: int, frame: FrameType | None) -> None:
    """Ends the process as signal `number` does before the run has begun."""
    name = signal.Signals(number).name
    # os.write and os._exit: a half-finished import must not have to print, or to clean up
    os.write(sys.stderr.fileno(), f"{name}: stopped before the run had begun\n".encode())
    os._exit(CODES[number])
