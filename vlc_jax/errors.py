"""Exit codes of a run, and the exceptions that end it with one.

An exception with an attribute `exit_code` is for people and supervisors: its message is printed as
one line. Any other is a bug of ours and keeps its traceback.
"""

import difflib
import enum
import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class ExitCode(enum.IntEnum):
    """Exit codes of a process. A supervisor restarts on INFRASTRUCTURE, HANG and PREEMPTED only."""

    DONE = 0
    USAGE = 2  # wrong flag, config, shape or workdir: a person must change something
    DATA = 3  # unreadable or inconsistent data; the message names the record
    DIVERGED = 10  # non-finite loss; restarting would only repeat it
    OUT_OF_MEMORY = 20
    INFRASTRUCTURE = 30
    HANG = 31  # no progress within the limit; the stacks of all threads are in the logs
    PREEMPTED = 75  # stopped by a signal, state saved; run the same command again


# of an OSError: the storage is full or fails, and the program is right
STORAGE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
# of an OSError that names its file: something else lies there, or nobody may write there
PLACE_ERRORS = (
    errno.EISDIR,
    errno.ENOTDIR,
    errno.EEXIST,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.ENODEV,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
)


class UsageError(Exception):
    """An invalid request. Its message has the rule, the value found and what to do."""

    exit_code = ExitCode.USAGE


def known(kind: str, name: str, names: Iterable[str]) -> str:
    """Returns `name` if it is in `names`, else raises UsageError with the nearest one and all."""
    if name in names:
        return name
    listed = [str(other) for other in names]
    nearest = difflib.get_close_matches(str(name), listed, n=1, cutoff=0.0)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ";"
    raise UsageError(f"unknown {kind} {name!r}{hint} known: {', '.join(listed)}")


class WeightsError(Exception):
    """Weights that do not fit the model, or a file without weights."""

    exit_code = ExitCode.DATA


class PeerError(Exception):
    """Another process of the run is absent or lost."""

    exit_code = ExitCode.INFRASTRUCTURE


class DivergedError(Exception):
    """A non-finite loss or gradient, whose update was not applied, or non-finite parameters."""

    exit_code = ExitCode.DIVERGED


class PreemptedError(Exception):
    """SIGTERM or SIGINT arrived; the run saves its state and ends.

    Arguments: name of the signal; what was saved.
    """

    exit_code = ExitCode.PREEMPTED

    def __str__(self) -> str:
        return ", ".join(map(str, self.args))


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turns a ValueError of the input pipeline, which has no exit codes, into a UsageError."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


def exit_code(error: BaseException) -> ExitCode | None:
    """The exit code of an error a person or a supervisor can act on; None for a bug of ours."""
    # by its name: importing JAX takes a second, and reports do without it
    is_jax = type(error).__name__ == "JaxRuntimeError" and "RESOURCE_EXHAUSTED" in str(error)
    if is_jax or isinstance(error, MemoryError):
        return ExitCode.OUT_OF_MEMORY
    if isinstance(error, OSError) and error.errno in STORAGE_ERRORS:
        return ExitCode.INFRASTRUCTURE
    if isinstance(error, OSError) and error.errno in PLACE_ERRORS and error.filename:
        return ExitCode.USAGE
    code = getattr(error, "exit_code", None)
    return None if code is None else ExitCode(code)
