"""The processes of one run: all present, the same program, none lost.

Each keeps a file WORKDIR/processes/NNN.json, renewed every second (every five in an object store),
on the storage that all of them share. No process talks to another one, so it works while JAX
connects, compiles or hangs. Process 0 reads the files of all and writes in its own what it finds;
the others read that one.
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
from vlc_jax.input_pipeline.stores import Folder, StoreError
from vlc_jax.run import workdir_files

BEAT_SECONDS = 1.0
STORE_BEAT_SECONDS = 5.0  # in an object store, which bills every write
JOIN_SECONDS = 0.2  # between two beats, until all processes are there
READERS = 16  # threads: a store answers after some 50 ms
SAID_SECONDS = 10.0  # between two lines about the same wait
# process 0 reads it, writes what it found, the others read that, and their watchdogs look
ANNOUNCE_BEATS = 4
GRACE_SECONDS = 10.0  # for the main thread to end by itself once a process is lost
# A process that ended so has a reason that the others share: they end as it did. Any other end,
# a signal or a bug among them, is one that starting again may cure.
SHARED_CODES = (
    *(ExitCode.USAGE, ExitCode.DATA, ExitCode.DIVERGED, ExitCode.OUT_OF_MEMORY),
    *(ExitCode.HANG, ExitCode.PREEMPTED),
)

# SIGABRT, SIGSEGV and SIGBUS, as a shell reports them: JAX ends so when another process is lost
CRASH_CODES = (134, 139, 135)


class Presence(NamedTuple):
    """Content of the file of a process.

    start: random, another one after each start.   beat: a count that grows while it lives.
    phase: waiting | connecting | running.   code: its exit code; None while it lives.
    found: of process 0: `absent` (indices, until all are there), `starts` (those of all, from then
      on), `lost` ([code, message]) and `differences` (name -> message, "" where all agree).
    """

    start: str
    beat: int
    host: str
    pid: int
    phase: str = "waiting"
    code: int | None = None
    found: Mapping[str, Any] = {}


def folder_of(workdir: Path | str) -> Folder:
    """The folder in which the processes of a run keep their files."""
    return stores.folder(workdir).below("processes")


def read(folder: Folder, index: int) -> Presence | None:
    """The presence of a process; None if it never started, or its file is none."""
    try:
        content = workdir_files.parse_json(folder.read(_file(index)))
        return Presence(**content)
    except (OSError, ValueError, TypeError):
        return None


def write(folder: Folder, index: int, presence: Presence) -> None:
    """Writes the file of a process."""
    folder.write(_file(index), (json.dumps(presence._asdict()) + "\n").encode())


def _file(index: int) -> str:
    return f"{index:03d}.json"


class Silence:
    """Time without a sign of life of a process, in seconds that this one was awake: whoever was
    suspended, or waited for storage, must not accuse the others."""

    def __init__(self) -> None:
        self._last: tuple[str, int] | None = None
        self.seconds, self.is_alive = 0.0, False

    def update(self, presence: Presence | None, seconds: float) -> None:
        """Takes what was read, `seconds` after the last time."""
        now = presence and (presence.start, presence.beat)
        # a file that is there before anybody is seen to renew it may be of an earlier start
        if now is None or now == self._last or self._last is None:
            self.seconds += seconds
        else:
            self.seconds, self.is_alive = 0.0, True
        self._last = now or self._last


class Peers:
    """The other processes, watched by a thread from `start` to `stop`.

    Once one of them is lost, by an end that is not 0 or by `lost_seconds` without a sign of life,
    this process ends too: by itself within GRACE_SECONDS, else by the thread, with one line that
    names the lost one.
    """

    def __init__(self, workdir: Path | str, index: int, count: int, lost_seconds: float):
        """workdir: a local path, or the address of a folder in an object store."""
        self.folder, self.index, self.count = folder_of(workdir), index, count
        self.lost_seconds, self._workdir = lost_seconds, workdir
        self._beat = min(STORE_BEAT_SECONDS, lost_seconds / 4)
        self._beat = self._beat if stores.is_url(workdir) else BEAT_SECONDS
        self._pause = max(JOIN_SECONDS, self.folder.min_pause)
        self._mine = Presence(uuid.uuid4().hex, 0, socket.gethostname(), os.getpid())
        self._starts: list[str] | None = None  # of all processes, once all were there
        self._silence = {i: Silence() for i in (range(count) if index == 0 else (0,))}
        self._leader: Presence | None = None
        self._lock, self._is_over = threading.RLock(), threading.Event()
        self._is_ending = False  # by its watchdog

    def start(self) -> "Peers":
        """Takes the place of this process. Raises UsageError if a living process has it."""
        try:
            self._refuse_a_living_one()
            facts = self.folder.list(f"{self.index:03d}.")  # of an earlier start
            self.folder.remove(*(name for name in facts if name != _file(self.index)))
            self._write()
        except OSError as error:
            if isinstance(error, StoreError):  # which may be back when the run is started again
                raise
            raise UsageError(
                f"cannot write to {self.folder.name}: {error.strerror or error}"
            ) from error
        threading.Thread(target=self._watch, daemon=True, name="peers").start()
        return self

    def _refuse_a_living_one(self) -> None:
        old, silence = read(self.folder, self.index), Silence()
        if old is None or old.code is not None:
            return
        for _ in range(3):  # it did not say that it left: was it killed, or does it live?
            silence.update(read(self.folder, self.index), self._beat)
            if silence.is_alive:
                raise UsageError(
                    f"process {self.index} of a run in {self._workdir} lives already, on host "
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
        """Says what this process does from now on."""
        self._set(phase=phase)

    def join(self, seconds: float) -> None:
        """Waits until all processes are there. Raises PeerError naming the absent ones after
        `seconds`."""
        waited, said = 0.0, 0.0
        while not self._all_started():
            absent = self._absent()
            if waited >= seconds:
                raise PeerError(
                    f"{len(absent)} of {self.count} processes did not start within {seconds:.0f} "
                    f"s: {_listed(absent)}. All need the same --workdir, on storage that they "
                    f"share ({self.folder.name})"
                )
            if waited - said >= SAID_SECONDS:
                said = waited
                print(
                    f"waiting for {len(absent)} of {self.count} processes in {self.folder.name}: "
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
                    raise PeerError(f"process 0 ended with {code} before all processes were there")
                starts = self._leader.found.get("starts", [])
                self._starts = starts if self._mine.start in starts else None
            return self._starts is not None

    def _absent(self) -> list[int]:
        with self._lock:
            if self.index and self._silence[0].is_alive:
                return self._leader.found.get("absent", [])
            return [i for i, silence in self._silence.items() if not silence.is_alive]

    def agree(self, name: str, facts: Mapping[str, Any], differences: Callable) -> None:
        """Waits until all processes have come here; raises UsageError on all of them if the facts
        of one differ from those of process 0.

        name: of a file name.   differences: two facts -> lines that say how they differ.
        """
        # one form for all: what JSON makes of it
        facts = json.loads(json.dumps(facts, default=str))
        content = json.dumps({"start": self._mine.start, "facts": facts})
        self.folder.write(f"{self.index:03d}.{name}.json", content.encode())
        if self.index == 0:
            message = self._compare(name, facts, differences)
            with self._lock:  # the watching thread writes `found`, too
                found = {**self._differences(), name: message}
                self._set(found={**self._mine.found, "differences": found})
            if message:  # the others read it before this process ends
                time.sleep(2 * self._beat)
        while name not in self._differences():  # the thread ends the process if one is lost
            time.sleep(BEAT_SECONDS / 10)
        if message := self._differences()[name]:
            raise UsageError(message)

    def _compare(self, name: str, facts: Any, differences: Callable) -> str:
        for index in range(1, self.count):
            file = f"{index:03d}.{name}.json"
            while (other := _read_facts(self.folder, file, self._starts[index])) is None:
                time.sleep(self._beat / 10)
            if lines := differences(facts, other):
                said = f"process {index} has another {name} than process 0 (0 -> {index})"
                return "\n  ".join([f"{said}:", *lines])
        return ""

    def _differences(self) -> Mapping[str, str]:
        with self._lock:
            leader = self._mine if self.index == 0 else self._leader
            return leader.found.get("differences", {}) if leader else {}

    def lost(self, seconds: float = 0.0) -> tuple[int, str] | None:
        """Exit code and message once another process is lost, waiting up to `seconds` for it."""
        until = time.monotonic() + seconds
        while True:
            with self._lock:
                leader = self._mine if self.index == 0 else self._leader
                if leader and (found := leader.found.get("lost")) and self._starts:
                    return found[0], found[1]
                if self.index and self._starts and (found := self._judge(0, self._leader)):
                    return found
            if time.monotonic() >= until:
                return None
            time.sleep(BEAT_SECONDS / 10)

    def say_end(self, code: int, line: str) -> None:
        """Prints why this process ends, once, whoever finds it first: its main thread, the thread
        that watches, or the parent, which reads here that a crash on the way out was explained."""
        with self._lock:
            if self._mine.code is not None:
                return
            print(line, file=sys.stderr, flush=True)
            with contextlib.suppress(OSError):
                self._set(code=code)

    def announce(self, code: int) -> None:
        """Says that this process is about to end with `code`, and waits until the others have seen
        it: JAX aborts them as soon as process 0 is gone, before they could leave their stacks."""
        self._is_ending = True
        with contextlib.suppress(OSError):
            self._set(code=code)
        time.sleep(ANNOUNCE_BEATS * self._beat)

    def stop(self) -> None:
        """Stops watching; the parent of this process writes with what code it ended."""
        self._is_over.set()

    def _watch(self) -> None:
        seconds = self._pause
        while not self._is_over.wait(seconds):
            # full or failing storage is for the saves to say
            with contextlib.suppress(OSError):
                self._look(seconds)
            seconds = self._beat if self._starts else self._pause
            if (lost := self.lost()) and not (self._ends_by_itself() or self._is_ending):
                self.say_end(lost[0], f"Peer: {lost[1]}")
                logging.info("%s", lost[1])  # to the file; a warning would be said twice
                os._exit(lost[0])

    def _ends_by_itself(self) -> bool:
        until = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < until:
            if self._is_over.wait(min(self._beat, GRACE_SECONDS)):
                return True
            # it lives: else its guard, or a process 0, would take it for lost; and what process 0
            # finds is how the others learn of it
            with contextlib.suppress(OSError):
                self._look(self._beat)
        return False

    def _look(self, seconds: float) -> None:
        """Reads the files of the processes it watches, renews its own."""
        others = [i for i in self._silence if i != self.index]
        with ThreadPoolExecutor(min(READERS, max(len(others), 1))) as pool:
            seen = dict(zip(others, pool.map(partial(read, self.folder), others), strict=True))
        with self._lock:  # until it is written: the main thread writes, too
            for index, presence in seen.items():
                self._silence[index].update(presence, seconds)
            if self.index:
                self._leader = seen[0]
            self._set(found={} if self.index else self._find(seen))

    def _find(self, seen: Mapping[int, Presence | None]) -> dict[str, Any]:
        """The findings that process 0 writes for all processes."""
        found = dict(self._mine.found)
        self._silence[0].is_alive = True
        if self._starts is None:
            found["absent"] = self._absent()
            if not found["absent"]:
                self._starts = [self._mine.start, *(seen[i].start for i in sorted(seen))]
                found["starts"] = self._starts
        elif "lost" not in found:
            judged = [self._judge(index, presence) for index, presence in seen.items()]
            if any(judged):
                found["lost"] = next(filter(None, judged))
        return found

    def _judge(self, index: int, presence: Presence | None) -> tuple[int, str] | None:
        silent = self._silence[index].seconds >= self.lost_seconds
        return judge(index, presence, self._starts, self.lost_seconds if silent else None)


def judge(
    index: int, presence: Presence | None, starts: Sequence[str], silent: float | None
) -> tuple[int, str] | None:
    """Exit code of the other processes, and the line they print, if process `index` is lost.

    starts: of all processes.   silent: seconds without a sign of life, if those are too many.
    """
    name = f"process {index} of {len(starts)}"
    again = "; this one cannot go on without it: run the same command again"
    if presence is not None and presence.start != starts[index]:
        return ExitCode.INFRASTRUCTURE, f"{name} was started anew{again}"
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


def find_cause(folder: Folder, mine: Presence, lost_seconds: float) -> tuple[int, str] | None:
    """Exit code and message of the process whose loss made this one crash; None if there is none.

    Crashes of others and their ExitCode.INFRASTRUCTURE are effects, and no cause.
    """
    leader = read(folder, 0)
    starts = leader.found.get("starts", []) if leader else []
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
            if found := judge(index, seen[index], starts, silent):
                return found
        if all(presence and presence.code is not None for presence in seen.values()):
            return None
        time.sleep(JOIN_SECONDS)
        waited += JOIN_SECONDS
    return None


def _read_facts(folder: Folder, file: str, start: str) -> Any | None:
    try:
        content = workdir_files.parse_json(folder.read(file))
    except (OSError, ValueError):
        return None
    return content["facts"] if content["start"] == start else None


def _listed(indices: list[int]) -> str:
    shown = ", ".join(map(str, indices[:8])) + (", ..." if len(indices) > 8 else "")
    return f"process{'es' if len(indices) > 1 else ''} {shown}"
