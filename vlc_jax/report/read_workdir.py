"""Reader of a workdir: config, metrics, events and results of a run, as far as they are readable.

A report is needed most after a failure, so a missing or damaged file becomes a note in the report,
never an error. Only a folder that no run has written to is refused.
"""

import itertools
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WORKDIR_FILES = (
    "config.json",
    "env.json",
    "metrics.jsonl",
    "events.jsonl",
    "evals",
    "DONE",
    "FAILED",
)
MAX_SCORE_ROWS = 5000  # of scores.jsonl, searched for cases whose images were kept


class NotAWorkdirError(Exception):
    """A path that is no workdir of a run."""


@dataclass(frozen=True)
class Example:
    """One case of a benchmark: its row of scores.jsonl, image files and file of patch maps.

    vlc_jax/evaluators/patch_maps.py writes the maps; None for a model without them.
    """

    row: dict[str, Any]
    images: tuple[Path, ...]
    maps: Path | None = None


@dataclass(frozen=True)
class Evaluation:
    """One benchmark of a run: its results by step, and the cases with images."""

    name: str
    results: list[dict[str, Any]]
    examples: list[Example]

    @property
    def newest(self) -> dict[str, Any]:
        return self.results[-1]


@dataclass
class Run:
    """Contents of a workdir; a field is empty where its file is missing."""

    path: Path
    config: dict[str, Any] = field(default_factory=dict)
    default_config: dict[str, Any] = field(default_factory=dict)
    env: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    # Interpolated weights (WiSE-FT): alpha, the share of this run -> results.
    mixtures: dict[float, list[dict[str, Any]]] = field(default_factory=dict)
    mixed: dict[str, Any] = field(default_factory=dict)  # interpolate/mixed.json: other, step
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
    if not any((path / name).exists() for name in WORKDIR_FILES):
        names = ", ".join(WORKDIR_FILES)
        raise NotAWorkdirError(f"{path} is no workdir of a run: it has none of {names}")
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
    written = [path / name for name in WORKDIR_FILES if (path / name).is_file()]
    run.last_write = max((_modified(file) for file in written), default=None)
    return run


def newest_results(path: Path) -> list[dict[str, Any]]:
    """Newest result of each benchmark under `path`/evals; [] without any."""
    run = Run(path)
    evaluations = _evaluations(run, examples=False)
    return [one.newest for one in _in_order(_object(run, "config.json"), evaluations)]


def mixtures(path: Path) -> dict[float, list[dict[str, Any]]]:
    """Newest results of each interpolation under `path`/interpolate, {alpha: results}, sorted."""
    by_alpha = {}
    folder = path / "interpolate"
    config = _object(Run(path), "config.json")
    for one in folder.iterdir() if folder.is_dir() else []:
        if not one.is_dir():
            continue
        results = _in_order(config, _evaluations(Run(one), examples=False))
        by_alpha[float(one.name)] = [evaluation.newest for evaluation in results]
    return dict(sorted(by_alpha.items()))


def read_config(path: Path) -> dict[str, Any]:
    """Config to compare with, from a config.json or the workdir that holds one.

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
    """File name of an image of a case, under evals/<benchmark>/images."""
    return f"{case_id.replace('/', '_')}_{index}.png"


def maps_file(case_id: str) -> str:
    """File name of the patch maps of a case, under evals/<benchmark>/maps."""
    return f"{case_id.replace('/', '_')}.npz"


def _evaluations(run: Run, examples: bool = True) -> Iterator[Evaluation]:
    folder = run.path / "evals"
    for one in sorted(folder.iterdir()) if folder.is_dir() else []:
        files = {int(file.stem): file for file in one.glob("*.json") if file.stem.isdecimal()}
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
    """Evaluations in the order of config.evals, then the others by name."""
    names = config.get("evals")
    order = {name: index for index, name in enumerate(names)} if isinstance(names, dict) else {}
    # <name>@<hash>: another question of that name (run/results.py)
    return sorted(evaluations, key=lambda e: (order.get(e.name.split("@")[0], len(order)), e.name))


def _examples(run: Run, folder: Path, step: int) -> Iterator[Example]:
    images = folder / "images"
    remaining = len(list(images.iterdir())) if images.is_dir() else 0
    if not remaining:
        return
    for row in itertools.islice(_lines(run, folder / f"{step}.scores.jsonl"), MAX_SCORE_ROWS):
        files = []
        while (file := images / image_file(str(row.get("id")), len(files))).is_file():
            if not file.resolve().is_relative_to(run.path.resolve()):  # a link out of the workdir
                run.notes.append(f"{file.relative_to(run.path)} is a link to elsewhere, not shown")
                break
            files.append(file)
        if files and _has_scores(row):
            maps = folder / "maps" / maps_file(str(row.get("id")))
            yield Example(row, tuple(files), maps if maps.is_file() else None)
        remaining -= len(files)
        if not remaining:  # scores.jsonl has all cases, of which few keep their images
            return


def _has_scores(row: dict[str, Any]) -> bool:
    """True if captions and scores fit: one number per caption, or one such list per image."""
    captions, scores = row.get("captions"), row.get("scores")
    if not (isinstance(captions, list) and isinstance(scores, list) and captions and scores):
        return False
    rows = scores if isinstance(scores[0], list) else [scores]
    return all(
        isinstance(row, list)
        and len(row) == len(captions)
        and all(isinstance(score, int | float) and math.isfinite(score) for score in row)
        for row in rows
    )


def _outcome(run: Run) -> None:
    """Reads DONE or FAILED, the newer one if there are both."""
    done, failed = run.path / "DONE", run.path / "FAILED"
    both = done.exists() and failed.exists()
    if failed.exists() and not (both and _modified(done) >= _modified(failed)):
        run.failed = _object(run, "FAILED")
    elif done.exists():
        run.done = _object(run, "DONE")


def _object(run: Run, name: str) -> dict[str, Any]:
    """JSON object of a file; {} and a note if it is missing or no JSON object."""
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
    """JSON objects of a JSONL file; other lines (such as one cut short) are counted in a note."""
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
    """Rows sorted by step, the last row of each step."""
    by_step = {row["step"]: row for row in rows if isinstance(row.get("step"), int)}
    return [by_step[step] for step in sorted(by_step)]


def _modified(file: Path) -> float:
    return file.stat().st_mtime
