"""The records that `vlc-jax prepare` could not use: in the manifest, or a file beside it."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from vlc_jax.input_pipeline import record_validation
from vlc_jax.input_pipeline.stores import any_path
from vlc_jax.input_pipeline.stores.any_path import AnyPath

NAME = "skipped.jsonl"
# records that a manifest lists; with more of them it has their number
_LISTED = 1_000


class Skipped:
    """Skipped records in the order of the source; a few of them are in memory."""

    def __init__(self, file: TextIO) -> None:
        self._file, self._first = file, dict[str, str]()
        self.count, self.last = 0, ""

    def add(self, skipped: Iterable[tuple[int, str, str]]) -> None:
        """skipped: (index, id, reason) of records."""
        for _, name, reason in skipped:
            self.count += 1
            self.last = f"{name}: {reason}"
            if self.count <= _LISTED:
                self._first[name] = reason
            self._file.write(json.dumps({"id": name, "reason": reason}) + "\n")

    @property
    def is_listed(self) -> bool:
        return self.count <= _LISTED

    @property
    def for_manifest(self) -> Mapping[str, str] | int:
        """id -> reason; the number of records if they are many, which are then in NAME."""
        return self._first if self.is_listed else self.count


@contextmanager
def listing(out: AnyPath) -> Iterator[Skipped]:
    """Collects the skipped records of a folder, and writes NAME if they are many."""
    with any_path.drafts([out / NAME]) as (draft,):
        with draft.open("w", encoding="utf-8") as file:
            yield (skipped := Skipped(file))
        if skipped.is_listed:
            (out / NAME).unlink(missing_ok=True)
        else:
            any_path.put(draft, out / NAME)


def number(manifest: Mapping[str, Any]) -> int:
    """Number of the skipped records of a manifest."""
    skipped = manifest["skipped"]
    return skipped if isinstance(skipped, int) else len(skipped)


def check(manifest: Mapping[str, Any], limit: float, total: int) -> None:
    """Raises DataError if the manifest has more than `limit` skipped records of `total`."""
    if isinstance(manifest["skipped"], int):
        record_validation.check_count(manifest["skipped"], f"in {NAME}", limit, total)
    else:
        record_validation.check_share(manifest["skipped"], limit, total)
