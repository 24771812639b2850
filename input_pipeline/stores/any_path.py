"""Files on a disk or in an object store, where they are: read in parts, written whole.

`AnyPath` is a Path or, for an address such as gs://bucket/00000.tar, a StorePath, which has the
methods of a Path that are needed here; the functions take both. Unlike `fetch.local` nothing is
copied: a worker of a cluster reads the bytes of its records alone.
"""

import dataclasses
import errno
import fnmatch
import json
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple

from vlc_jax.input_pipeline import stores

# bytes; a gap between two parts that is read with them costs less than a second request
_GAP = 1 << 16
# bytes that one request of a file's reader gets from a store
_BLOCK = 1 << 20
_PIECE = 8 * 2**20  # bytes of `pieces`
_LARGEST = 1 << 28  # bytes of a JSON file; one of skipped records may have millions
# objects whose sizes are looked up one by one, and not in a listing
_FEW = 8
# Metadata that change with the content of an object; each store has one of them.
_TAGS = ("generation", "etag", "ETag", "md5Hash", "content_md5", "mtime", "last_modified")


class Stamp(NamedTuple):
    """Size and version of a file or object.

    size: bytes.   tag: changes whenever the content changes.
    """

    size: int
    tag: str


@dataclasses.dataclass(frozen=True, order=True)
class StorePath:
    """An object, or a folder of objects, in an object store (by fsspec); its methods are a Path's.

    An object that is written appears whole, to all readers at once. There is no rename, no append
    and no lock; locks are built from `create`. Methods raise FileNotFoundError for a missing
    object, StoreError if the store fails.
    """

    address: str

    def __str__(self) -> str:
        return self.address

    def __truediv__(self, name: str) -> "StorePath":
        return StorePath(f"{self.address}/{name}")

    @property
    def name(self) -> str:
        return PurePosixPath(self.address).name

    @property
    def stem(self) -> str:
        return PurePosixPath(self.address).stem

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.address).suffix

    @property
    def parent(self) -> "StorePath":
        return StorePath(self.address.rpartition("/")[0])

    def with_suffix(self, suffix: str) -> "StorePath":
        return self.parent / f"{self.stem}{suffix}"

    def absolute(self) -> "StorePath":
        return self

    def stamp(self) -> Stamp:
        with self._store() as (store, path):
            facts = store.info(path)
        if facts["type"] != "file":
            raise FileNotFoundError(errno.ENOENT, "there is no such object", str(self))
        return _stamp(facts)

    def exists(self) -> bool:
        """False for a folder."""
        return find(self) is not None

    is_file = exists

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Nothing: a store has no folders without objects."""

    def files(self, prefix: str = "") -> dict[str, Stamp]:
        """All objects below this folder whose names relative to it begin with a prefix."""
        base, _, rest = prefix.rpartition("/")
        with self._store() as (store, path):
            options = {"prefix": rest} if rest else {}
            found = {}
            with suppress(FileNotFoundError):
                found = store.find(f"{path}/{base}".rstrip("/"), detail=True, **options)
        return {
            name[len(path) + 1 :]: _stamp(facts)
            for name, facts in found.items()
            if name.startswith(f"{path}/{prefix}")
            and len(name) > len(path) + 1
            and facts["type"] == "file"
        }

    def folders(self) -> set[str]:
        """Names of the immediate subfolders, without listing their content."""
        found = []
        with self._store() as (store, path), suppress(FileNotFoundError):
            found = store.ls(path, detail=True)
        paths = [facts["name"].rstrip("/") for facts in found if facts["type"] == "directory"]
        return {path.rpartition("/")[2] for path in paths}

    def iterdir(self) -> Iterator["StorePath"]:
        """The objects directly in this folder, sorted by name."""
        return self.glob("*")

    def glob(self, pattern: str) -> Iterator["StorePath"]:
        names = sorted(name for name in self.files(pattern.partition("*")[0]) if "/" not in name)
        return (self / name for name in fnmatch.filter(names, pattern))

    def sizes(self, names: Iterable[str]) -> dict[str, int]:
        """Sizes in bytes of those of the objects in this folder that exist."""
        names = [*names]
        known = self.files() if len(names) > _FEW else {name: find(self / name) for name in names}
        return {name: stamp.size for name in names if (stamp := known.get(name)) is not None}

    def open(self, mode: str = "rb") -> BinaryIO:
        """The object, to be read from any position."""
        assert mode == "rb"
        from fsspec.spec import AbstractBufferedFile

        class Reader(AbstractBufferedFile):
            def _fetch_range(_, start: int, stop: int) -> bytes:  # noqa: N805
                return self.between(start, stop)

        return Reader(None, str(self), block_size=_BLOCK, size=self.stamp().size)

    def read_bytes(self) -> bytes:
        with self._store() as (store, path):
            return store.cat_file(path)

    def read_text(self, encoding: str) -> str:
        return self.read_bytes().decode(encoding)

    def between(self, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop`."""
        with self._store() as (store, path):
            return store.cat_file(path, start=start, end=stop)

    def read_parts(self, offsets_sizes: Sequence[int]) -> list[bytes]:
        """The bytes at (offset, size, offset, size, ...); parts side by side are one request."""
        spans = list(zip(offsets_sizes[::2], offsets_sizes[1::2], strict=True))
        used = [span for span in spans if span[1]]
        if not used:
            return [b"" for _ in spans]
        first, stop = min(used)[0], max(offset + size for offset, size in used)
        if stop - first > sum(size for _, size in used) + _GAP * len(used):
            return [self.between(offset, offset + size) if size else b"" for offset, size in spans]
        data = self.between(first, stop)
        return [data[offset - first :][:size] if size else b"" for offset, size in spans]

    def write_bytes(self, data: bytes) -> None:
        with self._store() as (store, path):
            store.pipe_file(path, data, **self._checked)

    def create(self, data: bytes) -> bool:
        """Writes a new object; returns False and writes nothing if it exists."""
        with self._store() as (store, path), suppress(FileExistsError):
            store.pipe_file(path, data, mode="create", **self._checked)
            return True
        return False

    def touch(self) -> None:
        self.write_bytes(b"")

    def copy(self, to: "StorePath") -> None:
        with self._store() as (store, path):
            store.cp_file(path, _file_system(to.address)[1])

    def unlink(self, missing_ok: bool = False) -> None:
        """A missing object is ignored."""
        with self._store() as (store, path), suppress(FileNotFoundError):
            store.rm_file(path)

    def upload(self, file: Path) -> None:
        """Writes the object from a file."""
        with self._store() as (store, path):
            store.put_file(str(file), path, **self._checked)

    def download(self, file: Path) -> None:
        with self._store() as (store, path):
            store.get_file(path, str(file))

    @property
    def _checked(self) -> dict[str, str]:
        """Options that compare the store's md5 of an upload with ours: gcsfs sends the bytes
        between multipart boundaries, which the content may contain, and appends a line break, which
        may merge with one of the content."""
        return {"consistency": "md5"} if self.address.startswith("gs://") else {}

    @contextmanager
    def _store(self) -> Iterator[tuple[Any, str]]:
        """Context manager: the file system and the path in it; all errors become a StoreError."""
        store, path = _file_system(self.address)
        try:
            yield store, path
        except (FileNotFoundError, FileExistsError):
            raise
        except Exception as error:
            text = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise stores.StoreError(f"{self}: {text}") from error


def _file_system(address: str) -> tuple[Any, str]:
    """The file system of an address, which fsspec keeps, and the path in it.

    Raises ValueError without the store's package.
    """
    import fsspec

    kind = address.partition("://")[0]
    # gcsfs hands whole objects to aiohttp, which recommends pieces
    warnings.filterwarnings("ignore", "Sending a large body", ResourceWarning)
    # Orbax lists with another file system instance, which must see other processes' writes
    fsspec.config.conf.setdefault(kind, {})["use_listings_cache"] = False
    try:
        store, path = fsspec.core.url_to_fs(address)
    except ImportError as error:
        package = stores.KINDS[kind]
        raise ValueError(
            f"{address}: {kind}:// needs the package {package}: pip install {package}"
        ) from error
    return store, path.rstrip("/")


def _stamp(facts: dict[str, Any]) -> Stamp:
    tag = next((f"{name} {facts[name]}" for name in _TAGS if facts.get(name)), "")
    return Stamp(int(facts["size"]), tag)


AnyPath = Path | StorePath


def of(path: str | os.PathLike[str]) -> AnyPath:
    """A Path, or a StorePath for an address.

    Raises ValueError for one of the hub, whose files are copied, and without the store's package.
    """
    if not stores.is_url(path):
        return Path(path)
    if stores.is_hub(path):
        raise ValueError(
            f"{path}: repositories of the hub are copied whole, and not written to; name a local "
            "folder here (vlc-jax export --push writes to the hub)"
        )
    address = str(path).rstrip("/")
    _file_system(address)
    return StorePath(address)


def find(path: AnyPath) -> Stamp | None:
    """The stamp of a file; None if there is none."""
    try:
        if isinstance(path, StorePath):
            return path.stamp()
        return _stamp_of_file(path) if path.is_file() else None
    except FileNotFoundError:
        return None


def files(folder: AnyPath, prefix: str = "") -> dict[str, Stamp]:
    """All files below a folder whose names relative to it begin with a prefix."""
    if isinstance(folder, StorePath):
        return folder.files(prefix)
    found = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        # a run in progress may have removed it since the listing
        if name.startswith(prefix) and not name.endswith(".writing") and (stamp := find(path)):
            found[name] = stamp
    return found


def _stamp_of_file(path: Path) -> Stamp:
    status = path.stat()
    return Stamp(status.st_size, f"{status.st_mtime_ns}.{status.st_ino}")


def content(path: AnyPath, limit: int | None = None) -> bytes:
    """The bytes of a file. Raises OSError unless it is a regular one, of `limit` bytes at most."""
    return path.read_bytes() if isinstance(path, StorePath) else stores.read_file(path, limit)


def pieces(path: AnyPath) -> Iterator[bytes]:
    """The bytes of a file, one piece after the other."""
    with opened(path) as file:
        while piece := file.read(_PIECE):
            yield piece


def write(path: AnyPath, data: bytes) -> None:
    """Writes a file at once; makes its folder."""
    if isinstance(path, StorePath):
        path.write_bytes(data)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    stores.replace(path, data)


def read(path: AnyPath, offsets_sizes: Sequence[int]) -> list[bytes]:
    """The bytes at (offset, size, offset, size, ...). Raises OSError."""
    if isinstance(path, StorePath):
        return path.read_parts(offsets_sizes)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return [
            os.pread(descriptor, size, offset)
            for offset, size in zip(offsets_sizes[::2], offsets_sizes[1::2], strict=True)
        ]
    finally:
        os.close(descriptor)


@contextmanager
def drafts(targets: Sequence[AnyPath], end: str = ".partial") -> Iterator[list[Path]]:
    """Files on this machine to be `put` at their targets; removed at the end.

    end: of their names, which are beside those of targets on a disk; a unique one if several
    processes write them.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [
            target.with_name(f"{target.name}{end}")
            if isinstance(target, Path)
            else Path(folder) / target.name
            for target in targets
        ]
        try:
            yield paths
        finally:
            for path in paths:
                path.unlink(missing_ok=True)


def put(draft: Path, path: AnyPath) -> None:
    """Gives a file on this machine its path, at once; on a disk by a rename. Raises OSError."""
    if isinstance(path, StorePath):
        path.upload(draft)
    else:
        os.replace(draft, path)


def opened(path: AnyPath) -> BinaryIO:
    """The file, to be read from any position. Raises OSError unless it is a regular one."""
    return path.open("rb") if isinstance(path, StorePath) else stores.open_regular(path)


def read_json(path: AnyPath) -> Any:
    """The value in a JSON file. Raises OSError for one that is missing, large or no regular file,
    ValueError for any other content, or one that is nested deeply."""
    return stores.parse_json(content(path, _LARGEST))


def write_json(path: AnyPath, document: Any, end: str = ".partial", **options: Any) -> None:
    """Writes a JSON file at once. end: see `stores.replacing`.   options: of json.dumps."""
    if isinstance(path, StorePath):
        path.write_bytes(json.dumps(document, **options).encode())
        return
    with stores.replacing(path, end) as file:
        json.dump(document, file, **options)
