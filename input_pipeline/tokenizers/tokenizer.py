"""The tokenizer protocol, and shared helpers: packing ids into rows, reading files.

Every row ends its tokens with EOS, cut captions included, and is filled with `pad_id`. The empty
caption is a row of start token (where there is one), EOS and padding; the loader treats a record
without any text as unusable, so such a row only fills an absent negative or positive.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np


@runtime_checkable
class Tokenizer(Protocol):
    """Texts -> token ids of fixed length; the interface that models and the loader use."""

    vocab_size: int
    pad_id: int
    eos_id: int
    context_length: int
    fingerprint: str  # sha256 of the file or the word list that defines the ids

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """int32 (texts, context_length)."""
        ...

    def vocabulary(self) -> dict[str, int]:
        """Token -> id of all named tokens; equal for equal tokenizers."""
        ...


def pack(rows: Iterable[Sequence[int]], length: int, pad: int, eos: int) -> np.ndarray:
    """Cuts and pads rows of ids: int32 (rows, length), EOS after the last token.

    A row that is too long has EOS in its last column.
    """
    rows = list(rows)
    packed = np.full((len(rows), length), pad, np.int32)
    for index, row in enumerate(rows):
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


def read_file(path: str | Path, what: str) -> bytes:
    """The bytes of a tokenizer's file. Raises ValueError, which names the file by `what`."""
    if not str(path):
        raise ValueError(f"this tokenizer needs `path`, the {what}")
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read the {what} {path}: {error.strerror}") from error
