"""A run's folder: one owner at a time, what ran, what happened, how it ended."""

import datetime
import fcntl
import importlib.metadata
import json
import logging
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import jax
from ml_collections import ConfigDict

from vlc_jax.errors import UsageError

PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain", "numpy", "pillow")
# Config fields that may differ between a run and its resumption: none of them changes what the
# parameters become.
RESUMABLE = (
    *("log_every", "checkpoint", "eval", "evals", "interpolate", "mesh", "platform"),
    *("input.loader", "input.max_bad_share", "input.preview"),
)
# Config fields that change what a trained state computes.
JUDGED = (
    *("model", "text", "lora", "frozen"),
    *("input.image_size", "input.crop", "input.eval_crop", "input.interpolation"),
    "input.normalisation",
)


class Workdir:
    """The folder of one run, locked against other jobs until `close`.

    Only process 0 writes the shared files; every process has its own log. Raises UsageError when
    the folder cannot be written or another live job holds it.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path).absolute()
        self.is_writer = jax.process_index() == 0
        try:
            (self.path / "logs").mkdir(parents=True, exist_ok=True)
            self._handler = _log_to(self.path / "logs" / f"host_{jax.process_index():03d}.log")
        except OSError as error:
            raise UsageError(
                f"cannot write to workdir {self.path}: {error.strerror}; choose another --workdir"
            ) from error
        self._lock = self._take_lock() if self.is_writer else None

    def _take_lock(self):
        """An flock dies with its process, so a lock left by a killed job is never in the way."""
        try:
            file = (self.path / "lock").open("a+")
        except OSError as error:
            raise UsageError(f"cannot write {self.path / 'lock'}: {error.strerror}") from error
        file.seek(0)
        holder = file.read().strip()
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise UsageError(
                f"workdir {self.path} is in use by {holder or 'another job'}; "
                "wait for it, stop it, or choose another --workdir"
            ) from error
        if holder:
            logging.warning("recovered the lock of a job that died: %s", holder)
        file.truncate(0)
        file.write(f"host {socket.gethostname()} pid {os.getpid()}")
        file.flush()
        return file

    def close(self) -> None:
        """Gives the folder free."""
        logging.getLogger().removeHandler(self._handler)
        self._handler.close()
        if self._lock is not None:
            self._lock.truncate(0)
            self._lock.close()

    def event(self, event: str, **facts: Any) -> None:
        """Appends one row to events.jsonl and says it in the log."""
        level = logging.WARNING if event in LOUD else logging.INFO
        logging.log(level, "%s %s", event, json.dumps(facts, default=str) if facts else "")
        if self.is_writer:
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            row = json.dumps({"time": now, "event": event, **facts}, default=str)
            with (self.path / "events.jsonl").open("a+b") as file:
                if file.tell() and not _ends_with_newline(file):
                    row = "\n" + row  # a killed run left half a row
                file.write(row.encode() + b"\n")

    def check_config(
        self,
        config: Mapping[str, Any],
        allow_change: bool,
        fields: Sequence[str] | None = None,
    ) -> None:
        """Compares `config` with that of the run which is to be resumed or judged.

        Raises UsageError with the differing fields when the config changed in a way that changes
        what is computed, unless `allow_change`. Of a run to be judged these are `fields`. A run
        that saved nothing is not resumed.
        """
        path = self.path / "config.json"
        if path.exists() and self._has_state():
            differences = config_diff(read_json(path), config)
            names = {difference: difference.split(":")[0] for difference in differences}
            if fields is None:
                refused = [d for d, name in names.items() if not _is_below(name, RESUMABLE)]
            else:
                refused = differences = [d for d, name in names.items() if _is_below(name, fields)]
            if refused and not allow_change:
                raise UsageError(
                    f"workdir {self.path} holds a run with another config:\n  "
                    + "\n  ".join(refused)
                    + "\nuse another --workdir, the old config, or --allow_config_change"
                )
            if differences:
                self.event("config_change", differences=differences)

    def claim(self, config: Mapping[str, Any]) -> None:
        """Writes config.json and removes the marks of how the run ended before."""
        if self.is_writer:
            (self.path / "FAILED").unlink(missing_ok=True)
            (self.path / "DONE").unlink(missing_ok=True)
            write_json(self.path / "config.json", config)

    def _has_state(self) -> bool:
        return any((self.path / "checkpoints").glob("[0-9]*"))

    def check_data(self, fingerprints: Mapping[str, str], allow_change: bool) -> None:
        """Compares the data with those the run started on (env.json), as `check_config` does."""
        path = self.path / "env.json"
        if not path.exists() or not self._has_state():
            return
        differences = config_diff(read_json(path).get("input", {}), fingerprints)
        if differences and not allow_change:
            raise UsageError(
                f"the data of the run in {self.path} changed:\n  "
                + "\n  ".join(differences)
                + "\nrestore the data, use another --workdir, or --allow_config_change"
            )

    def write_env(self, **facts: Any) -> None:
        """env.json: what ran, on what, with which versions."""
        if self.is_writer:
            write_json(self.path / "env.json", {**environment(), **facts})

    def finish(self, **facts: Any) -> None:
        """Marks the run as complete."""
        if self.is_writer:
            write_json(self.path / "DONE", facts)

    def fail(self, exit_code: int, reason: str) -> None:
        """Marks the run as failed; the next start with the same workdir removes the mark."""
        if self.is_writer:
            (self.path / "DONE").unlink(missing_ok=True)
            write_json(self.path / "FAILED", {"exit_code": exit_code, "reason": reason})


LOUD = frozenset(
    {
        *("batch_beyond_source", "bad_record", "config_change", "corrupt_checkpoint"),
        *("hard_images_missing", "nonfinite", "preempted"),
    }
)


def environment() -> dict[str, Any]:
    """Command, commit, hardware and package versions of this process."""
    repository = Path(__file__).resolve().parents[1]
    commit = _git(repository, "rev-parse", "HEAD")
    if commit and _git(repository, "status", "--porcelain", "--untracked-files=no"):
        commit += "-dirty"
    return {
        "command": " ".join([f"python -m {_module_name()}", *sys.argv[1:]]),
        "commit": commit,
        "hardware": {
            "platform": jax.default_backend(),
            "devices": sorted({d.device_kind for d in jax.devices()}),
            "device_count": jax.device_count(),
            "process_count": jax.process_count(),
            "cpu": f"{platform.machine()}, {os.cpu_count()} cores",
            "host": socket.gethostname(),
        },
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in PACKAGES},
        },
    }


def config_diff(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Lines "field: old -> new" for every leaf that differs, fields by their dotted path."""
    lines: list[str] = []
    for key in sorted({*old, *new}):
        before, after = old.get(key, "(absent)"), new.get(key, "(absent)")
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            lines += config_diff(before, after, f"{prefix}{key}.")
        elif _plain(before) != _plain(after):
            lines.append(f"{prefix}{key}: {before} -> {after}")
    return lines


class SavedConfig(ConfigDict):
    """A config.json. A field that it lacks raises UsageError: another version wrote it."""

    def __init__(self, content: Mapping[str, Any], path: Path):
        super().__init__(
            {k: SavedConfig(v, path) if isinstance(v, Mapping) else v for k, v in content.items()}
        )
        object.__setattr__(self, "_path", path)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("_"):
                raise
            raise UsageError(
                f"{self._path} has no field {name!r}: it is no config of a run, or another version "
                "of vlc_jax wrote it"
            ) from None


def saved_config(workdir: Path) -> ConfigDict:
    """The config of a run. Raises UsageError where there is none."""
    path = workdir / "config.json"
    if not path.exists():
        raise UsageError(f"{workdir} is not a workdir: it has no config.json")
    content = read_json(path)
    if not isinstance(content, Mapping):
        raise UsageError(f"{path} is no config: it holds no JSON object")
    return SavedConfig(content, path).lock()


def read_json(path: Path) -> Any:
    """Raises UsageError naming the file when it is not JSON."""
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise UsageError(f"{path} is not valid JSON ({error}); repair or remove it") from error


def write_json(path: Path, value: Any) -> None:
    """Writes all or nothing: a reader never sees half a file."""
    temporary = path.with_name(f".{path.name}.writing")
    temporary.write_text(json.dumps(value, indent=1, default=str) + "\n")
    temporary.replace(path)


def _is_below(field: str, groups: Sequence[str]) -> bool:
    return any(field == group or field.startswith(f"{group}.") for group in groups)


def _ends_with_newline(file: BinaryIO) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def _log_to(path: Path) -> logging.Handler:
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname).1s %(message)s"))
    logging.getLogger().addHandler(handler)
    return handler


def _plain(value: Any) -> Any:
    """What a value becomes in JSON, so that a tuple equals the list it was saved as."""
    return json.loads(json.dumps(value, default=str))


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _module_name() -> str:
    spec = sys.modules["__main__"].__spec__ if "__main__" in sys.modules else None
    return spec.name if spec else Path(sys.argv[0]).stem
