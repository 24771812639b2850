"""Heartbeats of the processes of one run: all present, the same program, none lost.

Each process rewrites a file WORKDIR/processes/NNN.json every second (every five in an object
store), on storage that all processes share. Without a network connection between processes, this
works while JAX connects, compiles or hangs. Process 0 reads all files and writes its findings into
its file, which the others read.
"""

import contextlib
import json
import logging
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from vlc_jax.errors import ExitCode, PeerError, UsageError
from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.stores import StoreError, any_path
from vlc_jax.input_pipeline.stores.any_path import AnyPath

BEAT_SECONDS = 1.0
STORE_BEAT_SECONDS = 5.0  # in an object store, which bills every write
STORE_PAUSE = 1.0  # at least, between two writes of an object
JOIN_SECONDS = 0.2  # between two beats, until all processes have started
# threads: a store answers after about 50 ms
READERS = 16
REMIND_SECONDS = 10.0  # between two lines about the same wait
# process 0 reads the code, writes its findings, the others read them, and their watchdogs check
ANNOUNCE_BEATS = 4
GRACE_SECONDS = 10.0  # for the main thread to end by itself once a process is lost
# Exit codes whose cause all processes share: the others end with the same code. After any other
# end, such as a signal or a bug, starting again may help.
SHARED_CODES = (
    ExitCode.USAGE,
    ExitCode.DATA,
    ExitCode.DIVERGED,
    ExitCode.OUT_OF_MEMORY,
    ExitCode.HANG,
    ExitCode.PREEMPTED,
)

# The shell's codes of SIGABRT, SIGSEGV and SIGBUS, by which JAX ends when another process is lost
CRASH_CODES = (134, 139, 135)


class Presence(NamedTuple):
    """Heartbeat of a process: the content of its file.

    start: random id of this start of the process.   beat: counter that grows while it is alive.
    phase: waiting | connecting | running.   code: its exit code; None while it is alive.
    findings: of process 0: `absent` (indices, until all have started), `starts` (of all
      processes, from then on), `lost` ([code, message]) and `differences` (name -> message, "" if
      all processes agree).
    """

    start: str
    beat: int
    host: str
    pid: int
    phase: str = "waiting"
    code: int | None = None
    findings: Mapping[str, Any] = {}


def folder_of(workdir: Path | str) -> AnyPath:
    """The folder of the heartbeat files of a run."""
    return any_path.of(workdir) / "processes"


def read(folder: AnyPath, index: int) -> Presence | None:
    """Heartbeat of a process; None if its file is missing or unreadable."""
    try:
        content = stores.parse_json(any_path.content(folder / _file(index)))
        return Presence(**content)
    except (OSError, ValueError, TypeError):
        return None


def write(folder: AnyPath, index: int, presence: Presence) -> None:
    """Writes the heartbeat file of a process."""
    content = json.dumps(presence._asdict()) + "\n"
    any_path.write(folder / _file(index), content.encode())


def _file(index: int) -> str:
    return f"{index:03d}.json"


class Silence:
    """Time since the last heartbeat of a process.

    Only seconds in which the observing process was awake count: after being suspended, or waiting
    for storage, it must not take the others for dead.
    """

    def __init__(self) -> None:
        self._last: tuple[str, int] | None = None
        self.seconds, self.is_alive = 0.0, False

    def update(self, presence: Presence | None, seconds: float) -> None:
        """Compares a heartbeat with the last one, read `seconds` earlier."""
        now = presence and (presence.start, presence.beat)
        # the first file is no sign of life: it may be left over from an earlier start
        if now is None or now == self._last or self._last is None:
            self.seconds += seconds
        else:
            self.seconds, self.is_alive = 0.0, True
        self._last = now or self._last


class Peers:
    """Watches the other processes of a run, on a thread from `start` to `stop`.

    A process is lost after a non-zero exit code, or `lost_seconds` without a heartbeat. This
    process then ends, too: by itself within GRACE_SECONDS, otherwise the thread ends it, with one
    line that names the lost process.
    """

    def __init__(self, workdir: Path | str, index: int, count: int, lost_seconds: float):
        """workdir: a local path, or the address of a folder in an object store."""
        self.folder, self.index, self.count = folder_of(workdir), index, count
        self.lost_seconds, self._workdir = lost_seconds, workdir
        self._beat = min(STORE_BEAT_SECONDS, lost_seconds / 4)
        self._beat = self._beat if stores.is_url(workdir) else BEAT_SECONDS
        self._pause = max(JOIN_SECONDS, STORE_PAUSE if stores.is_url(workdir) else 0.0)
        self._mine = Presence(uuid.uuid4().hex, 0, socket.gethostname(), os.getpid())
        self._starts: list[str] | None = None  # of all processes, once all have started
        self._silence = {i: Silence() for i in (range(count) if index == 0 else (0,))}
        self._leader: Presence | None = None
        self._lock, self._is_over = threading.RLock(), threading.Event()
        self._is_ending = False  # by its watchdog

    def start(self) -> "Peers":
        """Starts heartbeats and watching. Raises UsageError if a live process has this index."""
        try:
            self._refuse_live_process()
            for name in any_path.files(self.folder, f"{self.index:03d}."):
                if name != _file(self.index):  # facts of an earlier start
                    (self.folder / name).unlink(missing_ok=True)
            self._write()
        except OSError as error:
            # not the user's fault: a later start may succeed
            if isinstance(error, StoreError):
                raise
            raise UsageError(f"cannot write to {self.folder}: {error.strerror or error}") from error
        threading.Thread(target=self._watch, daemon=True, name="peers").start()
        return self

    def _refuse_live_process(self) -> None:
        old, silence = read(self.folder, self.index), Silence()
        if old is None or old.code is not None:
            return
        # without an exit code it was killed, or is alive: wait for beats
        for _ in range(3):
            silence.update(read(self.folder, self.index), self._beat)
            if silence.is_alive:
                raise UsageError(
                    f"process {self.index} of a run in {self._workdir} is running already, on host "
                    f"{old.host} with pid {old.pid}; stop it, or choose another --workdir"
                )
            time.sleep(self._beat)

    def _write(self) -> None:
        write(self.folder, self.index, self._mine)

    def _set(self, **fields: Any) -> None:
        with self._lock:
            self._mine = self._mine._replace(beat=self._mine.beat + 1, **fields)
            self._write()

    def enter(self, phase: str) -> None:
        """Sets the phase of this process."""
        self._set(phase=phase)

    def join(self, seconds: float) -> None:
        """Waits until all processes have started.

        Raises PeerError after `seconds`, with the absent processes.
        """
        waited, last_line = 0.0, 0.0
        while not self._all_started():
            absent = self._absent()
            if waited >= seconds:
                raise PeerError(
                    f"{len(absent)} of {self.count} processes did not start within {seconds:.0f} "
                    f"s: {_listed(absent)}. All need the same --workdir, on storage that they "
                    f"share ({self.folder})"
                )
            if waited - last_line >= REMIND_SECONDS:
                last_line = waited
                print(
                    f"waiting for {len(absent)} of {self.count} processes in {self.folder}: "
                    f"{_listed(absent)}; {seconds - waited:.0f} s left",
                    file=sys.stderr,
                    flush=True,
                )
            time.sleep(JOIN_SECONDS)
            waited += JOIN_SECONDS

    def _all_started(self) -> bool:
        with self._lock:
            if self.index and self._silence[0].is_alive:
                if (code := self._leader.code) is not None:
                    raise PeerError(f"process 0 ended with {code} before all processes had started")
                starts = self._leader.findings.get("starts", [])
                self._starts = starts if self._mine.start in starts else None
            return self._starts is not None

    def _absent(self) -> list[int]:
        with self._lock:
            if self.index and self._silence[0].is_alive:
                return self._leader.findings.get("absent", [])
            return [i for i, silence in self._silence.items() if not silence.is_alive]

    def agree(self, name: str, facts: Mapping[str, Any], differences: Callable) -> None:
        """Barrier that compares the facts of all processes with those of process 0.

        Raises UsageError on all processes if one differs.
        name: part of a file name.   differences: two facts -> lines that describe how they differ.
        """
        # through JSON, as the other processes read them
        facts = json.loads(json.dumps(facts, default=str))
        content = json.dumps({"start": self._mine.start, "facts": facts})
        any_path.write(self.folder / f"{self.index:03d}.{name}.json", content.encode())
        if self.index == 0:
            message = self._compare(name, facts, differences)
            with self._lock:  # the watching thread writes `found`, too
                messages = {**self._differences(), name: message}
                self._set(findings={**self._mine.findings, "differences": messages})
            # time for the others to read it before this process ends
            if message:
                time.sleep(2 * self._beat)
        # the thread ends the process if one is lost
        while name not in self._differences():
            time.sleep(BEAT_SECONDS / 10)
        if message := self._differences()[name]:
            raise UsageError(message)

    def _compare(self, name: str, facts: Any, differences: Callable) -> str:
        for index in range(1, self.count):
            file = f"{index:03d}.{name}.json"
            while (other := _read_facts(self.folder, file, self._starts[index])) is None:
                time.sleep(self._beat / 10)
            if lines := differences(facts, other):
                headline = f"process {index} has another {name} than process 0 (0 -> {index})"
                return "\n  ".join([f"{headline}:", *lines])
        return ""

    def _differences(self) -> Mapping[str, str]:
        with self._lock:
            leader = self._mine if self.index == 0 else self._leader
            return leader.findings.get("differences", {}) if leader else {}

    def lost(self, seconds: float = 0.0) -> tuple[int, str] | None:
        """(exit code, message) if another process is lost, waiting up to `seconds` for it."""
        until = time.monotonic() + seconds
        while True:
            with self._lock:
                leader = self._mine if self.index == 0 else self._leader
                if leader and (loss := leader.findings.get("lost")) and self._starts:
                    return loss[0], loss[1]
                if self.index and self._starts and (loss := self._judge(0, self._leader)):
                    return loss
            if time.monotonic() >= until:
                return None
            time.sleep(BEAT_SECONDS / 10)

    def say_end(self, code: int, line: str) -> None:
        """Prints why this process ends, once, and writes its exit code.

        The main thread or the watching thread calls it first. The parent reads the code and then
        does not explain a crash on the way out.
        """
        with self._lock:
            if self._mine.code is not None:
                return
            print(line, file=sys.stderr, flush=True)
            with contextlib.suppress(OSError):
                self._set(code=code)

    def announce(self, code: int) -> None:
        """Writes that this process will end with `code`, and waits until the others have read it.

        JAX aborts them as soon as process 0 is gone, before they could write their stacks.
        """
        self._is_ending = True
        with contextlib.suppress(OSError):
            self._set(code=code)
        time.sleep(ANNOUNCE_BEATS * self._beat)

    def stop(self) -> None:
        """Stops watching; the parent of this process writes its exit code."""
        self._is_over.set()

    def _watch(self) -> None:
        seconds = self._pause
        # the pool of `_look` takes nothing more once the main thread has ended
        while not self._is_over.wait(seconds) and threading.main_thread().is_alive():
            # failing storage is reported by the saves
            with contextlib.suppress(OSError):
                self._look(seconds)
            seconds = self._beat if self._starts else self._pause
            if (lost := self.lost()) and not (self._ends_by_itself() or self._is_ending):
                self.say_end(lost[0], f"Peer: {lost[1]}")
                logging.info("%s", lost[1])  # a warning would be on the terminal twice
                os._exit(lost[0])

    def _ends_by_itself(self) -> bool:
        until = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < until:
            if self._is_over.wait(min(self._beat, GRACE_SECONDS)):
                return True
            # beats go on: its guard or process 0 would take it for lost, and the others read the
            # findings of process 0
            with contextlib.suppress(OSError):
                self._look(self._beat)
        return False

    def _look(self, seconds: float) -> None:
        """Reads the files of the watched processes and rewrites its own."""
        others = [i for i in self._silence if i != self.index]
        with ThreadPoolExecutor(min(READERS, max(len(others), 1))) as pool:
            seen = dict(zip(others, pool.map(partial(read, self.folder), others), strict=True))
        with self._lock:  # the main thread writes the file, too
            for index, presence in seen.items():
                self._silence[index].update(presence, seconds)
            if self.index:
                self._leader = seen[0]
            self._set(findings={} if self.index else self._findings(seen))

    def _findings(self, seen: Mapping[int, Presence | None]) -> dict[str, Any]:
        """`Presence.findings` of process 0, for all processes."""
        findings = dict(self._mine.findings)
        self._silence[0].is_alive = True
        if self._starts is None:
            findings["absent"] = self._absent()
            if not findings["absent"]:
                self._starts = [self._mine.start, *(seen[i].start for i in sorted(seen))]
                findings["starts"] = self._starts
        elif "lost" not in findings:
            judged = [self._judge(index, presence) for index, presence in seen.items()]
            if any(judged):
                findings["lost"] = next(filter(None, judged))
        return findings

    def _judge(self, index: int, presence: Presence | None) -> tuple[int, str] | None:
        silent = self._silence[index].seconds >= self.lost_seconds
        return judge(index, presence, self._starts, self.lost_seconds if silent else None)


def judge(
    index: int, presence: Presence | None, starts: Sequence[str], silent: float | None
) -> tuple[int, str] | None:
    """(exit code, line) of the other processes if process `index` is lost, otherwise None.

    starts: of all processes.   silent: seconds without a heartbeat if too many, otherwise None.
    """
    name = f"process {index} of {len(starts)}"
    again = "; this one cannot go on without it: run the same command again"
    if presence is not None and presence.start != starts[index]:
        return ExitCode.INFRASTRUCTURE, f"{name} was started again{again}"
    if presence is not None:
        name += f" (host {presence.host}, pid {presence.pid})"
        if presence.code in SHARED_CODES:
            return presence.code, f"{name} ended with {presence.code}, and so does this one"
        if presence.code is not None:
            ended = (ExitCode.INFRASTRUCTURE, f"{name} ended with {presence.code}{again}")
            return ended if presence.code else None
    if silent is None:
        return None
    line = f"{name} has shown no sign of life for {silent:.0f} s{again}"
    return ExitCode.INFRASTRUCTURE, line


def find_cause(folder: AnyPath, mine: Presence, lost_seconds: float) -> tuple[int, str] | None:
    """(exit code, message) of the process whose loss crashed this one; None if no process is lost.

    Crashes of others and their ExitCode.INFRASTRUCTURE are effects, not causes.
    """
    leader = read(folder, 0)
    starts = leader.findings.get("starts", []) if leader else []
    others = {i: Silence() for i, start in enumerate(starts) if start != mine.start}
    waited = 0.0
    while waited < lost_seconds + BEAT_SECONDS:
        seen = {index: read(folder, index) for index in others}
        for index, silence in others.items():
            silence.update(seen[index], JOIN_SECONDS)
            effects = (0, ExitCode.INFRASTRUCTURE, *CRASH_CODES)
            if seen[index] and seen[index].code in effects:
                continue
            silent = lost_seconds if silence.seconds >= lost_seconds else None
            if loss := judge(index, seen[index], starts, silent):
                return loss
        if all(presence and presence.code is not None for presence in seen.values()):
            return None
        time.sleep(JOIN_SECONDS)
        waited += JOIN_SECONDS
    return None


def _read_facts(folder: AnyPath, file: str, start: str) -> Any | None:
    try:
        content = stores.parse_json(any_path.content(folder / file))
    except (OSError, ValueError):
        return None
    return content["facts"] if content["start"] == start else None


def _listed(indices: list[int]) -> str:
    numbers = ", ".join(map(str, indices[:8])) + (", ..." if len(indices) > 8 else "")
    return f"process{'es' if len(indices) > 1 else ''} {numbers}"
