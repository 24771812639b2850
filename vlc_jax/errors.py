"""How a run may end: exit codes a supervisor understands, and the errors that lead to them."""

import difflib
import enum
from collections.abc import Iterable


class ExitCode(enum.IntEnum):
    """Process exit codes. A supervisor restarts on INFRASTRUCTURE, HANG and PREEMPTED only."""

    DONE = 0
    USAGE = 2  # wrong flag, config, shape or workdir: a person must change something
    DATA = 3  # unreadable or inconsistent data; the message names the record
    DIVERGED = 10  # non-finite loss; restarting would only repeat it
    OUT_OF_MEMORY = 20
    INFRASTRUCTURE = 30
    HANG = 31
    PREEMPTED = 75  # stopped by a signal, state saved; run the same command again


class UsageError(Exception):
    """A request that cannot be carried out: the rule, the value found, what to do."""


def known(kind: str, name: str, names: Iterable[str]) -> str:
    """`name` if it is one of `names`; else UsageError with the nearest one and all of them."""
    if name in names:
        return name
    listed = [str(other) for other in names]
    near = difflib.get_close_matches(str(name), listed, n=1, cutoff=0.0)
    hint = f"; did you mean {near[0]!r}?" if near else ";"
    raise UsageError(f"unknown {kind} {name!r}{hint} known: {', '.join(listed)}")


class WeightsError(Exception):
    """Weights that do not fit the model, or a file that does not hold weights."""


class DivergedError(Exception):
    """A non-finite loss or gradient; the update was not applied."""


class PreemptedError(Exception):
    """SIGTERM or SIGINT arrived; the newest state is on disk."""
