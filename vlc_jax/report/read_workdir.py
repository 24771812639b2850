"""Reader of a workdir: config, metrics, events and results of a run.

A report is needed most after a failure, so a missing or damaged file becomes a note in the report,
never an error. Only a folder without any file of a run is refused.
"""

import itertools
import logging
import math
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.case import image_file, maps_file

WORKDIR_FILES = (
    "config.json",
    "env.json",
    "metrics.jsonl",
    "events.jsonl",
    "evals",
    "DONE",
    "FAILED",
)
# rows of scores.jsonl searched for cases with images
MAX_SCORE_ROWS = 5000
MAX_STEP_DIGITS = 15  # in a file's name
# images are embedded in the page
MAX_IMAGE_BYTES = 20_000_000
# a surrogate or a 64-bit number in a line of JSON
_UNUSUAL = re.compile(r"\\u[dD]|\d{19}")
_SURROGATES = re.compile("[\ud800-\udfff]")


class NotAWorkdirError(Exception):
    """A path that is not the workdir of a run."""


class NoCasesError(Exception):
    """An unknown benchmark, or runs without scores; the message lists what exists."""


@dataclass(frozen=True)
class Example:
    """One case of a benchmark: its row of scores.jsonl, image files and file of patch maps.

    maps: written by vlc_jax/evaluators/patch_maps.py; None for a model without them.
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
        """The result of the last step."""
        return self.results[-1]

    @property
    def title(self) -> str:
        """Name of the benchmark for people."""
        return self.newest.get("title") or self.name


@dataclass
class Run:
    """Contents of a workdir; a field is empty if its file is missing."""

    path: Path
    config: dict[str, Any] = field(default_factory=dict)
    config_problem: str = ""  # why an existing config.json cannot be read
    env: dict[str, Any] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    # interpolated weights (WiSE-FT): alpha, the weight of this run -> results
    mixtures: dict[float, list[dict[str, Any]]] = field(default_factory=dict)
    mixed: dict[str, Any] = field(default_factory=dict)  # interpolate/mixed.json: other, step
    done: dict[str, Any] | None = None
    failed: dict[str, Any] | None = None
    last_write: float | None = None  # seconds since the epoch
    notes: list[str] = field(default_factory=list)


def read(path: Path) -> Run:
    """Reads a workdir.

    Raises:
      NotAWorkdirError: no such folder, or none of the files of a run in it.
    """
    if not path.is_dir():
        raise NotAWorkdirError(f"no such folder: {path}; give the --workdir of a run")
    if not any((path / name).exists() for name in WORKDIR_FILES):
        names = ", ".join(WORKDIR_FILES)
        runs = sorted(one.parent for one in path.glob("*/config.json"))
        hint = f"; it holds runs, such as {runs[0]}: {path}/*" if runs else ""
        raise NotAWorkdirError(f"{path} is no workdir of a run: it has none of {names}{hint}")
    run = Run(path)
    run.config = _object(run, "config.json")
    if run.notes and (path / "config.json").exists():
        run.config_problem = run.notes[0]
        logging.getLogger(__name__).warning("%s: %s", path, run.config_problem)
    run.env = _object(run, "env.json")
    run.metrics = _by_step(_lines(run, path / "metrics.jsonl"))
    run.events = list(_lines(run, path / "events.jsonl"))
    run.evaluations = _in_order(run.config, _evaluations(run))
    run.mixtures = mixtures(path)
    if "scorer" in run.env:
        # of vlc_jax.evaluate: nothing is trained there, and nothing is missing
        run.notes = [note for note in run.notes if not note.endswith(" is missing")]
    if run.mixtures:
        run.mixed = _object(run, "interpolate/mixed.json")
    _outcome(run)
    written = [path / name for name in WORKDIR_FILES if (path / name).is_file()]
    run.last_write = max((_modified(file) for file in written), default=None)
    return run


def newest_results(path: Path) -> list[dict[str, Any]]:
    """Newest result of each benchmark under `path`/evals."""
    run = Run(path)
    evaluations = _evaluations(run, examples=False)
    return [one.newest for one in _in_order(_object(run, "config.json"), evaluations)]


def mixtures(path: Path) -> dict[float, list[dict[str, Any]]]:
    """Newest results of each interpolation under `path`/interpolate, {alpha: results}, sorted."""
    by_alpha = {}
    folder = path / "interpolate"
    config = _object(Run(path), "config.json")
    for one in folder.iterdir() if folder.is_dir() else []:
        # 0.25, 1 or 1e-05, as the evaluation names them: skip other folders
        if not re.fullmatch(r"\d(\.\d+)?(e-\d\d)?", one.name) or not _is_within(path, one):
            continue
        results = _in_order(config, _evaluations(Run(one), examples=False))
        by_alpha[float(one.name)] = [evaluation.newest for evaluation in results]
    return dict(sorted(by_alpha.items()))


def _evaluations(run: Run, examples: bool = True) -> Iterator[Evaluation]:
    folder = run.path / "evals"
    for one in sorted(folder.iterdir()) if folder.is_dir() else []:
        names = ((file.stem, file) for file in one.glob("*.json"))
        files = {
            int(stem): file
            for stem, file in names
            if stem.isdecimal() and len(stem) <= MAX_STEP_DIGITS
        }
        name = _displayable(one.name)
        results = []
        for step in sorted(files):
            result = _object(run, str(files[step].relative_to(run.path)))
            if isinstance(result.get("metrics"), dict) and result["metrics"]:
                results.append({"protocol": ""} | result | {"benchmark": name, "step": step})
            elif result:
                run.notes.append(f"{files[step].relative_to(run.path)} has no metrics")
        if results:
            cases = list(_examples(run, one, results[-1]["step"])) if examples else []
            yield Evaluation(name, results, cases)


def _in_order(config: dict[str, Any], evaluations: Iterable[Evaluation]) -> list[Evaluation]:
    """Evaluations in the order of config.evals, then the others by name."""
    names = config.get("evals")
    order = {name: index for index, name in enumerate(names)} if isinstance(names, dict) else {}
    # <name>@<hash>: the same name with other options (run/results.py)
    listed = sorted(
        evaluations, key=lambda e: (order.get(e.name.split("@")[0], len(order)), e.name)
    )
    plain = {one.name: one.newest for one in listed if "@" not in one.name}
    for one in listed:
        for result in one.results:
            result["title"] = _title(one.name, result, plain)
    return listed


def _title(name: str, result: dict[str, Any], plain: dict[str, dict[str, Any]]) -> str:
    """Name of a benchmark for people: <name>@<hash> says how it differs from <name>."""
    stem, _, digest = name.partition("@")
    if not digest:
        return name
    options, others = (
        {**mapping(r.get("reader_options")), **mapping(r.get("options"))}
        for r in (result, plain.get(stem, {}))
    )
    differing = [f"{key} {options[key]}" for key in options if options[key] != others.get(key)]
    differing += [f"without {key}" for key in others if key not in options]
    reasons = {"weights": "other weights", "version": "other data"}
    differing = differing or [
        text for key, text in reasons.items() if result.get(key) != plain.get(stem, {}).get(key)
    ]
    return f"{stem} ({', '.join(differing) or digest})"


def mapping(value: Any) -> dict[str, Any]:
    """`value` if it is a JSON object, else {}, since files may be incomplete."""
    return value if isinstance(value, dict) else {}


def _examples(run: Run, folder: Path, step: int) -> Iterator[Example]:
    images = folder / "images"
    remaining = len(list(images.iterdir())) if images.is_dir() else 0
    if not remaining:
        return
    for row in itertools.islice(_lines(run, folder / f"{step}.scores.jsonl"), MAX_SCORE_ROWS):
        case, files = str(row.get("id")), []
        # not Path.is_file, which raises for invalid file names
        while os.path.isfile(file := images / image_file(case, len(files))):
            if problem := unreadable(run.path, file):
                run.notes.append(f"{file.relative_to(run.path)} {problem}")
                break
            files.append(file)
        if files and has_scores(row):
            maps = folder / "maps" / maps_file(case)
            is_usable = os.path.isfile(maps) and not unreadable(run.path, maps)
            yield Example(row, tuple(files), maps if is_usable else None)
        remaining -= len(files)
        # few of the cases in scores.jsonl have images
        if not remaining:
            return


def has_scores(row: dict[str, Any]) -> bool:
    """True if captions, scores and further correct captions of a row are consistent.

    Scores are one number per caption, or one such list per image: image k belongs to caption k, or
    all images to a single caption.
    """
    captions, scores, positives = (row.get(key) for key in ("captions", "scores", "positives"))
    if not (isinstance(captions, list) and isinstance(scores, list) and captions and scores):
        return False
    rows = scores if isinstance(scores[0], list) else [scores]
    indices = positives if isinstance(positives, list) else []
    is_index = all(isinstance(k, int) and 0 <= k < len(captions) for k in indices)
    if not is_index or not isinstance(positives, list | None):
        return False
    if len(captions) > 1 and len(rows) > len(captions):
        return False
    return all(
        isinstance(row, list)
        and len(row) == len(captions)
        and all(isinstance(score, int | float) and math.isfinite(score) for score in row)
        for row in rows
    )


def score_matrix(row: dict[str, Any]) -> list[list[float]]:
    """Scores of a case, a list per image."""
    scores = row["scores"]
    return scores if isinstance(scores[0], list) else [scores]


def groups(row: dict[str, Any]) -> list[str]:
    """Groups of a case; labels of several kinds start with their kind."""
    group = row.get("group")
    if isinstance(group, dict):
        return [f"{kind} {label}" for kind, label in group.items() if label is not None]
    return [str(group)] if group else []


def _outcome(run: Run) -> None:
    """Reads DONE or FAILED, the newer of the two."""
    done, failed = run.path / "DONE", run.path / "FAILED"
    both = done.exists() and failed.exists()
    if failed.exists() and not (both and _modified(done) >= _modified(failed)):
        run.failed = _object(run, "FAILED")
    elif done.exists():
        run.done = _object(run, "DONE")


def _object(run: Run, name: str) -> dict[str, Any]:
    """JSON object of a file; {} and a note if it is missing or not a JSON object."""
    file = run.path / name
    problem = unreadable(run.path, file)
    if problem is None:
        try:
            value = _displayable(stores.parse_json(file.read_text("utf-8")))
            if isinstance(value, dict):
                return value
            problem = "holds no JSON object"
        except (OSError, ValueError) as error:
            problem = f"cannot be read: {error}"
    run.notes.append(f"{name} {problem}")
    return {}


def score_rows(run: Run, benchmark: str, result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows of the scores.jsonl of a result; none if it does not exist.

    A note says if rows are missing.
    """
    file, count = run.path / "evals" / benchmark / f"{result['step']}.scores.jsonl", 0
    if not file.exists():
        return
    for row in _lines(run, file):
        count += 1
        yield row
    expected = result.get("score_rows", count)
    note = f"{file.relative_to(run.path)} has {count} whole rows of {expected}: it was cut"
    # read for several parts of a page
    if expected != count and note not in run.notes:
        run.notes.append(note)


def _lines(run: Run, file: Path) -> Iterator[dict[str, Any]]:
    """JSON objects of a JSONL file; other lines (such as truncated ones) are counted in a note."""
    name, bad = file.relative_to(run.path), 0
    if problem := unreadable(run.path, file):
        run.notes.append(f"{name} {problem}")
        return
    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                try:
                    row = stores.parse_json(line)
                except ValueError:
                    row = None
                if isinstance(row, dict):
                    # cleaning every value is slow, and nearly no line needs it
                    yield _displayable(row) if _UNUSUAL.search(line) else row
                else:
                    bad += 1
    except OSError as error:
        run.notes.append(f"{name} cannot be read: {error}")
    if bad:
        run.notes.append(f"{name}: {bad} lines are no JSON object and were left out")


def unreadable(path: Path, file: Path) -> str | None:
    """Reason not to read a file of the workdir at `path`; None if there is none."""
    if not file.exists():
        return "is missing"
    if not _is_within(path, file):
        return "is a link to elsewhere, not shown"
    # reading a pipe would block
    if not file.is_file():
        return "is no file"
    if file.suffix in (".png", ".npz") and file.stat().st_size > MAX_IMAGE_BYTES:
        return "is too large to be shown"
    return None


def _is_within(path: Path, inner: Path) -> bool:
    """True if `inner` is inside the workdir at `path`, with links resolved."""
    return inner.resolve().is_relative_to(path.resolve())


def _displayable(value: Any) -> Any:
    """A JSON value that a page can display: lone surrogates become "\ufffd", integers of more than
    64 bits strings."""
    if isinstance(value, str):
        return _SURROGATES.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_displayable(key): _displayable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_displayable(item) for item in value]
    if isinstance(value, int) and abs(value) >= 2**63:
        return str(value)
    return value


def _by_step(rows: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows sorted by step, the last row of each step."""
    # a resumed run logs the steps after its checkpoint again: the last row counts
    by_step = {row["step"]: row for row in rows if isinstance(row.get("step"), int)}
    return [by_step[step] for step in sorted(by_step)]


def _modified(file: Path) -> float:
    return file.stat().st_mtime
