"""Folders in object stores (gs://, s3://, ..., by fsspec) and local ones; files, read with care."""

import errno
import json
import os
import re
import stat
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO

# URL scheme -> the package that fsspec needs for it.
KINDS = {"gs": "gcsfs", "s3": "s3fs", "az": "adlfs"}
# Schemes of the Hugging Face hub (stores.hub), whose repositories are only read.
HUBS = ("hf", "open_clip")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+._-]*)://")
_PIECE = 8 * 2**20  # bytes read at a time
MAX_DEPTH = 50  # of nested lists and objects; a config has 4 to 6
# Metadata that change with the content of an object; each store has one of them.
_TAGS = ("generation", "etag", "ETag", "md5Hash", "content_md5", "mtime", "last_modified")


class StoreError(OSError):
    """An unreachable or refusing store: errno EIO, with a message that names the store."""

    def __init__(self, message: str):
        super().__init__(errno.EIO, message)

    def __str__(self) -> str:
        return str(self.strerror)


class Object(NamedTuple):
    """An object in a listing.   size: bytes.   tag: changes whenever the content changes."""

    size: int
    tag: str


def is_url(path: object) -> bool:
    """True for a URL such as gs://bucket/folder. Raises ValueError for an unknown scheme."""
    match = _URL.match(path) if isinstance(path, str) else None
    if match and match[1] not in (*KINDS, *HUBS):
        known = ", ".join(f"{kind}://" for kind in (*KINDS, *HUBS))
        raise ValueError(f"{path}: addresses begin with {known}; or name a local path")
    return bool(match)


def is_hub(path: object) -> bool:
    """True for an address of the hub. Raises ValueError for an unknown scheme."""
    return is_url(path) and str(path).partition("://")[0] in HUBS


class LocalFolder:
    """A folder of a file system, with the methods of a StoreFolder that runs and shards need."""

    min_pause = 0.2

    def __init__(self, path: Path):
        self.path = path
        self.name = str(path)

    def list(self, prefix: str = "") -> dict[str, Object]:
        objects = {}
        for path in self.path.rglob("*"):
            name = path.relative_to(self.path).as_posix()
            if name.startswith(prefix) and not path.name.endswith(".writing") and path.is_file():
                # a run in progress may have removed it since the listing
                with suppress(FileNotFoundError):
                    objects[name] = self._object(path)
        return objects

    def stat(self, name: str) -> Object | None:
        path = self.path / name
        return self._object(path) if path.is_file() else None

    @staticmethod
    def _object(path: Path) -> Object:
        status = path.stat()
        return Object(status.st_size, f"{status.st_mtime_ns}.{status.st_ino}")

    def read(self, name: str) -> bytes:
        return read_file(self.path / name)

    def write(self, name: str, data: bytes) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, data)

    def remove(self, *names: str) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def pieces(self, name: str) -> Iterator[bytes]:
        with open_regular(self.path / name) as file:
            while piece := file.read(_PIECE):
                yield piece

    def below(self, name: str) -> "LocalFolder":
        return LocalFolder(self.path / name)


def open_regular(path: Path) -> BinaryIO:
    """Opens a regular file to read it.

    Raises OSError for anything else: a pipe would wait for a writer, a device may have no end.
    """
    # O_NONBLOCK: otherwise opening a pipe waits
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    number = errno.EISDIR if stat.S_ISDIR(mode) else errno.ENODEV
    raise OSError(number, "not a regular file", str(path))


def read_file(path: Path, limit: int | None = None) -> bytes:
    """The bytes of a regular file. Raises OSError as `open_regular`, and above `limit` bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if limit is not None and size > limit:
            raise OSError(errno.EFBIG, f"{size:,} bytes, where {limit:,} are many", str(path))
        return file.read()


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises ValueError for invalid JSON, and for JSON nested deeper than MAX_DEPTH, on which
    recursive functions would raise RecursionError later.
    """
    too_deep = f"it is nested deeper than {MAX_DEPTH} levels"
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError(too_deep) from error
    # Counting brackets is faster than walking the value, and most texts have few of them.
    opening = ("[", "{") if isinstance(text, str) else (b"[", b"{")
    if sum(map(text.count, opening)) > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise ValueError(too_deep)
    return value


def _depth(value: Any, above: int = 0) -> int:
    """Depth of nested lists and objects, counted up to MAX_DEPTH + 1."""
    if not isinstance(value, dict | list) or above > MAX_DEPTH:
        return above
    inner = value.values() if isinstance(value, dict) else value
    return max((_depth(item, above + 1) for item in inner), default=above + 1)


def replace(path: Path, data: bytes) -> None:
    """Writes a file atomically, by a rename: a reader never sees half of it."""
    writing = path.with_name(f".{path.name}.writing")
    # left by a killed process, or a link that points elsewhere
    writing.unlink(missing_ok=True)
    with writing.open("xb") as file:
        file.write(data)
    writing.replace(path)


@contextmanager
def replacing(path: Path, end: str = ".partial") -> Iterator[TextIO]:
    """A text file that replaces `path` when it is complete and on the disk, even after a crash.

    end: of its name until then; a unique one if several processes write it.
    """
    partial = path.with_name(path.name + end)
    # left by a killed process, or a link that points elsewhere
    partial.unlink(missing_ok=True)
    with partial.open("x", encoding="utf-8") as file:
        yield file
        file.flush()
        # before the rename: a power cut must not reorder them
        os.fsync(file.fileno())
    partial.replace(path)


class StoreFolder:
    """Objects of an object store below a URL, by names relative to it ("a/b.json").

    A write is atomic and visible to all readers at once. There is no rename, no append and no lock;
    locks are built from `create`. Methods raise FileNotFoundError for a missing object, StoreError
    if the store fails.   min_pause: seconds between writes of one object, as stores ask for.
    """

    min_pause = 1.0

    def __init__(self, url: str):
        self.name = url.rstrip("/")
        self._files, self._root = _file_system(self.name)
        # The store's md5 of an upload is compared with ours: gcsfs sends the bytes between
        # multipart boundaries, which the content may contain, and appends a line break, which may
        # merge with one of the content.
        self._checked = {"consistency": "md5"} if self.name.startswith("gs://") else {}

    def __reduce__(self) -> tuple[Any, ...]:
        return StoreFolder, (self.name,)

    def list(self, prefix: str = "") -> dict[str, Object]:
        """All objects whose names start with a prefix."""
        base, _, rest = prefix.rpartition("/")
        root = self._path(base) if base else self._root
        with _errors(self.name):
            try:
                options = {"prefix": rest} if rest else {}
                entries = self._files.find(root, detail=True, **options)
            except FileNotFoundError:
                return {}
        skip = len(self._root) + 1
        return {
            path[skip:]: _object(facts)
            for path, facts in entries.items()
            if path[skip:].startswith(prefix) and len(path) > skip and facts["type"] == "file"
        }

    def folders(self) -> set[str]:
        """Names of the immediate subfolders, without listing their content."""
        with _errors(self.name):
            try:
                entries = self._files.ls(self._root, detail=True)
            except FileNotFoundError:
                return set()
        paths = [facts["name"].rstrip("/") for facts in entries if facts["type"] == "directory"]
        return {path.rpartition("/")[2] for path in paths}

    def stat(self, name: str) -> Object | None:
        """None if there is no such object."""
        with _errors(self.name):
            try:
                facts = self._files.info(self._path(name))
            except FileNotFoundError:
                return None
        return _object(facts) if facts["type"] == "file" else None

    def read(self, name: str, start: int | None = None, stop: int | None = None) -> bytes:
        """The bytes from `start` to `stop`; None: of all, to the end."""
        with _errors(self.name):
            return self._files.cat_file(self._path(name), start=start, end=stop)

    def write(self, name: str, data: bytes) -> None:
        with _errors(self.name):
            self._files.pipe_file(self._path(name), data, **self._checked)

    def create(self, name: str, data: bytes) -> bool:
        """Writes a new object; returns False and writes nothing if it exists."""
        with _errors(self.name):
            try:
                self._files.pipe_file(self._path(name), data, mode="create", **self._checked)
            except FileExistsError:
                return False
        return True

    def remove(self, *names: str) -> None:
        """Removes objects; ignores missing ones."""
        for name in names:
            with _errors(self.name), suppress(FileNotFoundError):
                self._files.rm_file(self._path(name))

    def copy(self, name: str, to: str) -> None:
        with _errors(self.name):
            self._files.cp_file(self._path(name), self._path(to))

    def upload(self, path: Path, name: str) -> None:
        with _errors(self.name):
            self._files.put_file(str(path), self._path(name), **self._checked)

    def download(self, name: str, path: Path) -> None:
        with _errors(self.name):
            self._files.get_file(self._path(name), str(path))

    def pieces(self, name: str) -> Iterator[bytes]:
        with _errors(self.name), self._files.open(self._path(name), "rb") as file:
            while piece := file.read(_PIECE):
                yield piece

    def below(self, name: str) -> "StoreFolder":
        return StoreFolder(f"{self.name}/{name}")

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


Folder = LocalFolder | StoreFolder


def folder(path: str | os.PathLike[str]) -> Folder:
    """The folder at a URL or a local path.

    Raises ValueError for an address of the hub, or if the package for the URL's scheme is not
    installed.
    """
    if is_hub(path):
        raise ValueError(
            f"{path}: repositories of the hub are copied whole, and not written to; name a local "
            "folder here (vlc-jax export --push writes to the hub)"
        )
    return StoreFolder(str(path)) if is_url(path) else LocalFolder(Path(path))


def _file_system(url: str) -> tuple[Any, str]:
    import fsspec

    # gcsfs hands whole objects to aiohttp, which recommends pieces
    warnings.filterwarnings("ignore", "Sending a large body", ResourceWarning)
    kind = url.partition("://")[0]
    for name in KINDS:
        # Orbax lists with another file system instance, which must see other processes' writes
        fsspec.config.conf.setdefault(name, {})["use_listings_cache"] = False
    try:
        files, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise ValueError(
            f"{url}: {kind}:// needs the package {KINDS[kind]}: pip install {KINDS[kind]}"
        ) from error
    return files, root.rstrip("/")


def _object(facts: Mapping[str, Any]) -> Object:
    tag = next((f"{name} {facts[name]}" for name in _TAGS if facts.get(name)), "")
    return Object(int(facts["size"]), tag)


@contextmanager
def _errors(where: str) -> Iterator[None]:
    """Context manager: converts the errors of a store's client to a StoreError with its name."""
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except Exception as error:
        text = str(error).strip().splitlines()
        raise StoreError(f"{where}: {text[0] if text else type(error).__name__}") from error
