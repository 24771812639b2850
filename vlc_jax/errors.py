"""How a run may end: exit codes a supervisor understands, and the errors that lead to them."""

import enum


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


class DivergedError(Exception):
    """A non-finite loss or gradient; the update was not applied."""


class PreemptedError(Exception):
    """SIGTERM or SIGINT arrived; the newest state is on disk."""
