"""Supervises a process of several: it runs in a child, whose parent explains how it ended.

When a process of a run is lost, JAX aborts the others (SIGABRT, 134) from another thread, where
Python cannot catch it. So this parent, which computes nothing, waits for the child, prints why it
ended, sets the exit code, and forwards signals.
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
from vlc_jax.input_pipeline.stores import any_path, fetch
from vlc_jax.run import startup, terminal
from vlc_jax.run.processes import peers
from vlc_jax.run.processes.preemption import FORWARDED

POLL_SECONDS = 0.1
_INDEX: dict[int, int] = {}  # pid of the child -> its process index, once it is known
PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def guard(workdir: Path | str, coordinator: str, lost_seconds: float) -> None:
    """Forks: returns in the child; the parent waits for its end and exits with its code.

    If the child crashes because another process is lost, the code is the one of `peers.judge`. A
    child without a heartbeat for `lost_seconds` is killed, with ExitCode.HANG. Call it before JAX
    computes.
    """
    parent = os.getpid()
    # until the child installs its StopSignal
    for number, forwarded in FORWARDED.items():
        signal.signal(forwarded, partial(startup.end, number, True))
    child = os.fork()
    if child == 0:
        _begin_child(parent, workdir)
        return
    for number in FORWARDED:
        signal.signal(number, partial(_pass_on, child))
    status, is_hanging = _wait(child, workdir, lost_seconds)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        code = 128 - code  # the shell's code for a process killed by a signal
    if is_hanging:
        code = ExitCode.HANG
        _say(f"this process showed no sign of life for {lost_seconds:.0f} s and was ended")
    elif code in peers.CRASH_CODES and (written := _written_code(workdir, child)) is not None:
        # it crashed while exiting, as JAX does once process 0 is gone
        code = written
    elif code in peers.CRASH_CODES:
        # at once: the others may be waiting for this process
        _write_code(workdir, child, code)
        code = _explain_crash(code, workdir, child, coordinator, lost_seconds)
    _write_code(workdir, child, code)
    os._exit(code)


def _begin_child(parent: int, workdir: Path | str) -> None:
    # the kernel kills the child when the parent ends
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # the parent ended before that call
    if os.getppid() != parent:
        os._exit(ExitCode.INFRASTRUCTURE)
    # A scheduler may signal every process of a job: the child must get each signal once, forwarded.
    for number in FORWARDED:
        signal.signal(number, signal.SIG_IGN)
    # a workdir that cannot be written is refused later
    with contextlib.suppress(OSError):
        terminal.write_native_output_to(_native_output(workdir, os.getpid()))


def _native_output(workdir: Path | str, child: int) -> Path:
    """File for the output of the child's C++ libraries; on this host, if the run is in a store."""
    is_url = stores.is_url(workdir)
    folder = fetch.cache_folder(workdir, "workdirs") if is_url else Path(workdir)
    return folder / "logs" / f"native_{child}.txt"


def _pass_on(child: int, number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, FORWARDED[number])


def _wait(child: int, workdir: Path | str, lost_seconds: float) -> tuple[int, bool]:
    """(status of the child, whether it was killed for lack of a heartbeat)."""
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
        # before its first heartbeat it imports, or waits for storage
        if presence is not None:
            silence.update(presence, waited)
        waited = 0.0
        if silence.seconds >= lost_seconds:
            os.kill(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1], True


def _presence(workdir: Path | str, child: int) -> tuple[int, peers.Presence | None]:
    """(index, heartbeat) of the child.

    The files are searched by pid, since the index may come from the cluster, known to the child
    alone.
    """
    try:
        folder = peers.folder_of(workdir)
        names = [f"{_INDEX[child]:03d}.json"] if child in _INDEX else sorted(any_path.files(folder))
    except (OSError, ValueError):  # the child reports failing storage
        return 0, None
    for name in names:
        stem = name.removesuffix(".json")
        if not stem.isdecimal():  # a file of `Peers.agree`
            continue
        presence = peers.read(folder, int(stem))
        if presence and presence.pid == child and presence.host == os.uname().nodename:
            _INDEX[child] = int(stem)
            return int(stem), presence
    return 0, None


def _written_code(workdir: Path | str, child: int) -> int | None:
    """The exit code that the child wrote after printing its reason; None without one."""
    mine = _presence(workdir, child)[1]
    return mine.code if mine is not None else None


def _explain_crash(
    code: int, workdir: Path | str, child: int, coordinator: str, lost_seconds: float
) -> int:
    """Prints why the child crashed; returns the exit code for it."""
    mine = _presence(workdir, child)[1]
    logs = f"the output of JAX is in {_native_output(workdir, child)}"
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


def _write_code(workdir: Path | str, child: int, code: int) -> None:
    """Writes the exit code into the child's heartbeat file, for the other processes."""
    index, mine = _presence(workdir, child)
    if mine is not None:
        left = mine._replace(code=code, beat=mine.beat + 1)
        with contextlib.suppress(OSError):
            peers.write(peers.folder_of(workdir), index, left)


def _say(message: str) -> None:
    print(f"Peer: {message}", file=sys.stderr, flush=True)
