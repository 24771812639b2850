"""StoreLock: an exclusive lock of a folder in an object store, which has no locks.

Owners are numbered files lock/000001.json, lock/000002.json, ..., each created atomically (only if
it does not exist) and rewritten by its owner. The owner is the file with the highest number, until
its `is_over` is set. A job that finds another owner watches its file first: a live owner rewrites
it.
"""

import contextlib
import json
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.stores.any_path import StorePath

BEAT_SECONDS = 10.0
# Without a rewrite for so many beats an owner is dead.
SILENT_BEATS = 3


class StoreLock:
    """The lock of `folder`, held from construction until `release`.

    on_lost: called from a thread with a line once another job took the lock, which can happen only
    if this job could not rewrite its file for SILENT_BEATS.

    Raises UsageError if a live job has the lock.
    """

    def __init__(self, folder: StorePath, on_lost: Callable[[str], None]):
        self._folder, self._on_lost = folder, on_lost
        self._mine: dict[str, Any] = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "pid_space": _pid_space(),
            "start": uuid.uuid4().hex,
            "beat": 0,
            "is_over": False,
        }
        self._number, self._is_over = self._take(), threading.Event()
        threading.Thread(target=self._renew, daemon=True, name="lock").start()

    def release(self, is_reachable: bool = True) -> None:
        """Releases the lock; without writing so if the store is not reachable.

        The next job then waits for SILENT_BEATS.
        """
        self._is_over.set()
        if is_reachable:
            with contextlib.suppress(OSError):
                self._write(is_over=True)

    def _take(self) -> int:
        number = max(self._numbers(), default=0)
        holder = self._read(number) if number else None
        if holder is not None and not holder.get("is_over"):
            self._refuse_live_owner(number, holder)
            logging.warning("recovered the lock of a job that died: %s", _name(holder))
        created = self._object(number + 1).create(json.dumps(self._mine).encode())
        # A retried request whose first answer got lost is refused, although the file is ours.
        is_mine = created or (self._read(number + 1) or {}).get("start") == self._mine["start"]
        newest = max(self._numbers(), default=0)
        # another job was quicker
        if not is_mine or newest != number + 1:
            if is_mine:
                self._object(number + 1).unlink()
            self._refuse(self._read(newest) or {})
        for old in self._numbers():
            if old <= number:
                self._object(old).unlink()
        return number + 1

    def _refuse_live_owner(self, number: int, holder: dict[str, Any]) -> None:
        if holder.get("pid_space") == _pid_space() and not Path(f"/proc/{holder['pid']}").exists():
            return  # it was a process of this host and is gone
        seconds = BEAT_SECONDS * SILENT_BEATS
        logging.warning(
            "%s is locked by %s; waiting %.0f s to see whether it is alive",
            self._folder,
            _name(holder),
            seconds,
        )
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(BEAT_SECONDS / 10)
            now = self._read(number)
            if now is None or now.get("is_over"):
                return
            if now != holder:
                self._refuse(now)

    def _refuse(self, holder: dict[str, Any]) -> None:
        raise UsageError(
            f"workdir {self._folder} is in use by {_name(holder)}; wait for it, stop it, or "
            "choose another --workdir"
        )

    def _renew(self) -> None:
        while not self._is_over.wait(BEAT_SECONDS):
            # the store may be unreachable for a while; whether the lock is lost shows later
            with contextlib.suppress(OSError):
                newest = max(self._numbers(), default=0)
                if newest > self._number:
                    holder = _name(self._read(newest) or {})
                    self._on_lost(f"{holder} took {self._folder}, which this job lost")
                    return
                self._write(beat=self._mine["beat"] + 1)

    def _write(self, **fields: Any) -> None:
        self._mine |= fields
        self._object(self._number).write_bytes(json.dumps(self._mine).encode())

    def _numbers(self) -> list[int]:
        stems = [path.stem for path in (self._folder / "lock").iterdir()]
        return [int(stem) for stem in stems if stem.isdecimal()]

    def _read(self, number: int) -> dict[str, Any] | None:
        try:
            content = stores.parse_json(self._object(number).read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        return content if isinstance(content, dict) else None

    def _object(self, number: int) -> StorePath:
        return self._folder / f"lock/{number:06d}.json"


def _name(holder: dict[str, Any]) -> str:
    return f"host {holder.get('host')} pid {holder.get('pid')}"


def _pid_space() -> str:
    """Id of the boot and container, in which pids are unique; random if it is unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return uuid.uuid4().hex
