"""A matrix written row by row to a file, so that a killed writer can resume."""

import os
from pathlib import Path

import numpy as np


class RowFile:
    """File of `header` and rows of `row_bytes` each, written to PATH.partial.

    `finish` renames it to PATH, so that a file of that name is complete. done: rows in the file.
    keep: most rows of an interrupted writer to keep; 0 starts over.
    """

    def __init__(self, path: Path, header: bytes, row_bytes: int, keep: int) -> None:
        self._path, self._partial = path, path.with_name(f"{path.name}.partial")
        if not (keep and self._begins_with(header)):
            self._partial.write_bytes(header)
        whole = (self._partial.stat().st_size - len(header)) // row_bytes
        self.done = min(whole, keep)
        self._file = self._partial.open("r+b")
        # half a row of a killed writer
        self._file.truncate(len(header) + self.done * row_bytes)
        self._file.seek(0, os.SEEK_END)

    def append(self, rows: np.ndarray) -> None:
        """Appends rows; a kill after the call does not lose them."""
        self._file.write(rows.tobytes())
        self._file.flush()
        self.done += len(rows)

    def finish(self) -> None:
        """Renames the complete file to PATH."""
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
