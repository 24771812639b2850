"""The records that `vlc-jax prepare` could not use, in a file beside the manifest."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO

from vlc_jax.input_pipeline.stores import any_path
from vlc_jax.input_pipeline.stores.any_path import AnyPath

NAME = "skipped.jsonl"


class Skipped:
    """Writes skipped records.   count: of them.   last: id and reason of one."""

    def __init__(self, file: TextIO) -> None:
        self._file, self.count, self.last = file, 0, ""

    def add(self, skipped: Iterable[tuple[int, str, str]]) -> None:
        """skipped: (index, id, reason) of records."""
        for _, name, reason in skipped:
            self.count += 1
            self.last = f"{name}: {reason}"
            self._file.write(json.dumps({"id": name, "reason": reason}) + "\n")


@contextmanager
def listing(out: AnyPath) -> Iterator[Skipped]:
    """Collects the skipped records of a folder in the order of the source, and writes NAME if there
    are any."""
    with any_path.drafts([out / NAME]) as (draft,):
        with draft.open("w", encoding="utf-8") as file:
            yield (skipped := Skipped(file))
        if skipped.count:
            any_path.put(draft, out / NAME)
        else:
            (out / NAME).unlink(missing_ok=True)
