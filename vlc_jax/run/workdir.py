"""The workdir of a run: lock, config.json, env.json, events.jsonl, logs, DONE or FAILED."""

import contextlib
import datetime
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import jax
from ml_collections import ConfigDict

from vlc_jax.errors import STORAGE_ERRORS, UsageError
from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.stores import hub
from vlc_jax.run import workdir_files
from vlc_jax.run.environment import environment, modules
from vlc_jax.run.processes.peers import Peers
from vlc_jax.run.store.remote_workdir import RemoteWorkdir
from vlc_jax.run.store.step_folders import steps_of
from vlc_jax.run.workdir_files import RESUMABLE

TOKENIZER = "tokenizer"  # folder with the files of a saved model's tokenizer
LISTED_IMAGES = 3  # maximum number of images in a message
# Config fields that must not change when a run is evaluated: they change the model's scores.
EVAL_FIELDS = (
    "model",
    "text",
    "lora",
    "frozen",
    "input.image_size",
    "input.crop",
    "input.eval_crop",
    "input.interpolation",
    "input.normalisation",
    "input.question",
)


class Workdir:
    """The folder of one run, locked against other jobs until `close`.

    Only process 0 writes the shared files; every process has its own log. A run in an object store
    is written to a local folder, `path`; `flush` and a thread upload its files. Orbax writes the
    checkpoints into the store directly.

    path: local, or an address.   peers: the other processes of the run; None for a single process.
    name: the address, or the absolute path, for messages.
    Raises UsageError if the folder cannot be written or another running job has locked it.
    """

    def __init__(self, path: str | os.PathLike[str], peers: Peers | None = None):
        self._peers, self._remote = peers, None
        self.is_writer = jax.process_index() == 0
        if stores.is_url(path):
            self.name = str(path).rstrip("/")
            self._remote = RemoteWorkdir(self.name, jax.process_index())
            self.path = self._remote.path
        else:
            self.path = Path(path).absolute()
            self.name = str(self.path)
            workdir_files.check_entries(self.path)
        log = self.path / "logs" / f"host_{jax.process_index():03d}.log"
        is_alone = self._remote is None and peers is None
        self._made = workdir_files.missing(self.path, log) if is_alone else []
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            self._handler = _log_to(workdir_files.without_link(log))
        except OSError as error:
            raise UsageError(
                f"cannot write to workdir {self.path}: {error.strerror}; choose another --workdir"
            ) from error
        is_locked_here = self.is_writer and self._remote is None
        self._lock = workdir_files.lock(self.path) if is_locked_here else None
        self._is_incomplete = False

    @property
    def owns_files(self) -> bool:
        """True if this process may change shared files.

        Process 0 may; with a store every process may, in its own copy.
        """
        return self.is_writer or self._remote is not None

    def below(self, name: str) -> "Workdir":
        """The workdir of another run in a folder of this one."""
        return Workdir(f"{self.name}/{name}")

    def display_path(self, path: Path) -> str:
        """A path in the workdir for messages: below `name`, which may be an address."""
        return f"{self.name}/{path.relative_to(self.path)}"

    def flush(self) -> None:
        """Uploads new files if the run is in an object store. Raises OSError if the store fails."""
        if self._remote is not None:
            self._remote.flush()

    @property
    def stacks(self) -> Path:
        """File for the stacks of this process if it hangs."""
        return self.path / "logs" / f"stacks_{jax.process_index():03d}.txt"

    def lost(self) -> tuple[int, str] | None:
        """(exit code, message) if another process of the run is lost, otherwise None."""
        return self._peers.lost() if self._peers is not None else None

    def announce(self, exit_code: int) -> None:
        """Tells the other processes of the run, if any, that this one is about to end."""
        if self._peers is not None:
            self._peers.announce(exit_code)

    def close(self) -> None:
        """Releases the lock and closes the log; removes a new folder that has nothing else."""
        logging.getLogger().removeHandler(self._handler)
        # a full disk cannot take the last lines
        with contextlib.suppress(OSError):
            self._handler.close()
        if self._remote is not None:
            self._remote.close()
        workdir_files.remove_unused(self.path, self._made)
        if self._lock is not None:
            workdir_files.unlock(self._lock)

    def event(self, event: str, **fields: Any) -> None:
        """Appends a row to events.jsonl and to the log."""
        level = logging.WARNING if event in LOUD else logging.INFO
        logging.log(level, "%s %s", event, json.dumps(fields, default=str) if fields else "")
        if self.is_writer:
            now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            row = json.dumps({"time": now, "event": event, **fields}, default=str)
            with workdir_files.without_link(self.path / "events.jsonl").open("a+b") as file:
                if file.tell() and not _ends_with_newline(file):
                    # a killed run may have left a partial row
                    row = "\n" + row
                file.write(row.encode() + b"\n")

    def check_config(
        self,
        config: Mapping[str, Any],
        allow_change: bool,
        fields: Sequence[str] | None = None,
        check: Callable[[Mapping[str, Any], Path], None] = lambda saved, path: None,
    ) -> None:
        """Compares `config` with the config.json of the run that is resumed or evaluated.

        allow_change: log differences as an event instead of refusing them.
        fields: compare only these fields (evaluation); None: all (training). RESUMABLE may differ.
        check: refuses the config of another version, by a UsageError.
        Raises UsageError with the differing fields. Without a checkpoint nothing is resumed, and so
        nothing is compared.
        """
        path = self.path / "config.json"
        if path.exists() and self._has_state():
            saved = saved_config(self.path).to_dict()
            if not allow_change:
                check(saved, path)
            differences = config_diff(saved, config)
            refused = [d for d in differences if not _is_below(d.split(":")[0], RESUMABLE)]
            if fields is not None:
                refused = differences = differing_fields(saved, config, fields)
            headline = f"workdir {self.name} holds a run with another config"
            _refuse(refused, allow_change, headline, "use another --workdir, the old config")
            if differences:
                self.event("config_change", differences=differences)

    def claim(self, config: Mapping[str, Any]) -> None:
        """Writes config.json; removes DONE and FAILED of an earlier start."""
        if self.is_writer:
            (self.path / "FAILED").unlink(missing_ok=True)
            (self.path / "DONE").unlink(missing_ok=True)
            write_json(self.path / "config.json", config)

    def _has_state(self) -> bool:
        return bool(steps_of(self.path).steps())

    def check_data(self, fingerprints: Mapping[str, str], allow_change: bool) -> None:
        """Compares fingerprints of the data with env.json and with the other processes.

        Raises UsageError as `check_config` does.
        """
        if self._peers is not None:
            self._peers.agree("data", fingerprints, config_diff)
        if not (self.path / "env.json").exists() or not self._has_state():
            return
        differences = config_diff(saved_fingerprints(self.path), fingerprints)
        headline = f"the data of the run in {self.name} changed"
        _refuse(differences, allow_change, headline, "restore the data, use another --workdir")

    def check_images(self, sizes: Mapping[str, int], allow_change: bool) -> None:
        """Compares the sizes of some image files with env.json, as `check_config` does.

        Only files that existed both times: repairing a bad record does not change the data set.
        """
        path = self.path / "env.json"
        if not path.exists() or not self._has_state():
            return
        saved = read_object(path).get("image_sizes")
        saved = saved if isinstance(saved, Mapping) else {}
        common = saved.keys() & sizes.keys()
        lines = config_diff({k: saved[k] for k in common}, {k: sizes[k] for k in common})
        headline = (
            f"{len(lines)} of {len(common)} checked image files have other sizes than when the run "
            f"in {self.name} was last started, in bytes"
        )
        cures = "restore the images, use another --workdir"
        _refuse(lines[:LISTED_IMAGES], allow_change, headline, cures)

    def check_modules(self) -> None:
        """Compares the user's own modules with the other processes, and with env.json: a change
        since the last start is an event."""
        facts, path = modules(), self.path / "env.json"
        hashes = {name: each["sha256"] for name, each in facts.items()}
        if self._peers is not None:
            self._peers.agree("modules", hashes, config_diff)
        saved = read_object(path).get("modules") if path.exists() and self._has_state() else None
        before = saved if isinstance(saved, Mapping) else {}
        # a text, whatever the file has there
        changed = [x for x in hashes if x in before and hashes[x] not in str(before[x])]
        if changed:
            self.event("module_change", files=[facts[name]["file"] for name in changed])

    def write_env(self, **fields: Any) -> None:
        """Writes env.json: command and its folder, commit, versions and `fields`."""
        if self.is_writer:
            folder = {}
            with contextlib.suppress(OSError):  # of a folder that was removed
                folder = {"folder": os.getcwd()}
            write_json(self.path / "env.json", {**environment(), **folder, **fields})

    def finish(self, **fields: Any) -> None:
        """Writes DONE, the mark of a complete run."""
        if self.is_writer:
            write_json(self.path / "DONE", fields)
            self.flush()

    @contextlib.contextmanager
    def after_done(self) -> Iterator[None]:
        """Context manager after DONE: storage errors are printed, not raised."""
        try:
            yield
        except OSError as error:
            if error.errno not in STORAGE_ERRORS:
                raise
            # printed, since the log may be on the same storage
            if not self._is_incomplete:
                print(f"the run is done, but not all of its files: {error}", file=sys.stderr)
            self._is_incomplete = True

    def fail(self, exit_code: int, reason: str) -> None:
        """Writes FAILED with the reason; the next start in the same workdir removes it."""
        if self.is_writer:
            (self.path / "DONE").unlink(missing_ok=True)
            write_json(self.path / "FAILED", {"exit_code": exit_code, "reason": reason})
        self.flush()  # by every process, for its stacks


# Events that terminal and log show as warnings; the error that ends a run is printed separately.
LOUD = frozenset(
    {
        "batch_beyond_source",
        "bad_record",
        "config_change",
        "corrupt_checkpoint",
        "evaluation_left",
        "hard_images_missing",
        "loss_spike",
        "module_change",
        "save_retry",
    }
)


def _refuse(lines: Sequence[str], allow_change: bool, headline: str, cures: str) -> None:
    """Raises UsageError with the lines, if any, unless the user allows the change."""
    if lines and not allow_change:
        listed = "\n  ".join([f"{headline}:", *lines])
        raise UsageError(f"{listed}\n{cures}, or --allow_config_change")


def config_diff(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Lines "field: old -> new" of every differing leaf; fields are dotted paths."""
    lines: list[str] = []
    for key in sorted({*old, *new}):
        before, after = old.get(key, "(absent)"), new.get(key, "(absent)")
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            lines += config_diff(before, after, f"{prefix}{key}.")
        elif not _is_same(_plain(before), _plain(after)):
            lines.append(f"{prefix}{key}: {before} -> {after}")
    return lines


def differing_fields(
    old: Mapping[str, Any], new: Mapping[str, Any], fields: Sequence[str]
) -> list[str]:
    """Lines of `config_diff` about `fields`, without those of RESUMABLE."""
    names = {line: line.split(":")[0] for line in config_diff(old, new)}
    return [d for d, n in names.items() if _is_below(n, fields) and not _is_below(n, RESUMABLE)]


def not_of_this_version(path: Path, field: str) -> UsageError:
    """The error for a config.json that lacks `field`, or that has it and should not."""
    env = path.with_name("env.json")
    facts = read_object(env) if env.exists() else {}
    commit, versions = str(facts.get("commit", ""))[:50], facts.get("versions")
    version = versions.get("vlc_jax", "") if isinstance(versions, dict) else ""
    checkout = f" (git checkout {commit.removesuffix('-dirty')})" if commit else ""
    if version and not commit:  # of a wheel
        checkout = f" (vlc_jax {version!s:.20})"
    return UsageError(
        f"{path} is not the config of a run of this version of vlc_jax, which differs in the field "
        f"{field!r}: take the version that wrote it{checkout}"
    )


class SavedConfig(ConfigDict):
    """ConfigDict of a config.json. A missing field raises UsageError instead of AttributeError.

    config.json may be of another version of vlc_jax, which is a usage error and not a bug.
    """

    def __init__(self, content: Mapping[str, Any], path: Path):
        super().__init__(
            {k: SavedConfig(v, path) if isinstance(v, Mapping) else v for k, v in content.items()}
        )
        # a plain assignment would add a config field
        object.__setattr__(self, "_path", path)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            # copy and pickle probe such names and expect AttributeError
            if name.startswith("_"):
                raise
            raise not_of_this_version(self._path, name) from None

    def copy_and_resolve_references(self, visit_map: Any = None) -> "SavedConfig":
        return SavedConfig(self.to_dict(), self._path)  # a file has no references


def is_workdir(path: Path) -> bool:
    """True if the folder is the workdir of a run, not a folder of another project."""
    return (path / "checkpoints").is_dir() or (path / "env.json").exists()


def saved_config(workdir: Path) -> ConfigDict:
    """The config of the run in `workdir`, locked. Raises UsageError if there is none."""
    path = workdir / "config.json"
    if not path.exists():
        raise UsageError(f"{workdir} is not a workdir: it has no config.json")
    content = read_object(path)
    match content:  # of a saved model, whose tokenizer moves with its folder
        case {"text": {"tokenizer_options": {"path": str(file)} as options}}:
            if (own := workdir / TOKENIZER / Path(file).name).is_file():
                options["path"] = str(own.absolute())
    try:
        return SavedConfig(content, path).lock()
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UsageError(f"{path} is not the config of a run: {error}") from error


def saved_fingerprints(workdir: Path) -> dict[str, Any]:
    """Fingerprints of a run's training data and weights; {} if none are saved.

    Raises UsageError if its env.json is malformed.
    """
    path = workdir / "env.json"
    fingerprints = read_object(path).get("input", {}) if path.exists() else {}
    if not isinstance(fingerprints, dict):
        raise UsageError(f"{path} holds no fingerprints under 'input'; repair or remove it")
    return fingerprints


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file. Raises UsageError, with the path, if there is none."""
    # reading a pipe would block
    if not path.is_file():
        raise UsageError(f"{path} is not a file")
    try:
        content = stores.parse_json(path.read_text("utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} is not valid JSON ({error}); repair or remove it") from error
    if not isinstance(content, dict):
        raise UsageError(f"{path} holds no JSON object; repair or remove it")
    return content


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON file atomically."""
    workdir_files.replace(path, json.dumps(value, indent=1, default=str) + "\n")


def _is_below(field: str, groups: Sequence[str]) -> bool:
    return any(field == group or field.startswith(f"{group}.") for group in groups)


def _ends_with_newline(file: BinaryIO) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


class _Log(logging.FileHandler):
    """Log file of a run. A storage error is one line on stderr, printed once."""

    _is_failing = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)  # such as an invalid format string
        elif not self._is_failing:
            self._is_failing = True
            print(f"lines are missing in {self.baseFilename}: {error}", file=sys.stderr)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # from a buffered line
            super().close()


def _log_to(path: Path) -> logging.Handler:
    handler = _Log(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname).1s %(message)s"))
    logging.getLogger().addHandler(handler)
    return handler


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return all(map(_is_same, one, other))
    # an address of the hub may come without its hash
    both = isinstance(one, str) and isinstance(other, str)
    return hub.is_same(one, other) if both else one == other


def _plain(value: Any) -> Any:
    """The value after a round trip through JSON: a tuple equals the list it was saved as."""
    return json.loads(json.dumps(value, default=str))
