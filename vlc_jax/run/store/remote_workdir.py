"""RemoteWorkdir: a workdir in an object store, mirrored from a local folder."""

import os
import shutil
import sys

from vlc_jax.errors import ExitCode, UsageError
from vlc_jax.input_pipeline.stores import StoreError, any_path, fetch
from vlc_jax.input_pipeline.stores.mirror import Mirror
from vlc_jax.run.store.store_lock import StoreLock


class RemoteWorkdir:
    """The workdir at `url`, locked by process 0 until `close`; `path` is the local folder.

    Raises UsageError if the store cannot be used, or if a live job has the lock.
    """

    def __init__(self, url: str, index: int):
        self.url, self.path = url, fetch.cache_folder(url, f"workdirs/process_{index:03d}")
        logs = f"logs/host_{index:03d}.log", f"logs/stacks_{index:03d}.txt"
        self._lock: StoreLock | None = None
        try:
            remote = any_path.of(url)
            if index == 0:
                self._lock = StoreLock(remote, _end)
            # the store has the valid files: those of a killed job here may be of another run
            shutil.rmtree(self.path, ignore_errors=True)
            self.path.mkdir(parents=True)
            self._mirror = Mirror(
                self.path,
                remote,
                includes=_is_of_the_run if index == 0 else (lambda name: name in logs),
            )
            self._mirror.download(_is_of_the_run)
            (self.path / fetch.STORE).write_text(url)
        # not the user's fault, so no UsageError: a later start may succeed
        except StoreError:
            self._release()
            raise
        except (ValueError, OSError) as error:
            self._release()
            is_missing = isinstance(error, FileNotFoundError)
            reason = "the store has no such bucket, " if is_missing else ""
            raise UsageError(f"cannot use --workdir {url}: {reason}{error}") from error
        self._mirror.start()

    def flush(self) -> None:
        """Uploads the files written since the last time. Raises OSError if it fails."""
        self._mirror.flush()

    def close(self) -> None:
        """Uploads the last files and releases the lock; a failed upload prints a line."""
        try:
            self._mirror.close()
        except OSError as error:
            print(f"the last files of {self.url} are only in {self.path}: {error}", file=sys.stderr)
            # the client would try for a minute again; the next job takes the lock in 30 s
            self._release(is_reachable=False)
            return
        self._release()

    def _release(self, is_reachable: bool = True) -> None:
        if self._lock is not None:
            self._lock.release(is_reachable)


def _is_of_the_run(name: str) -> bool:
    return not name.startswith(fetch.APART) and name != fetch.STORE


def _end(message: str) -> None:
    """Ends a process that lost its lock and so must not write any more."""
    print(f"Peer: {message}", file=sys.stderr, flush=True)
    os._exit(ExitCode.INFRASTRUCTURE)
