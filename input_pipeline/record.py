"""THE record contract: one example of any source, before pixels and tokens."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path, PurePath
from typing import Any, BinaryIO, Literal, Protocol, runtime_checkable

import numpy as np

# characters; a longer text is a damaged file, not a caption
MAX_CAPTION = 100_000
# option -> usual names of its column, which are compared in lower case
COLUMNS = {
    "image": ("image", "filepath", "file_path", "image_path", "path", "file_name", "filename",
              "file", "image_name", "img", "picture"),
    "caption": ("caption", "captions", "title", "text", "sentence", "description", "txt"),
    "negatives": ("negatives", "negative", "negative_captions", "negative_caption", "neg_caption",
                  "hard_negatives", "hard_negative"),
    "positives": ("positives", "positive", "positive_captions", "positive_caption", "pos_caption",
                  "hard_positives", "hard_positive"),
}  # fmt: skip
# bytes, of Linux and of most file systems
_MAX_NAME, _MAX_PATH = 255, 4_095
# white space, zero-width letters and marks of direction or byte order
_BLANK = "".join(filter(str.isspace, map(chr, range(0x3001)))) + "\u200b\u200c\u200d\u200e\u200f"
_BLANK += "\u2060\ufeff"
_NO_TEXT = re.compile(r"[\0\ud800-\udfff]")  # half a surrogate pair: JSON can hold it, UTF-8 not


@dataclass(frozen=True)
class Crop:
    """Part of an image: box (left, top, right, bottom) in pixels as stored, before EXIF orientation
    is applied; black beyond the border."""

    image: "bytes | Path | PackedImage"
    box: tuple[int, int, int, int]


class ReadableFile(Protocol):
    """A Path, or a file in an object store (`stores/any_path.py`)."""

    @property
    def name(self) -> str: ...
    @property
    def stem(self) -> str: ...
    def open(self, mode: Literal["rb"]) -> BinaryIO:
        """The file, to be read from any position."""
        ...


@dataclass(frozen=True)
class PackedImage:
    """An encoded image in a Parquet file, in Hugging Face's layout: a cell holds bytes or
    {bytes, path}.   item: index into the cell, if it is a list of these."""

    file: ReadableFile
    row: int
    column: str
    item: int | None = None

    def __str__(self) -> str:
        return f"{self.file.stem}/{self.row}"


@dataclass(frozen=True)
class ShuffledImage:
    """An image whose parts are permuted after resizing and cropping (ARO, section 3).

    shuffle: rows_4 | cols_4 | patches_9.   order: new -> old position of the parts, row by row.
    """

    image: "bytes | Path | np.ndarray | Crop | PackedImage"
    shuffle: str
    order: tuple[int, ...]


@dataclass(frozen=True)
class ImageQuestion:
    """An image with a question about it, which some models read after the image (VLM2Vec)."""

    image: "ImageLike"
    question: str


ImageLike = bytes | Path | np.ndarray | Crop | PackedImage | ShuffledImage | ImageQuestion
"""Encoded image bytes, the path of an image file, uint8 pixels (height, width, 3), or a lazy
transform of one of these."""


class DataError(Exception):
    """Unusable data. The message names the rule, the record or file, and the remedy.

    Ends a run with exit code 3.
    """

    exit_code = 3


@dataclass(frozen=True)
class Conversation:
    """Questions about an image and their answers, in place of a caption (LLaVA).

    turns: (question, answer) pairs.   has_image: False for a conversation without an image.
    is_scored: whether its answer is to be scored, log p(answer | image, question): a tokenizer
      refuses to cut it.   marks_end: whether the end token of a scored answer counts.

    `str` is its text in files: [[question, answer], ...] in JSON, {"text_only": [...]} without an
    image, and a third element, `marks_end`, in turns to be scored. `read_caption` is the inverse.
    """

    # A dataclass and no named tuple: json.dumps and jax.tree would take a tuple for a list.
    turns: tuple[tuple[str, str], ...]
    has_image: bool = True
    is_scored: bool = False
    marks_end: bool = True

    @classmethod
    def scored(cls, question: str, answer: str, marks_end: bool = True) -> "Conversation":
        """One turn whose answer is to be scored."""
        return cls(((question, answer),), is_scored=True, marks_end=marks_end)

    def __str__(self) -> str:
        more = [self.marks_end] if self.is_scored else []
        turns = [[*turn, *more] for turn in self.turns]
        return json.dumps(turns if self.has_image else {"text_only": turns}, ensure_ascii=False)


Caption = str | Conversation

_START = '[["'  # of the text of a conversation
_START_TEXT_ONLY = '{"text_only": [["'


def read_caption(text: str) -> Caption:
    """The caption that a file holds as text: a Conversation if it starts like one.

    Raises DataError for a malformed conversation.
    """
    if not text.startswith((_START, _START_TEXT_ONLY)):
        return text
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    has_image = not isinstance(document, dict)
    turns = document if has_image else document["text_only"]
    is_valid = (
        isinstance(turns, list)
        and len(turns) > 0  # a key "text_only" may be repeated, the last time with []
        and all(
            isinstance(turn, list)
            and [type(x) for x in turn] in ([str, str], [str, str, bool])
            # the same third element in all turns, or none: a conversation is scored as a whole
            and turn[2:] == turns[0][2:]
            for turn in turns
        )
    )
    if not is_valid:
        raise DataError(
            f"a text that starts with {_START} or {_START_TEXT_ONLY} is a conversation, "
            f"[[question, answer], ...] in JSON; got {text[:80]!r}: write one with the source "
            "llava, answers=conversation"
        )
    pairs, more = tuple((turn[0], turn[1]) for turn in turns), turns[0][2:]
    return Conversation(pairs, has_image, is_scored=bool(more), marks_end=more != [False])


def trimmed(texts: Any) -> Any:
    """A text, or nested lists of texts, without white space and invisible letters at the ends of
    the texts: line ends of .txt files and cells are no part of a caption. All else is unchanged."""
    if isinstance(texts, str):
        return texts.strip(_BLANK)
    # empty ones at once: every record has some
    if not isinstance(texts, (list, tuple)) or not texts:
        return texts
    parts = [*map(trimmed, texts)]
    return texts if parts == [*texts] else type(texts)(parts)


def check_text(text: str, kind: str = "a text") -> None:
    """Raises DataError for a text too long for a caption, or with a character that no text has."""
    if len(text) > MAX_CAPTION:
        raise DataError(f"{kind} of {len(text):,} characters (limit {MAX_CAPTION:,})")
    if _NO_TEXT.search(text):
        raise DataError(f"{kind} that is not Unicode, or holds NUL; got {text!r:.80}")


def path_below(folder: Path, name: str) -> Path:
    """The path of a file by its name in a folder.

    Raises DataError for a name that leads out of the folder, or that no file can have. Links inside
    the folder are followed, wherever they lead: only its owner can put them there.
    """
    parts = PurePath(name).parts
    if not parts or name.endswith("/"):
        raise DataError(f"the name of a folder in place of a file's; got {name!r:.80}")
    if PurePath(name).is_absolute() or ".." in parts:
        raise DataError(
            f"a file name that leads out of its folder; names are relative, without '..'; got "
            f"{name!r:.80}"
        )
    size = max(len(part.encode(errors="replace")) for part in parts)
    if size > _MAX_NAME or len(name) > _MAX_PATH or _NO_TEXT.search(name):
        raise DataError(f"a name that no file can have; got {name!r:.80}")
    return folder / name


class ShardError(Exception):
    """A shard that contradicts its manifest. Ends a run with exit code 3.

    Not a DataError: the loader skips records with a DataError, and would skip the whole shard.
    """

    exit_code = 3


class StageError(Exception):
    """A shard that cannot be copied: full local disk or failing storage.

    Ends a run with exit code 30.
    """

    exit_code = 30


@dataclass(frozen=True)
class Record:
    """One example of a source. `image` is None for a text-only record (LLaVA's conversations
    without an image), which only sources with `has_text_only` yield.

    Texts are without white space at their ends. `negatives` and `positives` hold one list per
    caption: hard negatives (false for the image) and hard positives (true for it); empty: generated
    on the fly or unused. `negative_kinds` and
    `positive_kinds` name the generator of each text ("negclip", "replace", ...) in lists of the
    same shape; empty: unknown. `questions` holds the question that each caption answers; empty:
    none. `hard_images` are ids of records whose images are easily confused with this one. `group`
    is any JSON value to split results by; `meta` holds further data of the source. Training draws
    a caption by `caption_weights`, one per caption, 0: never; empty: each as often as another.
    """

    id: str
    image: ImageLike | None
    captions: Sequence[Caption]
    negatives: Sequence[Sequence[str]] = ()
    positives: Sequence[Sequence[str]] = ()
    negative_kinds: Sequence[Sequence[str]] = ()
    positive_kinds: Sequence[Sequence[str]] = ()
    questions: Sequence[str] = ()
    hard_images: Sequence[str] = ()
    group: Any = None
    meta: dict[str, Any] = field(default_factory=dict)
    caption_weights: Sequence[float] = ()

    def __post_init__(self) -> None:
        for name in ("captions", "negatives", "positives"):
            object.__setattr__(self, name, trimmed(getattr(self, name)))


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
    """A source with lookup of records by id, which hard images need.

    Its attribute `finds_more` is True if hard images are found that are no records of `source[i]`.
    """

    def find(self, record_id: str) -> Record:
        """Raises DataError if there is no such record, or if it cannot be read."""
        ...


@runtime_checkable
class Sharded(Protocol):
    """A source that stores neighbouring records in the same file.

    shuffle: the order of training, a name in `order.SHUFFLES`.
    """

    shuffle: str

    def read_ahead(self, indices: np.ndarray) -> None:
        """Starts to fetch the files of these records; returns at once."""
        ...

    def take_counts(self) -> dict[str, int]:
        """Reads of this process since the last call; see sources/staged_shards.py: ReadCounts."""
        ...


@runtime_checkable
class Grouped(Protocol):
    """A source whose records form groups of `group_size` neighbours, which training reads in a row;
    len(source) is a multiple of it.

    Sub-batches take turns in reading records (train/step.py), so with `group_size` of them each has
    the records of one place in the group.
    """

    group_size: int


@runtime_checkable
class Mixed(Protocol):
    """A source of the records of several, `parts`, one after the other, which training mixes.

    weights: step -> a weight per part from that step on; 0 is among the steps.   names: of parts.
    """

    parts: Sequence[Source]
    weights: Mapping[int, Sequence[Fraction]]
    names: Sequence[str]


def has_text_only(source: Source) -> bool:
    """True if a source may yield records without an image (its attribute of the same name)."""
    return getattr(source, "has_text_only", False)


def find_columns(
    path: object,
    names: Sequence[str],
    given: Mapping[str, str | None],
    usual: Mapping[str, Sequence[str]],
    needed: Sequence[str],
) -> dict[str, str]:
    """Columns of a table with these names, by their option in `usual`: the given name, else the
    first usual one. "none" is no column. Raises ValueError if a needed one is missing."""
    known = {name.lower(): name for name in names}
    columns = {}
    for option, words in usual.items():
        argument = given.get(option)
        found = [argument] if argument else [known[word] for word in words if word in known]
        if found and argument != "none":
            columns[option] = found[0]
        if known and option in needed and columns.get(option) not in names:
            raise ValueError(
                f"{path} has no column of {option} ({argument or ', '.join(words)}): name it by "
                f"{option}_column, of {', '.join(names)}"
            )
    if columns and known:
        listing = ", ".join(f"{option}={name}" for option, name in columns.items())
        print(f"{path}: columns {listing}", file=sys.stderr)
    return columns
