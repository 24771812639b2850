"""The folders of saved steps, on a file system or in an object store: begun, committed, damaged.

A step is complete once it has a manifest.json with the sha256 of every file. On a file system it is
written under another name and renamed. A store has no rename: there the manifest, which is written
last and removed first, is the mark of a complete step.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from input_pipeline.fetch import STORE
from input_pipeline.stores import Folder, StoreError, folder

MANIFEST = "manifest.json"


def steps_of(workdir: Path) -> "LocalSteps | StoreSteps":
    """The steps of the run in `workdir`, those of a run in a store from the copy of its files."""
    if (workdir / STORE).is_file():
        return StoreSteps(folder(f"{(workdir / STORE).read_text()}/checkpoints"))
    return LocalSteps(workdir / "checkpoints")


class LocalSteps:
    """Steps in a folder of a file system."""

    def __init__(self, path: Path):
        self.path = Path(path).absolute()
        self.name = str(self.path)

    def exists(self) -> bool:
        return self.path.exists()

    def make(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    def steps(self) -> list[int]:
        """Steps with a complete folder, oldest first."""
        # isdecimal: "\u00b2" is a digit, and no number
        names = [path.name for path in self.path.iterdir()] if self.path.exists() else []
        return sorted(int(name) for name in names if name.isdecimal())

    def where(self, step: int) -> str:
        """Where Orbax finds a complete step."""
        return f"{self.path / str(step)}/state"

    def where_written(self, step: int) -> str:
        """Where Orbax writes a step."""
        return f"{self._writing(step)}/state"

    def begin(self, step: int) -> None:
        """Removes what a killed run or a failed try left of a step, and makes its folder."""
        shutil.rmtree(self._writing(step), ignore_errors=True)
        self._writing(step).mkdir()

    def commit(self, step: int) -> None:
        """Makes a written step a complete one."""
        # In this order: a folder with a bare number always has its manifest.
        write_manifest(self._writing(step))
        self._writing(step).rename(self.path / str(step))

    def remove(self, step: int) -> None:
        # Renamed first: a half-deleted folder must not carry a bare number.
        deleting = self.path / f".{step}.deleting"
        (self.path / str(step)).rename(deleting)
        shutil.rmtree(deleting)

    def clean(self) -> None:
        """Removes what interrupted saves and deletions left behind."""
        for pattern in (".*.writing", ".*.deleting"):
            for left_over in self.path.glob(pattern):
                shutil.rmtree(left_over, ignore_errors=True)

    def set_aside(self, step: int) -> None:
        """Renames a damaged step to <step>.damaged, so that it can be saved again."""
        aside = self.path / f"{step}.damaged"
        shutil.rmtree(aside, ignore_errors=True)  # one damaged copy of a step is enough
        (self.path / str(step)).rename(aside)

    def damage(self, step: int) -> str | None:
        """Description of the damage of a step, None if every file matches its manifest."""
        return damage(self.path / str(step))

    def _writing(self, step: int) -> Path:
        # The dot keeps an unfinished folder out of steps(), which reads bare numbers only.
        return self.path / f".{step}.writing"


class StoreSteps:
    """Steps in a folder of an object store."""

    def __init__(self, objects: Folder):
        self._objects, self.name = objects, objects.name

    def exists(self) -> bool:
        return bool(self.steps())

    def make(self) -> None:
        """Stores have no folders."""

    def steps(self) -> list[int]:
        names = [name.partition("/") for name in self._objects.list()]
        return sorted(int(step) for step, _, rest in names if rest == MANIFEST and step.isdecimal())

    def where(self, step: int) -> str:
        return f"{self.name}/{step}/state"

    where_written = where

    def begin(self, step: int) -> None:
        self._remove_all(f"{step}/")

    def commit(self, step: int) -> None:
        names = [name.removeprefix(f"{step}/") for name in self._objects.list(f"{step}/")]
        if not any(name.startswith("state/") for name in names):
            raise StoreError(f"{self.name}/{step} has no state after it was written")
        sums = {name: self._sha256(f"{step}/{name}") for name in sorted(names)}
        self._objects.write(f"{step}/{MANIFEST}", _manifest(sums))

    def remove(self, step: int) -> None:
        self._objects.remove(f"{step}/{MANIFEST}")
        self._remove_all(f"{step}/")

    def clean(self) -> None:
        complete = set(self.steps())
        begun = {name.partition("/")[0] for name in self._objects.list()}
        for step in begun:
            if step.isdecimal() and int(step) not in complete:
                self._remove_all(f"{step}/")

    def set_aside(self, step: int) -> None:
        """Copies a damaged step to <step>.damaged, so that it can be saved again."""
        self._remove_all(f"{step}.damaged/")
        for name in self._objects.list(f"{step}/"):
            aside = f"{step}.damaged/{name.removeprefix(f'{step}/')}"
            self._objects.copy(name, aside)
        self.remove(step)

    def damage(self, step: int) -> str | None:
        there = self._objects.list(f"{step}/")
        return _damage(
            lambda: self._objects.read(f"{step}/{MANIFEST}"),
            lambda name: self._sha256(f"{step}/{name}") if f"{step}/{name}" in there else None,
        )

    def _remove_all(self, prefix: str) -> None:
        self._objects.remove(*self._objects.list(prefix))

    def _sha256(self, name: str) -> str:
        return _digest(self._objects.pieces(name))


def write_manifest(path: Path) -> None:
    """Writes the sha256 of every file below `path` into its manifest.json, synced to disk."""
    files = sorted(file for file in path.rglob("*") if file.is_file())
    sums = {str(file.relative_to(path)): _sha256(file) for file in files}
    with (path / MANIFEST).open("wb") as file:
        file.write(_manifest(sums))
        file.flush()
        os.fsync(file.fileno())  # on disk before the rename that follows, also in a power cut


def damage(path: Path) -> str | None:
    """Description of the damage of a saved step, None if every file matches its manifest."""
    return _damage(
        (path / MANIFEST).read_bytes,
        lambda name: _sha256(path / name) if (path / name).is_file() else None,
    )


def _damage(read: Callable[[], bytes], sha256: Callable[[str], str | None]) -> str | None:
    try:
        sums = json.loads(read())["sha256"]
    except StoreError:  # the store fails, which says nothing of the step
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return f"no readable {MANIFEST} ({type(error).__name__})"
    if not isinstance(sums, dict) or not any(name.startswith("state/") for name in sums):
        return f"{MANIFEST} lists no state"
    for name, expected in sums.items():
        found = sha256(name)
        if found is None:
            return f"file {name} is missing"
        if found != expected:
            return f"file {name} does not match its sha256"
    return None


def _manifest(sums: dict[str, str]) -> bytes:
    return json.dumps({"sha256": sums}, indent=1).encode()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(pieces: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
