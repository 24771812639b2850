"""The tokenizer protocol, and shared helpers: packing ids into rows, reading files.

Every row ends its tokens with EOS, cut captions included, and is filled with `pad_id`. The empty
caption is a row of start token (where there is one), EOS and padding; the loader treats a record
without any text as unusable, so such a row only fills an absent negative or positive.
"""

import hashlib
import math
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from vlc_jax.input_pipeline.record import Caption, Conversation, DataError
from vlc_jax.input_pipeline.tokenizers import clean as cleaning

# bytes of a vocabulary's file; the largest published have 35 MB
MAX_VOCABULARY_FILE = 2**28


@runtime_checkable
class Tokenizer(Protocol):
    """Captions -> token ids of fixed length, or vectors.

    The contract of a tokenizer with models, loader and evaluators.
    A tokenizer inherits it, sets the first five attributes and defines `rows`; the others have
    defaults. One that can turn ids into text also has `decode(ids)`.
    """

    vocab_size: int
    pad_id: int
    eos_id: int
    context_length: int
    fingerprint: str  # sha256 of the file or the word list that defines the ids
    unk_id: int | None = None  # stands for unknown words
    width: int | None = None  # of precomputed vectors; None: token ids
    reads_conversations: bool = False  # a Conversation, whose answers have marks
    words: tuple[str, ...] = ()  # functional words, which have marks
    before: str = ""  # the text before the image, for conversations without one

    def rows(self, texts: Sequence[Caption]) -> Iterable[Sequence[int]]:
        """Ids of each text, of any length, with or without EOS."""
        ...

    def __call__(self, texts: Sequence[Caption]) -> np.ndarray:
        """int32 (texts, context_length), or float32 (texts, width).

        Raises DataError for items that are no texts.
        """
        check_texts(texts)
        return pack(self.rows(texts), self.context_length, self.pad_id, self.eos_id)

    @property
    def has_marks(self) -> bool:
        """True if tokens of answers or functional words have marks."""
        return self.reads_conversations or bool(self.words)

    def marks(self, texts: Sequence[Caption]) -> np.ndarray:
        """int8 (texts, context_length), of a tokenizer that `has_marks`."""
        raise NotImplementedError(f"{type(self).__name__} marks no tokens")

    def vocabulary(self) -> dict[str, int]:
        """Token -> id of all named tokens; equal for equal tokenizers."""
        return {}

    @property
    def terminators(self) -> tuple[int, ...]:
        """Ids that end a generated text."""
        return (self.eos_id,)

    def prompt(self, text: str) -> list[int]:
        """Ids between an image and generated text, without an end token: the first words of a
        caption, or a question in its template.

        Raises DataError for a prompt that fills context_length.
        """
        row = self([text])[0]
        length = int(np.argmax(row == self.eos_id))
        # full, or cut: nothing would be left to write
        if length == len(row) - 1:
            raise DataError(
                f"the text {text[:60]!r} fills all {len(row)} tokens of config.text."
                "context_length: shorten it"
            )
        return row[:length].tolist()

    def before_image(self, text: str) -> tuple[int, ...]:
        """Ids of the text before an image. Raises ValueError if this tokenizer has no template."""
        raise ValueError(
            "config.model.head.prefix as a text needs config.text.tokenizer='conversation' or 'hf';"
            " set token ids instead"
        )

    def require(self, texts: Sequence[Caption], *, forget: bool = False) -> None:
        """Prepares precomputed vectors of these texts (`TextVectors.require`)."""


class FileTokenizer(Tokenizer):
    """A tokenizer whose file a library reads.   clean: a key of clean.CLEANINGS.

    data: the bytes of the file.
    """

    def __init__(self, context_length: int, data: bytes, clean: str) -> None:
        self._clean = cleaning.named(clean)
        self.context_length = check_length(context_length)
        self.fingerprint = hashlib.sha256(data).hexdigest()

    def _cleaned(self, texts: Sequence[str]) -> list[str]:
        return [cleaning.without_surrogates(self._clean(text)) for text in texts]


def check_texts(texts: Sequence[Caption]) -> None:
    """Raises DataError for a string instead of a list of them, and for items that are no texts."""
    if isinstance(texts, str):
        raise DataError("texts are a list, even of one; got str")
    for index, text in enumerate(texts):
        if not isinstance(text, Caption):
            raise DataError(f"texts[{index}] is {text!r:.50}, no string: leave it out or write it")


def tokenize(
    tokenizer: Tokenizer, texts: Sequence[Caption], name: str = "text"
) -> dict[str, np.ndarray]:
    """{`name`: token ids or vectors}; a tokenizer that marks tokens adds {`name`_marks: marks}.

    Raises DataError for a conversation if the tokenizer reads none.
    """
    # here and not in each tokenizer: their libraries would raise a TypeError without a remedy
    if not tokenizer.reads_conversations:
        talk = next((text for text in texts if isinstance(text, Conversation)), None)
        if talk is not None:
            raise DataError(
                f"{str(talk)[:80]!r} is a conversation, which only the tokenizer 'conversation' "
                "reads: set config.text.tokenizer to it, or take captions"
            )
    arrays = {name: tokenizer(texts)}
    if tokenizer.has_marks:
        arrays[f"{name}_marks"] = tokenizer.marks(texts)
    return arrays


def pack(rows: Iterable[Sequence[int]], length: int, pad: int, eos: int) -> np.ndarray:
    """Cuts and pads rows of ids: int32 (rows, length), EOS after the last token.

    A row that is too long has EOS in its last column.
    """
    rows = list(rows)
    packed = np.full((len(rows), length), pad, np.int32)
    for index, row in enumerate(rows):
        # some libraries append EOS themselves: dropped here, so that a cut row has one, too
        if row and row[-1] == eos:
            row = row[:-1]
        count = min(len(row), length - 1)
        packed[index, :count] = row[:count]
        packed[index, count] = eos
    return packed


def check_length(context_length: int, special: int = 1) -> int:
    """The length. Raises ValueError if `special` tokens leave no room for a word."""
    if context_length <= special:
        raise ValueError(
            f"context_length must leave room for a word beside {special} special token(s); "
            f"got {context_length}"
        )
    return context_length


def read_file(path: str | Path, what: str, most: float = math.inf) -> bytes:
    """The bytes of a tokenizer's file, at most `most`. Raises ValueError, which names the file by
    `what`."""
    if not str(path):
        raise ValueError(f"this tokenizer needs `path`, the {what}")
    try:
        status = Path(path).stat()
        # a device has no end, and a pipe waits for its writer
        if not stat.S_ISDIR(status.st_mode) and not stat.S_ISREG(status.st_mode):
            raise ValueError("it is a device or a pipe")
        if status.st_size > most:
            raise ValueError(f"it has {status.st_size:,} bytes, more than the limit of {most:,}")
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", error)
        raise ValueError(f"cannot read the {what} {path!s:.200}: {reason}") from error
