"""Files of published sets from their owners: sizes first, then downloads that resume, unpacked."""

import contextlib
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.benchmarks.downloads import Download
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.stores import copies, hub, transfer, zips

RECORD = ".fetched.json"  # in ROOT: address -> sha256 and bytes of each file that was fetched
_ARCHIVES = ".archives"  # in ROOT: archives until they are unpacked
# Bytes of an unpacked archive of images per byte of the archive: photographs do not shrink.
_UNPACKED = 1.1


class Part(NamedTuple):
    """A file to fetch.   path: where it goes.   fetch: writes it to a path, returns its sha256."""

    source: Download
    url: str
    size: int
    path: Path
    fetch: Callable[[Path], str]


def archive(root: Path, source: Download) -> Path:
    """Path of the archive of a download until it is unpacked."""
    return root / _ARCHIVES / f"{source.to.replace('/', '_')}.zip"


def needed(
    root: Path, sources: Iterable[Download], lacking: Sequence[Path], knows_images: bool
) -> list[Download]:
    """The downloads of a set with files that it lacks.

    lacking: annotations or images that are not there; none for a set that is whole, or damaged.
    knows_images: the annotations are there, and so `lacking` has all missing images. Downloads
    without a file or folder in ROOT come before those that may not be whole.
    """
    if not lacking:
        return []
    ancestors = {each for path in lacking for each in (path, *path.parents)}
    candidates = [
        source
        for source in sources
        if not knows_images or root / (source.images or source.to) in ancestors
    ]
    absent = [
        source
        for source in candidates
        if not (root / source.to).exists() or archive(root, source).exists()
    ]
    return absent or [source for source in candidates if root / source.to in ancestors]


def parts(root: Path, source: Download) -> list[Part]:
    """The files of a download that are not there yet; asks the server for their sizes.

    Raises ValueError for an address without a file, StoreError if the server fails.
    """
    target = archive(root, source) if source.is_archive else root / source.to
    if not source.url.startswith("hf://"):
        size, tag = _ask(source.url)
        options = {"size": size, "tag": tag, "expected": source.digest}

        def fetch(path: Path) -> str:
            return transfer.download(source.url, path, **options)

        return [Part(source, source.url, size, target, fetch)]
    files = hub.wanted(hub.pinned(source.url))
    is_file = [*files] == [source.url.rpartition("/")[2]]
    by_path = {(target if is_file else target / name): file for name, file in files.items()}
    return [
        Part(source, f"{source.url}/{path.name}", file.size, path, file.fetch)
        for path, file in by_path.items()
        if not (path.is_file() and path.stat().st_size == file.size)
    ]


def _ask(url: str) -> tuple[int, str]:
    """Size of a file in bytes, and a tag of its content."""
    from huggingface_hub import get_session
    from huggingface_hub.utils import hf_raise_for_status

    def head() -> Mapping[str, str]:
        answer = get_session().head(url)
        hf_raise_for_status(answer)
        return answer.headers

    try:
        with transfer.errors(url):
            headers = transfer.ask(head)
    except stores.StoreError as error:
        answer = getattr(error.__cause__, "response", None)
        if answer is not None and answer.status_code in (403, 404, 410):
            reason = f"{answer.status_code} {answer.reason_phrase}"
            raise ValueError(f"{url}: the file is gone ({reason})") from error
        raise
    size = headers.get("Content-Length", "")
    if not re.fullmatch("[0-9]{1,15}", size):
        raise ValueError(f"{url}: the server does not say how large the file is")
    return int(size), headers.get("ETag") or headers.get("Last-Modified") or ""


def confirm(root: Path, parts: Sequence[Part], is_agreed: bool) -> bool:
    """Prints the files by origin with their sizes, and asks whether to fetch them.

    is_agreed: --yes. Raises StageError if they do not fit on the disk, ValueError if nobody is
    there to ask.
    """
    for source in dict.fromkeys(part.source for part in parts):
        source_parts = [part for part in parts if part.source == source]
        size = sum(part.size for part in source_parts)
        count = f"{len(source_parts):,} files, " if len(source_parts) > 1 else ""
        print(f"{source.to}: {count}{_bytes(size)} from {source.url}")
    total = sum(part.size for part in parts)
    unpacked = sum(part.size for part in parts if part.source.is_archive)
    copies.check_room("what is fetched", root, total + round(_UNPACKED * unpacked))
    if is_agreed:
        return True
    if not sys.stdin.isatty():
        raise ValueError(f"{_bytes(total)} are to be fetched to {root}: agree with --yes")
    question = f"fetch {_bytes(total)} to {root}? Their owners' licences apply. [y/N] "
    return input(question).strip().lower() in ("y", "yes")


def fetch(root: Path, parts: Iterable[Part]) -> None:
    """Fetches files, unpacks archives, and records the sha256 of each in ROOT/.fetched.json.

    A file of which an earlier start recorded another hash is kept, with a line that says so.
    Raises StoreError if a server fails or sends other bytes, StageError if the disk is too full,
    DataError for a damaged archive.
    """
    for part in parts:
        # an archive that was fetched whole, and not unpacked to the end
        if not (part.source.is_archive and part.path.is_file()):
            part.path.parent.mkdir(parents=True, exist_ok=True)
            sha256 = part.fetch(part.path)
            if part.path.is_symlink():  # into the cache of the hub, which is emptied now and then
                target = part.path.resolve()
                part.path.unlink()
                shutil.copyfile(target, part.path)
            _remember(root, part.url, sha256, part.size)
        if part.source.is_archive:
            print(f"unpacking {part.path.name} into {root / part.source.to}", file=sys.stderr)
            unpack(part.path, root / part.source.to)
            part.path.unlink()
    with contextlib.suppress(OSError):  # not empty, or never made
        (root / _ARCHIVES).rmdir()


def _remember(root: Path, url: str, sha256: str, size: int) -> None:
    path = root / RECORD
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError):
        record = {}
    record = record if isinstance(record, dict) else {}
    before = record.get(url, {}).get("sha256", sha256)
    if before != sha256:
        print(f"{url}: sha256 {sha256}, when it was fetched before {before}", file=sys.stderr)
    record[url] = {"sha256": sha256, "bytes": size}
    stores.replace(path, json.dumps(record, indent=1).encode())


def unpack(path: Path, folder: Path) -> None:
    """Unpacks a zip archive so that its files are in `folder`; files there are replaced.

    If all files of the archive are below a folder, or those of the set are in one named like
    `folder`, what is in it goes to `folder`.
    """
    partial = path.with_name(f"{path.name}.unpacked")
    shutil.rmtree(partial, ignore_errors=True)
    zips.unpack(path, partial)
    inner = partial / folder.name
    if not inner.is_dir():
        others = [each for each in partial.iterdir() if each.name != "__MACOSX"]
        inner = others[0] if len(others) == 1 and others[0].is_dir() else partial
    for file in [path for path in sorted(inner.rglob("*")) if path.is_file()]:
        to = folder / file.relative_to(inner)
        try:
            to.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise DataError(f"{error.filename} is a file where {path} has a folder") from error
        if to.is_dir():
            raise DataError(f"{to} is a folder where {path} has a file")
        # not a rename alone: folders of ROOT may be links to other disks
        shutil.move(file, to)
    shutil.rmtree(partial)


def _bytes(size: int) -> str:
    """A size for people, of files that are mostly of MB."""
    return next(
        (f"{size / unit:,.1f} {name}" for unit, name in ((1e9, "GB"), (1e6, "MB")) if size >= unit),
        f"{size / 1e3:,.1f} kB",
    )
