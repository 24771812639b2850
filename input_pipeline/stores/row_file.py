"""A matrix that grows row by row in a file, so that a killed writer goes on with it."""

import os
from pathlib import Path

import numpy as np


class RowFile:
    """Rows of `row_bytes` behind `header`: they grow in PATH.partial, which moves to PATH at the
    end, so that a file of that name is whole.

    done: rows that are there. keep: how many rows of an interrupted writer count, if they are
    there; 0 begins anew.
    """

    def __init__(self, path: Path, header: bytes, row_bytes: int, keep: int) -> None:
        self._path, self._partial = path, path.with_name(f"{path.name}.partial")
        if not (keep and self._begins_with(header)):
            self._partial.write_bytes(header)
        whole = (self._partial.stat().st_size - len(header)) // row_bytes
        self.done = min(whole, keep)
        self._file = self._partial.open("r+b")
        self._file.truncate(len(header) + self.done * row_bytes)  # half a row of a killed writer
        self._file.seek(0, os.SEEK_END)

    def append(self, rows: np.ndarray) -> None:
        """Writes rows behind the others; a kill afterwards does not lose them."""
        self._file.write(rows.tobytes())
        self._file.flush()
        self.done += len(rows)

    def finish(self) -> None:
        """Moves the file to its name, when all rows are there."""
        os.fsync(self._file.fileno())
        self._partial.replace(self._path)

    def _begins_with(self, header: bytes) -> bool:
        if not self._partial.exists():
            return False
        with self._partial.open("rb") as file:
            return file.read(len(header)) == header

    def __enter__(self) -> "RowFile":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
