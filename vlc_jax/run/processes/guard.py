"""A process of several: run in a child, whose end gets the exit code and the line of its cause.

When a process of a run is lost, JAX aborts the others (SIGABRT, 134) from a thread of its own,
where nothing can be caught. So this parent, which computes nothing, waits for the child, says why
it ended, and passes signals on.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from types import FrameType

from vlc_jax.errors import ExitCode
from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.stores import fetch
from vlc_jax.run import startup, terminal
from vlc_jax.run.processes import peers
from vlc_jax.run.processes.preemption import FORWARDED

POLL_SECONDS = 0.1
_INDEX: dict[int, int] = {}  # pid of the child -> index of its process, once that is known
PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def guard(workdir: Path | str, coordinator: str, lost_seconds: float) -> None:
    """Forks: returns in the child; the parent waits for its end and exits with its code.

    A child that crashes because another process is lost ends as `Peers` says; one that shows no
    sign of life for `lost_seconds` is killed, with ExitCode.HANG. Call it before JAX computes.
    """
    parent = os.getpid()
    for number, forwarded in FORWARDED.items():  # until the child listens by itself
        signal.signal(forwarded, partial(startup.end, number))
    child = os.fork()
    if child == 0:
        _begin_child(parent, workdir)
        return
    for number in FORWARDED:
        signal.signal(number, partial(_pass_on, child))
    status, is_hanging = _wait(child, workdir, lost_seconds)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        code = 128 - code  # as a shell reports a process that died of a signal
    if is_hanging:
        code = ExitCode.HANG
        _say(f"this process showed no sign of life for {lost_seconds:.0f} s and was ended")
    elif code in peers.CRASH_CODES and (said := _said(workdir, child)) is not None:
        code = said  # it crashed on its way out, as JAX does once process 0 is gone
    elif code in peers.CRASH_CODES:
        _leave(workdir, child, code)  # at once: if it is the first to be lost, the others wait
        code = _explain_crash(code, workdir, child, coordinator, lost_seconds)
    _leave(workdir, child, code)
    os._exit(code)


def _begin_child(parent: int, workdir: Path | str) -> None:
    if sys.platform == "linux":  # the parent's end is its end
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before that call
        os._exit(ExitCode.INFRASTRUCTURE)
    # A scheduler may signal every process of a job: what counts is what the parent passes on, once.
    for number in FORWARDED:
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):  # a workdir that cannot be written is refused later
        terminal.write_native_output_to(_native_output(workdir, os.getpid()))


def _native_output(workdir: Path | str, child: int) -> Path:
    """The file that the child's C++ libraries print to: on this host, if the run is in a store."""
    is_url = stores.is_url(workdir)
    folder = fetch.cache_folder(workdir, "workdirs") if is_url else Path(workdir)
    return folder / "logs" / f"native_{child}.txt"


def _pass_on(child: int, number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, FORWARDED[number])


def _wait(child: int, workdir: Path | str, lost_seconds: float) -> tuple[int, bool]:
    """The child's status, and whether it was killed since it showed no sign of life."""
    silence, waited = peers.Silence(), 0.0
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status, False
        time.sleep(POLL_SECONDS)
        waited += POLL_SECONDS
        if waited < peers.BEAT_SECONDS:
            continue
        presence = _presence(workdir, child)[1]
        if presence is not None:  # before its first sign of life it imports, or waits for storage
            silence.update(presence, waited)
        waited = 0.0
        if silence.seconds >= lost_seconds:
            os.kill(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1], True


def _presence(workdir: Path | str, child: int) -> tuple[int, peers.Presence | None]:
    """Index and presence of the child; the index may come from the cluster, known to it alone."""
    try:
        folder = peers.folder_of(workdir)
        names = [f"{_INDEX[child]:03d}.json"] if child in _INDEX else sorted(folder.list())
    except (OSError, ValueError):  # storage that fails is for the child to say
        return 0, None
    for name in names:
        stem = name.removesuffix(".json")
        if not stem.isdecimal():  # facts that processes compare
            continue
        found = peers.read(folder, int(stem))
        if found and found.pid == child and found.host == os.uname().nodename:
            _INDEX[child] = int(stem)
            return int(stem), found
    return 0, None


def _said(workdir: Path | str, child: int) -> int | None:
    """The exit code for which the child itself has given the reason."""
    mine = _presence(workdir, child)[1]
    return mine.code if mine is not None else None


def _explain_crash(
    code: int, workdir: Path | str, child: int, coordinator: str, lost_seconds: float
) -> int:
    """Says why the child crashed; returns the exit code for it."""
    mine = _presence(workdir, child)[1]
    logs = f"what JAX printed is in {_native_output(workdir, child)}"
    if mine is None or mine.phase != "running":
        _say(
            f"JAX could not connect the processes through --coordinator={coordinator}: is the port "
            f"free on the host of process 0, and reachable from here? {logs}"
        )
        return ExitCode.INFRASTRUCTURE
    cause = peers.find_cause(peers.folder_of(workdir), mine, lost_seconds)
    if cause is None:
        _say(f"JAX ended this process with {code}; {logs}")
        return ExitCode.INFRASTRUCTURE
    _say(cause[1])
    return cause[0]


def _leave(workdir: Path | str, child: int, code: int) -> None:
    """Writes the exit code to the file of the child, for the other processes."""
    index, mine = _presence(workdir, child)
    if mine is not None:
        left = mine._replace(code=code, beat=mine.beat + 1)
        with contextlib.suppress(OSError):
            peers.write(peers.folder_of(workdir), index, left)


def _say(message: str) -> None:
    print(f"Peer: {message}", file=sys.stderr, flush=True)
