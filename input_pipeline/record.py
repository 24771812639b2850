"""THE record contract: what any source yields for one example, before pixels and tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np


@dataclass(frozen=True)
class Crop:
    """Part of an image: box (left, top, right, bottom) in pixels; what lies outside is black."""

    image: "bytes | Path | PackedImage"
    box: tuple[int, int, int, int]


@dataclass(frozen=True)
class PackedImage:
    """Encoded bytes inside a Parquet file, as Hugging Face packs images: of a row and a column
    that is bytes or {bytes, path}; item: of a column of lists, which one."""

    file: Path
    row: int
    column: str
    item: int | None = None


@dataclass(frozen=True)
class ShuffledImage:
    """An image whose parts change places after it was resized and cropped (ARO, section 3).

    shuffle: rows_4 | cols_4 | patches_9.   order: new place -> old place of the parts, row by row.
    """

    image: "bytes | Path | np.ndarray | Crop | PackedImage"
    shuffle: str
    order: tuple[int, ...]


@dataclass(frozen=True)
class AskedImage:
    """An image with the question that is asked of it, which a model may read behind the image
    (VLM2Vec)."""

    image: "bytes | Path | np.ndarray | Crop | PackedImage | ShuffledImage"
    question: str


ImageLike = bytes | Path | np.ndarray | Crop | PackedImage | ShuffledImage | AskedImage
"""Encoded image bytes, the path of an image file, uint8 pixels (height, width, 3), or how to get
there from one of these."""


class DataError(Exception):
    """Data that cannot be used: the rule, the record or file it was found in, what to do.

    A run that meets one ends with exit code 3.
    """

    exit_code = 3


class ShardError(Exception):
    """A shard that is not what its manifest says. No DataError: by that a record is passed over,
    and all records of the shard would be. A run that meets one ends with exit code 3."""

    exit_code = 3


class StageError(Exception):
    """A shard that cannot be copied: a full local disk, or failing storage. A run that meets one
    ends with exit code 30."""

    exit_code = 30


@dataclass(frozen=True)
class Record:
    """One example of a source. Without an image it is a text alone (LLaVA's conversations about
    nothing to be seen), of a source that says so: see `has_text_only`.

    `negatives` and `positives` hold one list per caption (hard negatives that are wrong for the
    image, hard positives that are right for it); empty means: made on the fly or not used.
    `negative_kinds` and `positive_kinds` say, in lists of the same shape, what each of them is
    ("negclip", "replace", ...: the generator); empty means: not known.
    `questions` holds for each caption the question that it answers; empty means: there are none.
    `hard_images` are ids of records whose images are easily confused with this one. `group` is
    any JSON value to split results by; `meta` anything else a reader of the source may want.
    """

    id: str
    image: ImageLike | None
    captions: Sequence[str]
    negatives: Sequence[Sequence[str]] = ()
    positives: Sequence[Sequence[str]] = ()
    negative_kinds: Sequence[Sequence[str]] = ()
    positive_kinds: Sequence[Sequence[str]] = ()
    questions: Sequence[str] = ()
    hard_images: Sequence[str] = ()
    group: Any = None
    meta: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class Source(Protocol):
    """A random-access collection of records.

    `source[i]` is a pure function of i, cheap to pickle to a worker, and raises DataError for a
    record that cannot be read. `fingerprint` changes whenever the data or their order change: it
    is stored with a run and compared when the run resumes.
    """

    fingerprint: str

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Record: ...


@runtime_checkable
class Findable(Protocol):
    """A source whose records can be had by their id, as hard images need it."""

    def find(self, record_id: str) -> Record:
        """Raises DataError if there is no such record, or if it cannot be read."""
        ...


@runtime_checkable
class Sharded(Protocol):
    """A source whose neighbouring records lie together in files.

    shuffle: the order of training, a name in `order.SHUFFLES`.
    """

    shuffle: str

    def read_ahead(self, indices: np.ndarray) -> None:
        """Begins to fetch the files of these records; returns at once."""
        ...

    def take_counts(self) -> dict[str, int]:
        """Reads of this process since the last call; see sources/staged_shards.py: ReadCounts."""
        ...


def has_text_only(source: Source) -> bool:
    """True if a source may have records without an image, as its attribute of this name says."""
    return getattr(source, "has_text_only", False)
