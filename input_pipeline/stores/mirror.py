"""Mirror: copies a local folder to an object store while files in it are written.

Stores have no append: the bytes that a growing file (.jsonl, .log) gained since the last copy
become a new object, FILE.parts/OFFSET; readers join consecutive parts.
"""

import logging
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from vlc_jax.input_pipeline.stores import Folder, Object

SECONDS = 30.0  # between two copies: a killed host loses the rows of at most this time
THREADS = 16
GROWING = (".jsonl", ".log")
LAST = ("DONE", "FAILED")  # copied last: readers that see them expect all other files
_PARTS = ".parts/"
_PART = re.compile(r"(.+\.(?:jsonl|log))\.parts/(\d{15})")  # file, offset
_MAX_PARTS = 200  # per file, half a second to read; more are merged into one


class Mirror:
    """Copies changed files below `local` to `remote`, in a thread and at each `flush`.

    includes: True for the names, relative to `local`, that are copied to the store.
    on_error: called with the error once per failure of the store; the next copy tries again.
    """

    def __init__(
        self,
        local: Path,
        remote: Folder,
        includes: Callable[[str], bool],
        on_error: Callable[[OSError], None] = lambda error: logging.warning(
            "not copied yet: %s", error
        ),
    ):
        self.local, self.remote = local, remote
        self._includes, self._on_error = includes, on_error
        # name -> identity and size of the local file when it was copied
        self._copied: dict[str, tuple[tuple[int, ...], int]] = {}
        self._parts: dict[str, list[int]] = {}  # name of a growing file -> offsets of its parts
        self._lock, self._is_closed, self._is_failing = threading.Lock(), threading.Event(), False

    def download(self, includes: Callable[[str], bool], prefix: str = "") -> None:
        """Copies the store's files into the local folder, which must be empty.

        prefix: restricts the listing.
        """
        listed = files(self.remote.list(prefix))
        included = {name: objects for name, objects in listed.items() if includes(name)}
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(self._download_file, included, included.values()))

    def _download_file(self, file: str, objects: list[str]) -> None:
        path = self.local / file
        download(self.remote, file, objects, path)
        if not self._includes(file):
            return
        if objects != [file]:
            self._parts[file] = [_offset(name) for name in objects]
        size = path.stat().st_size
        self._copied[file] = _identity(path, size), size

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
                if not self._is_failing:
                    self._on_error(error)
                self._is_failing = True

    def flush(self) -> None:
        """Copies files that changed since the last flush; removes deleted ones from the store.

        Raises OSError if the store fails; files copied until then are not copied again.
        """
        with self._lock, ThreadPoolExecutor(THREADS) as pool:
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
            size = path.stat().st_size
            identity = _identity(path, size)
        except FileNotFoundError:  # removed meanwhile
            return
        before, copied = self._copied.get(name, ((), 0))
        if name.endswith(GROWING):
            # same inode and not shorter: the file grew by appending
            is_same = before[:1] == identity[:1] and size >= copied and name in self._parts
            if is_same and size == copied:
                return
            if is_same and len(self._parts[name]) < _MAX_PARTS:
                self._append(name, path, copied, size)
            elif is_same:
                self._merge(name, path, size)
            else:
                self._write_anew(name, path, size)
        elif before != identity:
            self.remote.upload(path, name)
        self._copied[name] = identity, size

    def _append(self, name: str, path: Path, start: int, end: int) -> None:
        with path.open("rb") as file:
            file.seek(start)
            self.remote.write(_part(name, start), file.read(end - start))
        if start not in self._parts[name]:  # else the file was empty
            self._parts[name].append(start)

    def _merge(self, name: str, path: Path, size: int) -> None:
        """Rewrites the file as one part and removes the others."""
        old = self._parts[name][1:]
        # first: readers ignore the old parts once they do not continue the part before them
        self._append(name, path, 0, size)
        self.remote.remove(*(_part(name, offset) for offset in old))
        self._parts[name] = [0]

    def _write_anew(self, name: str, path: Path, size: int) -> None:
        """Replaces the file; at any moment the store has the old or the new one or a beginning."""
        old = self._parts.get(name, [])
        if size in old:  # that part would continue the new content
            self.remote.remove(*(_part(name, offset) for offset in reversed(old) if offset >= size))
        self._parts[name] = []
        self._append(name, path, 0, size)
        self.remote.remove(*(_part(name, offset) for offset in reversed(old) if offset))
        self.remote.remove(name)  # a plain object of that name, written by another program

    def _remove(self, name: str) -> None:
        parts = [_part(name, offset) for offset in reversed(self._parts.pop(name, []))]
        self.remote.remove(*(parts or [name]))
        del self._copied[name]


def files(objects: Mapping[str, Object]) -> dict[str, list[str]]:
    """File -> its objects: the object of that name, or the file's consecutive parts.

    A part that does not begin where the previous one ends belongs to an earlier state of the file.
    """
    by_file: dict[str, list[str]] = {}
    ends: dict[str, int] = {}
    for name in sorted(objects):
        part = _PART.fullmatch(name)
        if not part:
            by_file.setdefault(name, [name])
            continue
        file = part[1]
        if _offset(name) != ends.get(file, 0):
            continue
        # parts are newer than a plain object of that name
        before = by_file.get(file, []) if ends.get(file) is not None else []
        by_file[file] = [*before, name]
        ends[file] = _offset(name) + objects[name].size
    return by_file


def download(remote: Folder, file: str, objects: list[str], path: Path) -> None:
    """Copies a file to `path` atomically.

    Raises FileNotFoundError if the file changed since its objects were listed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    writing = path.with_name(f".{path.name}.writing")
    if objects == [file]:
        remote.download(file, writing)
    else:
        with writing.open("wb") as joined:
            for name in objects:
                if joined.tell() != _offset(name):
                    raise FileNotFoundError(f"{file} was written anew meanwhile")
                joined.write(remote.read(name))
    writing.replace(path)


def _offset(part: str) -> int:
    return int(part.rpartition("/")[2])


def _part(name: str, offset: int) -> str:
    return f"{name}{_PARTS}{offset:015d}"


def _identity(path: Path, size: int) -> tuple[int, ...]:
    status = path.stat()
    return status.st_ino, size, status.st_mtime_ns
