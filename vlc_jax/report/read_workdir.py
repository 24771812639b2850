"""What a run left in its workdir, read as far as it can be read.

A report is wanted most when something went wrong, so a missing or broken file becomes a note in
the report, never an error. Only a folder that no run has written to is refused.
"""

import itertools
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MARKS = ("config.json", "env.json", "metrics.jsonl", "events.jsonl", "evals", "DONE", "FAILED")
MAX_SCORE_ROWS = 5000  # looked through for examples whose images were kept


class NotAWorkdirError(Exception):
    """A path that is no workdir of a run; the message says what was looked for."""


@dataclass(frozen=True)
class Example:
    """One case that the report can show: its row of scores.jsonl, its image files, and what the
    head saw of it (vlc_jax/evaluators/patch_maps.py) where evaluation wrote that."""

    row: dict[str, Any]
    images: tuple[Path, ...]
    maps: Path | None = None


@dataclass(frozen=True)
class Evaluation:
    """One benchmark of a run: its results in order of steps and the cases that can be shown."""

    name: str
    results: list[dict[str, Any]]
    examples: list[Example]

    @property
    def newest(self) -> dict[str, Any]:
        return self.results[-1]


@dataclass
class Run:
    """Everything the report knows; empty where a file is missing."""

    path: Path
    config: dict[str, Any] = field(default_factory=dict)
    default_config: dict[str, Any] = field(default_factory=dict)
    env: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    # share of this run's parameters -> results of their mixture with other ones
    mixtures: dict[float, list[dict[str, Any]]] = field(default_factory=dict)
    mixed: dict[str, Any] = field(default_factory=dict)  # what was mixed: other, step
    done: dict[str, Any] | None = None
    failed: dict[str, Any] | None = None
    last_write: float | None = None  # seconds since the epoch
    notes: list[str] = field(default_factory=list)


def read(path: Path) -> Run:
    """Reads a workdir.

    Raises:
      NotAWorkdirError: no such folder, or one with none of the files that a run writes.
    """
    if not path.is_dir():
        raise NotAWorkdirError(f"no such folder: {path}; give the --workdir of a run")
    if not any((path / mark).exists() for mark in MARKS):
        raise NotAWorkdirError(f"{path} is no workdir of a run: it has none of {', '.join(MARKS)}")
    run = Run(path)
    run.config = _object(run, "config.json")
    run.env = _object(run, "env.json")
    run.metrics = _by_step(_lines(run, path / "metrics.jsonl"))
    run.events = list(_lines(run, path / "events.jsonl"))
    run.evaluations = _in_order(run.config, _evaluations(run))
    run.mixtures = mixtures(path)
    if run.mixtures:
        run.mixed = _object(run, "interpolate/mixed.json")
    if (path / "default_config.json").exists():
        run.default_config = _object(run, "default_config.json")
    _outcome(run)
    written = [path / mark for mark in MARKS if (path / mark).is_file()]
    run.last_write = max((_modified(file) for file in written), default=None)
    return run


def newest_results(path: Path) -> list[dict[str, Any]]:
    """The newest result of each benchmark under `path`/evals, for a table; [] without any."""
    run = Run(path)
    found = _evaluations(run, examples=False)
    return [evaluation.newest for evaluation in _in_order(_object(run, "config.json"), found)]


def mixtures(path: Path) -> dict[float, list[dict[str, Any]]]:
    """The newest results of each mixture under `path`/interpolate, by its share, in order."""
    found = {}
    folder = path / "interpolate"
    config = _object(Run(path), "config.json")
    for one in folder.iterdir() if folder.is_dir() else []:
        if not one.is_dir():
            continue
        results = _in_order(config, _evaluations(Run(one), examples=False))
        found[float(one.name)] = [evaluation.newest for evaluation in results]
    return dict(sorted(found.items()))


def read_config(path: Path) -> dict[str, Any]:
    """A config to compare with: a config.json, or the workdir that holds one.

    Raises:
      NotAWorkdirError: there is none, or it is no JSON object.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise NotAWorkdirError(f"no config to compare with in {file}: {error}") from error
    if not isinstance(config, dict):
        raise NotAWorkdirError(f"{file} is no config: it holds no JSON object")
    return config


def image_file(case_id: str, index: int) -> str:
    """The name under evals/<benchmark>/images of an image of a case, as evaluation writes it."""
    return f"{case_id.replace('/', '_')}_{index}.png"


def maps_file(case_id: str) -> str:
    """The name under evals/<benchmark>/maps of what the head saw of a case."""
    return f"{case_id.replace('/', '_')}.npz"


def _evaluations(run: Run, examples: bool = True) -> Iterator[Evaluation]:
    folder = run.path / "evals"
    for one in sorted(folder.iterdir()) if folder.is_dir() else []:
        files = {int(file.stem): file for file in one.glob("*.json") if file.stem.isdigit()}
        results = []
        for step in sorted(files):
            result = _object(run, str(files[step].relative_to(run.path)))
            if isinstance(result.get("metrics"), dict) and result["metrics"]:
                results.append({"protocol": ""} | result | {"benchmark": one.name, "step": step})
            elif result:
                run.notes.append(f"{files[step].relative_to(run.path)} has no metrics")
        if results:
            shown = list(_examples(run, one, results[-1]["step"])) if examples else []
            yield Evaluation(one.name, results, shown)


def _in_order(config: dict[str, Any], evaluations: Iterable[Evaluation]) -> list[Evaluation]:
    """In the order in which the config names them, the others by name after these."""
    named = config.get("evals")
    order = {name: place for place, name in enumerate(named)} if isinstance(named, dict) else {}
    return sorted(evaluations, key=lambda e: (order.get(e.name, len(order)), e.name))


def _examples(run: Run, folder: Path, step: int) -> Iterator[Example]:
    images = folder / "images"
    left = len(list(images.iterdir())) if images.is_dir() else 0
    if not left:
        return
    for row in itertools.islice(_lines(run, folder / f"{step}.scores.jsonl"), MAX_SCORE_ROWS):
        files = []
        while (file := images / image_file(str(row.get("id")), len(files))).is_file():
            files.append(file)
        if files and _has_scores(row):
            maps = folder / "maps" / maps_file(str(row.get("id")))
            yield Example(row, tuple(files), maps if maps.is_file() else None)
        left -= len(files)
        if not left:
            return


def _has_scores(row: dict[str, Any]) -> bool:
    """Whether captions and scores fit: one number a caption, or one such list per image."""
    captions, scores = row.get("captions"), row.get("scores")
    if not (isinstance(captions, list) and isinstance(scores, list) and captions and scores):
        return False
    rows = scores if isinstance(scores[0], list) else [scores]
    return all(
        isinstance(each, list)
        and len(each) == len(captions)
        and all(isinstance(score, int | float) and math.isfinite(score) for score in each)
        for each in rows
    )


def _outcome(run: Run) -> None:
    """DONE or FAILED; the newer one where a run that failed was started again."""
    done, failed = run.path / "DONE", run.path / "FAILED"
    both = done.exists() and failed.exists()
    if failed.exists() and not (both and _modified(done) >= _modified(failed)):
        run.failed = _object(run, "FAILED")
    elif done.exists():
        run.done = _object(run, "DONE")


def _object(run: Run, name: str) -> dict[str, Any]:
    """A file with one JSON object; {} and a note where it is missing or something else."""
    try:
        value = json.loads((run.path / name).read_text())
    except FileNotFoundError:
        run.notes.append(f"{name} is missing")
        return {}
    except (OSError, ValueError) as error:
        run.notes.append(f"{name} cannot be read: {error}")
        return {}
    if not isinstance(value, dict):
        run.notes.append(f"{name} holds no JSON object")
        return {}
    return value


def _lines(run: Run, file: Path) -> Iterator[dict[str, Any]]:
    """The JSON objects of a JSONL file; lines that are none (one cut short, say) are counted."""
    name, bad = file.relative_to(run.path), 0
    try:
        with file.open(errors="replace") as lines:
            for line in lines:
                try:
                    row = json.loads(line)
                except ValueError:
                    bad += 1
                    continue
                if isinstance(row, dict):
                    yield row
                else:
                    bad += 1
    except FileNotFoundError:
        run.notes.append(f"{name} is missing")
    except OSError as error:
        run.notes.append(f"{name} cannot be read: {error}")
    if bad:
        run.notes.append(f"{name}: {bad} lines are no JSON object and were left out")


def _by_step(rows: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in order of steps, the last one of each step."""
    kept = {row["step"]: row for row in rows if isinstance(row.get("step"), int)}
    return [kept[step] for step in sorted(kept)]


def _modified(file: Path) -> float:
    return file.stat().st_mtime
