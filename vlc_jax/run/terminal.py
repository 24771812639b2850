"""The terminal of a run shows warnings of ours; libraries write to the log of the workdir alone."""

import faulthandler
import logging
import os
import sys
import threading
from pathlib import Path

from absl import logging as absl_logging


def quieten() -> None:
    """Sets the terminal up for a process of the command line.

    An error of ours is one line, printed where the process ends. A full disk would else print some
    thousand lines before it: Orbax logs the traceback of each thread that failed, TensorStore one
    for each array whose write ended after that.
    """
    handler = absl_logging.get_absl_handler()
    handler.setLevel(logging.WARNING)
    handler.python_handler.addFilter(_is_of_ours)
    # without the time, thread and file that absl writes before each: the log has them
    handler.python_handler.setFormatter(_PlainFormatter())
    logging.raiseExceptions = False  # a line that the full disk has no room for is left out
    sys.unraisablehook = _unraisable
    threading.excepthook = _thread_failed


def write_native_output_to(path: Path) -> None:
    """Leaves the terminal to Python: what C++ libraries print, such as the stacks of an abort of
    JAX, and the stacks of a crash, go to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    sys.stderr = open(os.dup(2), "w", buffering=1)  # noqa: SIM115 -- as long as the process
    os.dup2(file, 2)
    os.close(file)
    faulthandler.enable(2)
    absl_logging.get_absl_handler().python_handler.setStream(sys.stderr)


class _PlainFormatter(logging.Formatter):
    """The format "warning: MESSAGE"."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{record.levelname.lower()}: {super().format(record)}"


def _is_of_ours(record: logging.LogRecord) -> bool:
    # asyncio: of the loops in which Orbax writes; gcsfs: a traceback of each call it gives up
    return record.name not in ("asyncio", "gcsfs") and "orbax" not in Path(record.pathname).parts


def _unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    if str(unraisable.exc_value) == "Event loop is closed":
        logging.debug("a write of TensorStore ended after its save had failed")
    else:
        sys.__unraisablehook__(unraisable)


def _thread_failed(failure: threading.ExceptHookArgs) -> None:
    if isinstance(failure.exc_value, OSError):  # such as the thread that writes TensorBoard's files
        logging.warning("%s: %s", failure.thread, failure.exc_value)
    else:
        threading.__excepthook__(failure)
