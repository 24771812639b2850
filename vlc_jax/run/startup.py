"""Setup before the imports of a command: signal handlers, log levels of C++ libraries.

Imports the standard library only. `run.processes.preemption` replaces its handlers later.
"""

import os
import signal
import sys
from functools import partial
from types import FrameType

# ExitCode.PREEMPTED (there is no state to save yet), and the shell's code for SIGINT.
CODES = {signal.SIGTERM: 75, signal.SIGINT: 130}

# Log levels of XLA and gRPC, read at their import: their fatal errors also reach Python as
# exceptions, which a command prints as one line.
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "GRPC_VERBOSITY": "NONE"}


def install() -> None:
    """Installs handlers of SIGTERM and SIGINT; sets QUIET where the environment has no value."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    for number in CODES:
        signal.signal(number, partial(end, number))


def end(number: int, received: int, frame: FrameType | None) -> None:
    """Ends the process with the exit code of signal `number`, before the run has begun."""
    name = signal.Signals(number).name
    # os.write and os._exit: a half-finished import must not have to print, or to clean up
    os.write(sys.stderr.fileno(), f"{name}: stopped before the run had begun\n".encode())
    os._exit(CODES[number])
