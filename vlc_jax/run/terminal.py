"""Terminal output of a run: only our warnings; libraries log to the workdir alone."""

import faulthandler
import logging
import os
import sys
import threading
from pathlib import Path

from absl import logging as absl_logging


def quieten() -> None:
    """Limits terminal output to warnings of our modules, for a command line process.

    The error that ends a process is printed as one line. Without this function a full disk would
    print thousands of lines before it: Orbax logs a traceback for each failed thread, TensorStore
    one for each array whose write ends later.
    """
    handler = absl_logging.get_absl_handler()
    handler.setLevel(logging.WARNING)
    handler.python_handler.addFilter(_is_of_ours)
    # without absl's prefix of time, thread and file, which the log has
    handler.python_handler.setFormatter(_PlainFormatter())
    # on a full disk, log lines are dropped without a traceback
    logging.raiseExceptions = False
    sys.unraisablehook = _unraisable
    threading.excepthook = _thread_failed


def write_native_output_to(path: Path) -> None:
    """Redirects the output of C++ libraries and crash stacks to a file; Python keeps the terminal.

    Such output is, for example, the stacks that JAX prints when it aborts.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    sys.stderr = open(os.dup(2), "w", buffering=1)  # noqa: SIM115 -- open until the process ends
    os.dup2(file, 2)
    os.close(file)
    faulthandler.enable(2)
    absl_logging.get_absl_handler().python_handler.setStream(sys.stderr)


class _PlainFormatter(logging.Formatter):
    """The format "warning: MESSAGE"."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {super().format(record)}"


def _is_of_ours(record: logging.LogRecord) -> bool:
    # asyncio runs Orbax's writes; gcsfs and fsspec log a traceback for each call that they give up
    is_noise = record.name.partition(".")[0] in ("asyncio", "gcsfs", "fsspec")
    return not is_noise and "orbax" not in Path(record.pathname).parts


def _unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    if str(unraisable.exc_value) == "Event loop is closed":
        logging.debug("a write of TensorStore ended after its save had failed")
    else:
        sys.__unraisablehook__(unraisable)


def _thread_failed(failure: threading.ExceptHookArgs) -> None:
    if isinstance(failure.exc_value, OSError):  # such as in the thread of TensorBoard's writer
        logging.warning("%s: %s", failure.thread, failure.exc_value)
    else:
        threading.__excepthook__(failure)
