"""Page cases.html: single cases of one run, or of two side by side.

cases.js displays the data: one JSON object, small enough for 50,000 cases, since all texts are in
one list and a case is a list with indices into it (`collect`).
"""

import base64
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from PIL import Image, UnidentifiedImageError

from vlc_jax.input_pipeline.case import image_file
from vlc_jax.report import compare, display, table, to_html
from vlc_jax.report.blocks import Details, Text
from vlc_jax.report.read_workdir import (
    NoCasesError,
    Run,
    groups,
    has_scores,
    score_matrix,
    score_rows,
    unreadable,
)
from vlc_jax.run import workdir_files

MAX_SIDE = 320  # pixels; larger images are scaled down
# significant digits of a score: the page displays four, and more would double its size
DIGITS = 5
UNKNOWN = 2  # value of `correct` besides 0 and 1: a case without it


def write(runs: Sequence[Run], folder: Path, benchmarks: Sequence[str] = ()) -> Path:
    """Writes cases.html of one run or two into `folder`; returns its path.

    Raises NoCasesError as `collect`.
    """
    data = collect(runs, benchmarks)
    names = [escape(name) for name in data["runs"]]
    orders = (f'<option value="{k}">most wrong first: {x}</option>' for k, x in enumerate(names))
    notes = Details(f"Notes: {len(data['notes'])}", [Text(note) for note in data["notes"]])
    text = to_html.fill(
        "cases.html",
        names=" and ".join(names),
        style=to_html.read("report.css") + to_html.read("cases.css"),
        orders="\n".join(orders),
        notes=to_html.render([notes] if data["notes"] else []),
        data=to_script(data),
        script=to_html.read("cases.js"),
    )
    folder.mkdir(parents=True, exist_ok=True)
    workdir_files.replace(folder / "cases.html", text)
    return folder / "cases.html"


def collect(runs: Sequence[Run], benchmarks: Sequence[str] = ()) -> dict[str, Any]:
    """Cases of the newest evaluation of each benchmark, ready for JSON.

    benchmarks: names; empty: all. Two runs are compared only on the same cases
    (`compare.same_cases`); otherwise the data contain the first run's cases and a note.

    Returns: {
      runs: their names,
      benchmarks: [[name, metric of `correct`, [lowest, highest score] of each run], ...],
      groups, texts: strings,
      cases: [[benchmark, id, name of the image, groups, further correct captions, per run 0 or
        [correct, tie, rank or 0, texts or 0 for the first run's, scores]], ...],
      images: {index of a case: [data URI, ...]} of the images in the workdirs,
      notes: sentences}

    Raises NoCasesError.
    """
    results = compare.newest_results(runs)
    known = list(dict.fromkeys(name for run_results in results for name in run_results))
    for name in benchmarks:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise NoCasesError(f"no benchmark {name!r} has been evaluated; there are: {listed}")
    data = _Data(compare.names([run.path for run in runs]))
    for name in benchmarks or known:
        sides = [run_results.get(name) for run_results in results]
        if None not in sides and not compare.same_cases(sides[0], sides[-1]):
            data.notes.append(f"{name}: not the same cases in both runs; {data.runs[0]} is shown")
            sides[1] = None
        data.add(name, list(zip(runs, sides, strict=True)))
    if not data.cases:
        raise NoCasesError(
            "no scores of single cases (evals/<benchmark>/<step>.scores.jsonl) that can be read "
            f"below {', '.join(str(run.path) for run in runs)}; evaluate the run first"
        )
    data.notes += [note for run in runs for note in run.notes if ".scores.jsonl" in note]
    return data.as_json()


def to_script(data: dict[str, Any]) -> str:
    """The data as text for a <script> element, which no caption can close."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # "<" occurs in strings only
    return text.replace("<", "\\u003c")


class _Data:
    """Builder of the result of `collect`."""

    def __init__(self, runs: list[str]):
        self.runs = runs
        self.benchmarks: list[list[Any]] = []
        self.cases: list[list[Any]] = []
        self.images: dict[int, list[str]] = {}
        self.notes: list[str] = []
        self._texts: dict[str, int] = {}
        self._groups: dict[str, int] = {}

    def add(self, name: str, sides: Sequence[tuple[Run, dict[str, Any] | None]]) -> None:
        """Adds a benchmark; sides: run and result, None if the run has none."""
        by_run = [self._rows(name, run, result) if result else {} for run, result in sides]
        ranges = [_range(rows.values()) for rows in by_run]
        result = next(result for _, result in sides if result)
        decision = display.of(result).correct or "correct"
        folders = [run for run, result in sides if result]
        kept = [run.path / "evals" / name / "images" for run in folders]
        images = {file.name for folder in kept for file in folder.glob("*")}
        # cases of the first run in its order, then those that only the second has
        for case in dict.fromkeys(case for rows in by_run for case in rows):
            if image_file(case, 0) in images:
                self.images[len(self.cases)] = list(self._images(folders, name, case))
            self.cases.append(self._case(case, [rows.get(case) for rows in by_run]))
        self.benchmarks.append([table.name_of(result), decision, ranges])

    def as_json(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "benchmarks": self.benchmarks,
            "groups": list(self._groups),
            "texts": list(self._texts),
            "cases": self.cases,
            "images": {index: uris for index, uris in self.images.items() if uris},
            "notes": self.notes,
        }

    def _rows(self, name: str, run: Run, result: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Case -> its row of scores.jsonl."""
        rows, count = {}, 0
        for row in score_rows(run, name, result):
            count += 1
            if has_scores(row):
                rows[str(row.get("id", count))] = row
        if len(rows) < count:
            where = self.runs[0] if len(self.runs) == 1 else run.path.name
            self.notes.append(
                f"{name}: {count - len(rows):,} rows of {where} are left out: their captions and "
                "scores do not fit, or another has the same id"
            )
        return rows

    def _case(self, case: str, rows: Sequence[dict[str, Any] | None]) -> list[Any]:
        first = next(row for row in rows if row)
        texts = self._captions(first)
        entries = [len(self.benchmarks), case, str(first.get("image", case))]
        entries += [self._groups_of(first), first.get("positives") or 0]
        for row in rows:
            captions = self._captions(row) if row else []
            entry = row and [
                int(correct) if isinstance(correct := row.get("correct"), bool) else UNKNOWN,
                int(row.get("tie") is True),
                row["rank"] if isinstance(row.get("rank"), int) else 0,
                # both runs mostly have equal captions: 0 for them halves the page
                texts if row is first else captions if captions != texts else 0,
                _rounded(row["scores"]),
            ]
            entries.append(entry or 0)
        return entries

    def _captions(self, row: dict[str, Any]) -> list[int]:
        return [self._texts.setdefault(str(text), len(self._texts)) for text in row["captions"]]

    def _groups_of(self, row: dict[str, Any]) -> list[int]:
        """Indices of a case's groups; one is whether a classifier of the texts gets it right."""
        labels = groups(row)
        if isinstance(row.get("blind"), int | float):
            labels.append("blind right" if row["blind"] == 1 else "blind wrong or tied")
        return [self._groups.setdefault(label, len(self._groups)) for label in labels]

    def _images(self, runs: Sequence[Run], name: str, case: str) -> Iterator[str]:
        """Data URIs of a case's images, from the first run that has any."""
        for run in runs:
            folder, k = run.path / "evals" / name / "images", 0
            while (file := folder / image_file(case, k)).exists():
                uri, reason = _data_uri(run, file)
                if reason:
                    self.notes.append(f"{name}, {case}: an image {reason}")
                    return
                yield uri
                k += 1
            if k:
                return


def _data_uri(run: Run, file: Path) -> tuple[str, str]:
    """(data URI, ""), or ("", reason why the image cannot be used)."""
    if reason := unreadable(run.path, file):
        return "", reason
    content, kind = file.read_bytes(), "png"
    try:
        with Image.open(io.BytesIO(content)) as image:
            # photos at full size would make a page of gigabytes
            if max(image.size) > MAX_SIDE:
                image = image.convert("RGB")
                image.thumbnail((MAX_SIDE, MAX_SIDE))
                smaller = io.BytesIO()
                image.save(smaller, "JPEG", quality=85)
                content, kind = smaller.getvalue(), "jpeg"
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        return "", f"cannot be read: {error}"
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}", ""


def _range(rows: Iterable[dict[str, Any]]) -> list[float]:
    """Lowest and highest score, the range of the bars; zeros without scores."""
    scores = [score for row in rows for scores in score_matrix(row) for score in scores]
    return [_rounded(min(scores)), _rounded(max(scores))] if scores else [0.0, 0.0]


def _rounded(scores: Any) -> Any:
    if isinstance(scores, list):
        return [_rounded(score) for score in scores]
    return float(f"{scores:.{DIGITS}g}")
