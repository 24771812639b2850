"""Mirror: copies a local folder to an object store while files in it are written.

Stores have no append: a file that grew is uploaded as a whole, as far as it was written then.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from vlc_jax.input_pipeline.stores import copies
from vlc_jax.input_pipeline.stores.any_path import StorePath

# Between two copies: a killed host loses the rows of at most this time.
SECONDS = 30.0
GROWING = (".jsonl", ".log")
# Copied last: readers that see them expect all other files.
LAST = ("DONE", "FAILED")


class Mirror:
    """Copies changed files below `local` to `remote`, in a thread and at each `flush`.

    includes: True for the names, relative to `local`, that are copied to the store.
    """

    def __init__(self, local: Path, remote: StorePath, includes: Callable[[str], bool]) -> None:
        self.local, self.remote, self._includes = local, remote, includes
        # name -> identity of the local file when it was copied
        self._copied: dict[str, tuple[int, ...]] = {}
        self._lock, self._is_closed, self._is_failing = threading.Lock(), threading.Event(), False

    def download(self, includes: Callable[[str], bool], prefix: str = "") -> None:
        """Copies the store's files into the local folder, which must be empty.

        prefix: restricts the listing.
        """
        names = list(filter(includes, self.remote.files(prefix)))
        copies.check_names(str(self.remote), names)
        with ThreadPoolExecutor(copies.THREADS) as pool:
            list(pool.map(self._download_file, names))

    def _download_file(self, name: str) -> None:
        path = self.local / name
        download(self.remote / name, path)
        if self._includes(name):
            self._copied[name] = _identity(path)

    def start(self) -> "Mirror":
        """Copies every SECONDS from now on."""
        threading.Thread(target=self._watch, daemon=True, name="mirror").start()
        return self

    def _watch(self) -> None:
        while not self._is_closed.wait(SECONDS):
            try:
                self.flush()
                self._is_failing = False
            except OSError as error:
                # once per failure: the next copy tries again
                if not self._is_failing:
                    logging.warning("not copied yet: %s", error)
                self._is_failing = True

    def flush(self) -> None:
        """Copies files that changed since the last flush; removes deleted ones from the store.

        Raises OSError if the store fails; files copied until then are not copied again.
        """
        with self._lock, ThreadPoolExecutor(copies.THREADS) as pool:
            paths = [path for path in self.local.rglob("*") if path.is_file()]
            names = {path.relative_to(self.local).as_posix(): path for path in paths}
            names = {
                name: path
                for name, path in names.items()
                if self._includes(name) and not path.name.endswith(".writing")
            }
            list(pool.map(self._remove, [name for name in self._copied if name not in names]))
            first = {name: path for name, path in names.items() if name not in LAST}
            list(pool.map(self._copy, first, first.values()))
            for name in LAST:
                if name in names:
                    self._copy(name, names[name])

    def close(self) -> None:
        """Stops; raises OSError if the last copy failed."""
        self._is_closed.set()
        self.flush()

    def _copy(self, name: str, path: Path) -> None:
        try:
            identity = _identity(path)
        except FileNotFoundError:  # removed meanwhile
            return
        if self._copied.get(name) == identity:
            return
        if name.endswith(GROWING):
            # Read at once: a client asks for the size first, and rows are appended meanwhile.
            (self.remote / name).write_bytes(path.read_bytes())
        else:
            (self.remote / name).upload(path)
        self._copied[name] = identity

    def _remove(self, name: str) -> None:
        (self.remote / name).unlink()
        del self._copied[name]


def download(there: StorePath, path: Path) -> None:
    """Copies an object to `path` atomically. Raises FileNotFoundError if it was removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    writing = path.with_name(f".{path.name}.writing")
    there.download(writing)
    writing.replace(path)


def _identity(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns
