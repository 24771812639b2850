"""Setup before the imports of a command: signal handlers, log levels of C++ libraries.

Imports the standard library only. `run.processes.preemption` (a run) or
`input_pipeline.commands.interrupt` (another command) replaces its handlers later.
"""

import os
import signal
import sys
from functools import partial
from types import FrameType

from vlc_jax.input_pipeline.commands import interrupt

# ExitCode.PREEMPTED (there is no state to save yet), and the shell's code for SIGINT.
CODES = {signal.SIGTERM: 75, signal.SIGINT: 130}

# Log levels of XLA and gRPC, read at their import: their fatal errors also reach Python as
# exceptions, which a command prints as one line.
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "GRPC_VERBOSITY": "NONE"}


def install(is_run: bool = True) -> None:
    """Installs handlers of SIGTERM and SIGINT; sets QUIET where the environment has no value.

    is_run: False for another command, which ends with 143 and 130.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    for number in CODES:
        signal.signal(number, partial(end, number, is_run))


def end(number: int, is_run: bool, received: int, frame: FrameType | None) -> None:
    """Ends the process because of signal `number`, before the run or command has begun."""
    line, code = interrupt.LINE, 128 + number
    if is_run:
        name = signal.Signals(number).name
        line, code = f"{name}: stopped before the run had begun", CODES[number]
    # os.write and os._exit: a half-finished import must not have to print, or to clean up
    os.write(sys.stderr.fileno(), f"{line}\n".encode())
    os._exit(code)
