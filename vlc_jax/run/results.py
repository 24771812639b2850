"""Results of benchmarks in a workdir, filed under what was asked: evals/<name>/<step>.json.

A question is a benchmark's reader, its options, the fingerprint of its data, and the weights. The
folder of a name keeps the answers to the first question under that name; those to another one (the
same name on the test split, say) go to <name>@<hash>, so that no result replaces a different one.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from vlc_jax.run import workdir_files


class Question(NamedTuple):
    """A question to a benchmark.

    name: in config.evals.   reader: a key of vlc_jax.input_pipeline.benchmarks.READERS.
    options: all that the config says.   data: `Benchmark.version`.
    weights: fingerprint of parameters that no step of this workdir has; None for those of a step.
    """

    name: str
    reader: str
    options: dict[str, Any]
    data: str
    weights: str | None

    @property
    def digest(self) -> str:
        """8 hexadecimal digits of the question."""
        return hashlib.sha256(self._text().encode()).hexdigest()[:8]

    def is_of(self, row: dict[str, Any]) -> bool:
        """True if a result, the content of a <step>.json, answers this question."""
        asked = Question(
            self.name,
            row.get("reader", row.get("benchmark")),
            row.get("options"),
            row.get("version"),
            row.get("weights"),
        )
        return asked._text() == self._text()

    def _text(self) -> str:
        # through JSON, as saved: a tuple equals the list that it became
        return json.dumps([self.reader, self.options, self.data, self.weights], sort_keys=True)


def folder_of(evals: Path, question: Question) -> Path:
    """The folder below `evals` whose results answer the question; it need not exist yet."""
    plain = evals / question.name
    files = [path for path in plain.glob("*.json") if path.stem.isdecimal()]
    files.sort(key=lambda path: int(path.stem), reverse=True)
    newest = next(filter(None, map(_read, files)), None)
    if newest is None or question.is_of(newest):
        return plain
    return plain.with_name(f"{question.name}@{question.digest}")


def finished(folder: Path, step: int, question: Question) -> dict[str, Any] | None:
    """The result of a step, if it is there and answers the question."""
    row = _read(folder / f"{step}.json")
    return row if row and question.is_of(row) else None


def _read(path: Path) -> dict[str, Any] | None:
    """None for a file that is missing or damaged: its result is made again."""
    try:
        row = workdir_files.parse_json(path.read_bytes())
        values = [row["metrics"][metric]["value"] for metric in row["summary"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    is_whole = values and all(isinstance(value, int | float) for value in values)
    return row if is_whole else None
