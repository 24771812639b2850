"""Benchmark results in a workdir: evals/<name>/<step>.json, by the identity of the evaluation.

The identity (`Question`) is the benchmark's reader, its options, the fingerprint of its data, and
the weights. The folder <name> has the results of the first identity under this name. Results of
another one (such as the test split under the same name) go to <name>@<hash>, so that no result
replaces a different one.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from vlc_jax.input_pipeline import stores


class Question(NamedTuple):
    """Identity of an evaluation.

    name: in config.evals.   reader: a key of vlc_jax.input_pipeline.benchmarks.READERS.
    options: all options in the config.   data: `Benchmark.version`.
    weights: fingerprint of imported parameters; None for the parameters of a step of this workdir.
    """

    name: str
    reader: str
    options: dict[str, Any]
    data: str
    weights: str | None

    @property
    def digest(self) -> str:
        """Hash of the identity, 8 hexadecimal digits."""
        return hashlib.sha256(self._text().encode()).hexdigest()[:8]

    def is_of(self, row: dict[str, Any]) -> bool:
        """True if a result, the content of a <step>.json, has this identity."""
        saved = (row.get(key) for key in ("reader", "options", "version", "weights"))
        return Question(self.name, *saved)._text() == self._text()

    def _text(self) -> str:
        # as JSON, like the saved row: a tuple equals the list that it is saved as
        return json.dumps([self.reader, self.options, self.data, self.weights], sort_keys=True)


def folder_of(evals: Path, question: Question) -> Path:
    """The folder below `evals` for results of this identity; it need not exist yet."""
    plain = evals / question.name
    files = [path for path in plain.glob("*.json") if path.stem.isdecimal()]
    files.sort(key=lambda path: int(path.stem), reverse=True)
    newest = next(filter(None, map(_read, files)), None)
    if newest is None or question.is_of(newest):
        return plain
    return plain.with_name(f"{question.name}@{question.digest}")


def finished(folder: Path, step: int, question: Question) -> dict[str, Any] | None:
    """The result of a step; None if it is missing or has another identity."""
    row = _read(folder / f"{step}.json")
    return row if row and question.is_of(row) else None


def _read(path: Path) -> dict[str, Any] | None:
    """The result in a file; None if it is missing or damaged, and so computed again."""
    try:
        row = stores.parse_json(path.read_bytes())
        values = [row["metrics"][metric]["value"] for metric in row["summary"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    is_whole = values and all(isinstance(value, int | float) for value in values)
    return row if is_whole else None
