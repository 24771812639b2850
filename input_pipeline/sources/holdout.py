"""Holdout: the share of the images kept out of training, chosen by a hash of their names."""

import functools
import hashlib
from collections.abc import Iterator
from typing import Any

from input_pipeline.record import DataError
from input_pipeline.sources import tables

# Rows of a table up to which a holdout is an exact number of images. Larger tables are not parsed
# twice for it; a share by hash misses their number by a few per cent at most.
EXACT_ROWS = 10_000


class Holdout:
    """The images of a table that are held out: those whose hash lies below a bound.

    Up to EXACT_ROWS rows they are round(share * n) of the n images, at least one, and never all: an
    image that is added later may move one other across the bound. In larger tables the bound is
    share * 2**64, whatever the images: none ever moves.
    """

    def __init__(self, table: tables.Table, image_column: str, share: float) -> None:
        if not 0 <= share < 1:
            raise ValueError(f"holdout is a share in [0, 1); got {share}")
        self.share = share
        self.is_exact = len(table) <= EXACT_ROWS
        self._table, self._column = table, image_column

    def __contains__(self, row: dict[str, Any]) -> bool:
        # By the image and not by the row: all captions of an image are on the same side.
        return image_hash(row.get(self._column)) < self._bound

    @functools.cached_property
    def _bound(self) -> int:
        if not self.is_exact:
            return int(self.share * 2**64)
        # Of all rows, whatever a source excludes: training with `exclude` and evaluation without it
        # must agree on the images that are held out.
        hashes = sorted({image_hash(row.get(self._column)) for row in readable_rows(self._table)})
        number = min(max(round(self.share * len(hashes)), 1), len(hashes) - 1)
        return hashes[number] if hashes else 0


def image_hash(image: Any) -> int:
    """Hash of an image's name, uniform over 64 bits."""
    digest = hashlib.blake2b(str(image).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def readable_rows(table: tables.Table) -> Iterator[dict[str, Any]]:
    """The rows of a table without the damaged ones."""
    for index in range(len(table)):
        try:
            yield table[index]
        except DataError:
            continue
