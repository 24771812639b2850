"""Results of calls of a foreign model in a file, for an evaluation that is interrupted."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.input_pipeline.stores import text_file
from vlc_jax.run import workdir_files


class KeptCalls(dict[str, np.ndarray]):
    """Key of a call -> its result; every new one is appended to a file at once.

    facts: what the results depend on. A file of other facts is replaced.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any]):
        super().__init__()
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        first, *rows = map(json.loads, text_file.whole_lines(path) or ["null"])
        if first != json.loads(json.dumps(facts)):
            rows = []
            workdir_files.replace(path, json.dumps(facts) + "\n")
        for row in rows:
            content = np.frombuffer(base64.b64decode(row["data"]), row["dtype"])
            super().__setitem__(row["key"], content.reshape(row["shape"]))
        self._file = workdir_files.without_link(path).open("a", encoding="utf-8")

    def __setitem__(self, key: str, result: np.ndarray) -> None:
        data = base64.b64encode(np.ascontiguousarray(result)).decode()
        row = {"key": key, "shape": result.shape, "dtype": result.dtype.str, "data": data}
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()
        super().__setitem__(key, result)

    def close(self) -> None:
        """Closes the file, which stays."""
        self._file.close()

    def remove(self) -> None:
        """Removes the file, once the results of the benchmark are written."""
        self.path.unlink(missing_ok=True)
        if not any(self.path.parent.iterdir()):
            self.path.parent.rmdir()
