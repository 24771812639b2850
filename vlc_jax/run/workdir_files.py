"""Safe file helpers for workdirs of unknown origin.

Atomic replacement, new folders, no writes through symbolic links, no waiting
for pipes, and the lock against other jobs.
"""

import contextlib
import fcntl
import logging
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline import stores

# folders that a run writes to
FOLDERS = ("checkpoints", "evals", "interpolate", "logs", "pretrain", "processes", "tensorboard")
# Files and folders of which one is in every workdir; the lock is there before all others.
OF_A_RUN = ("lock", "env.json", "checkpoints", "evals", "events.jsonl", "logs", "processes")
# What people and launchers put into the folder of a run before it starts.
BESIDE_A_RUN = (".txt", ".log", ".out", ".err", ".sh", ".md", ".json", ".toml", ".yaml", ".yml")
# Config fields that may change when a run is resumed: none of them changes the trained parameters,
# beyond the rounding of sums in another order. mesh and input.loader are among them, since the
# order of data depends on (seed, step) only.
RESUMABLE = (
    "log_every",
    "checkpoint",
    "eval",
    "evals",
    "interpolate",
    "mesh",
    "microbatch",
    "model.remat",
    "model.scan_layers",
    "input.loader",
    "input.max_bad_share",
    "input.preview",
    "watchdog",
    "model.attention",
    "input.source_options.stage",
    "input.source_options.stage_gb",
)


def run_folder(path: Path) -> Path:
    """`path`, where a run may write: a new or empty folder, or one of a run.

    Raises ValueError for a file, and for a folder of something else, which a run would fill.
    """
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; name a new folder, or the folder of a run")
    if not path.exists() or any((path / name).exists() for name in OF_A_RUN):
        return path
    others = sorted(
        each.name
        for each in path.iterdir()
        if not each.name.startswith(".") and each.suffix not in BESIDE_A_RUN
    )
    if others:
        names = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        raise ValueError(
            f"{path} holds {names} and no run: a run would be mixed with these files; name a new "
            "folder, or the folder of a run"
        )
    return path


def check_entries(workdir: Path) -> None:
    """Raises UsageError for a pipe or device in a workdir, and for a linked folder.

    Reading a pipe or a device may never end, and a run would write through a link.
    """
    for path in special_files(workdir, only=FOLDERS):
        if path.is_dir():
            raise UsageError(
                f"{path} is a link to {os.path.realpath(path)}, and a run writes through no link: "
                "move that folder here, or use a --workdir that holds no link"
            )
        raise UsageError(f"{path} is not a regular file: a run reads no pipe or device; remove it")


def special_files(folder: Path, only: tuple[str, ...] | None = None) -> Iterator[Path]:
    """Pipes, sockets, devices, links to them, and links to folders, below a folder.

    only: subfolders to enter, and to report if they are links; None: all.
    """
    try:
        entries = [*os.scandir(folder)]
    except OSError:  # reported where it is read
        return
    for entry in entries:
        path, is_entered = Path(entry.path), only is None or entry.name in only
        if entry.is_dir(follow_symlinks=False):
            if is_entered:
                yield from special_files(path)
        elif os.path.isdir(path):
            if is_entered:
                yield path
        # of a link, its target; a dangling one is replaced when it is written
        elif os.path.exists(path) and not stat.S_ISREG(path.stat().st_mode):
            yield path


def without_link(path: Path) -> Path:
    """`path`, after removing a symbolic link there: a write would follow it out of the workdir."""
    if path.is_symlink():
        path.unlink()
    return path


def replace(path: Path, text: str) -> None:
    """Writes a text file atomically, by a rename: a reader never sees a partial file."""
    # "replace": UTF-8 refuses lone surrogates, which file names and captions may have.
    stores.replace(path, text.encode("utf-8", "replace"))


def check_new(out: Path) -> None:
    """Raises UsageError for a file, and for a folder with something in it."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UsageError(f"{out} exists already; name a new folder")


@contextlib.contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """A folder beside `out` that becomes `out` at the end; after an error or Ctrl-C it is removed.

    Raises UsageError if `out` exists and is no empty folder.
    """
    check_new(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        yield partial
        # mkdtemp makes a private folder
        partial.chmod(0o755)
        partial.rename(out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def lock(workdir: Path) -> TextIO:
    """The open lock file of a workdir, held until `unlock` or the end of the process.

    Raises UsageError, with the holder, if another job has locked the workdir.
    """
    # flock, not the existence of a file: the kernel releases it when the process ends, so that
    # a killed job leaves no lock behind. The content is for the error message only.
    try:
        file = without_link(workdir / "lock").open("a+", errors="replace")
    except OSError as error:
        raise UsageError(f"cannot write {workdir / 'lock'}: {error.strerror}") from error
    # opened with "a+": mode "w" would erase the holder's name before it is read
    file.seek(0)
    holder = file.read().strip()
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # removed by a job that was refused (`remove_unused`): no lock against the next job
        (workdir / "lock").stat()
    except OSError as error:
        file.close()
        raise UsageError(
            f"workdir {workdir} is in use by {holder or 'another job'}; "
            "wait for it, stop it, or choose another --workdir"
        ) from error
    if holder:
        logging.warning("recovered the lock of a job that died: %s", holder)
    file.truncate(0)
    file.write(f"host {socket.gethostname()} pid {os.getpid()}")
    file.flush()
    return file


def missing(workdir: Path, log: Path) -> list[Path]:
    """Files and folders that a new run creates for `workdir` and `log`, innermost first."""
    paths = (log, log.parent, workdir / "lock", workdir, *workdir.parents)
    return [path for path in paths if not path.exists()]


def remove_unused(workdir: Path, made: Iterable[Path]) -> None:
    """Removes the paths of `missing` if the run wrote nothing, as one whose config is refused."""
    if not any((workdir / name).exists() for name in ("config.json", "events.jsonl", "FAILED")):
        # a folder may hold files of others by now, or be gone
        with contextlib.suppress(OSError):
            for path in made:
                path.rmdir() if path.is_dir() else path.unlink()


def unlock(file: TextIO) -> None:
    """Releases the lock of a workdir."""
    # a lock file with content is of a killed job
    file.truncate(0)
    file.close()
