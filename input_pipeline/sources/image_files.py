"""Image files of a table: are they there, how large are they, and which of them are one file."""

import collections
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from vlc_jax.input_pipeline.record import DataError

# Every fourth checked image is measured: another size means other pixels under the same name.
MEASURED = 4
# Checked images of a folder; if at least this many are missing, and none is there, it is wrong.
_MISSING_FOLDER = 5


def sizes(
    names: Iterable[str | DataError | None],
    candidate_paths: Callable[[str], list[Path]],
    folder_option: str,
) -> dict[str, int]:
    """Name -> size in bytes of some existing image files.

    names: of the checked images; None for a record without image, an error for a damaged one.
    candidate_paths: possible paths of a name, the likeliest first. folder_option: for messages.
    Raises DataError if none of the checked images of a folder exists: a wrong folder.
    """
    folders: set[Path] = set()  # with at least one image
    measured: dict[str, int] = {}
    missing: dict[Path, list[list[Path]]] = collections.defaultdict(list)
    damage: DataError | None = None
    for number, name in enumerate(names):
        if name is None:
            continue
        if isinstance(name, DataError):
            damage = damage or name
            continue
        paths = candidate_paths(name)
        size = next((size for size in map(size_of, paths) if size is not None), None)
        if size is None:
            missing[paths[0].parent].append(paths)
            continue
        folders.add(paths[0].parent)
        if number % MEASURED == 0:
            measured[name] = size
    if damage and not (folders or missing):
        raise DataError(f"none of the rows looked at names an image: {damage}") from damage
    for folder, images in missing.items():
        if folder not in folders and (len(images) >= _MISSING_FOLDER or not folders):
            raise DataError(
                f"none of {len(images)} image files looked at in {folder} is there; the first "
                f"was looked for as {' or '.join(map(str, images[0]))}; set {folder_option} to "
                "where the image names start"
            )
    return measured


class FileKeys:
    """`FileKeys(folder)(name)`: a text that all spellings of a file's path share, and no other file
    has.

    "./a.jpg", an absolute path and a path through a linked folder are one file; so are links to a
    file, and other letter cases where the disk ignores them, unless only_folders: then a file is
    known by its folder and name, for a table of a million rows on a slow disk. A file need not
    exist.
    """

    def __init__(self, folder: str | Path = "", only_folders: bool = False) -> None:
        self._start, self._only_folders = str(folder) or os.curdir, only_folders
        self._folders: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        name = name.replace("\\", "/")
        path = "" if self._only_folders else os.path.join(self._start, name)
        if path and (status := _status(path)) is not None:
            # size and time: some network disks use an inode twice
            identity = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
            return " ".join(map(str, identity))
        folder, slash, last = name.rpartition("/")
        if folder + slash not in self._folders:
            path = os.path.join(self._start, folder + slash, "")
            status, known = _status(path), os.path.abspath(path)
            self._folders[folder + slash] = f"{status.st_dev} {status.st_ino}" if status else known
        return f"{self._folders[folder + slash]}/{last}"


def size_of(path: Path) -> int | None:
    """Size of a file in bytes, None if it does not exist."""
    status = _status(path)
    return None if status is None else status.st_size


def _status(path: str | Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (OSError, ValueError):  # ValueError: half a surrogate pair in the name
        return None
