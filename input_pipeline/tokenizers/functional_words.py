"""Tokenizer that also marks functional words ("left", "not"), for DCSM."""

from collections.abc import Iterable, Sequence

import numpy as np

from vlc_jax.input_pipeline.tokenizers.tokenizer import Tokenizer

POSITIONS = ("token", "word")


class FunctionalWordTokenizer(Tokenizer):
    """The ids of a tokenizer, and marks of the functional words in a text.

    A mark is 1 + the index of a word in `words`, at the first occurrence of that word in the text;
    0 elsewhere. Words are compared exactly, between spaces ("left." and "Left" are not "left").

    position: token, mark the word's first token; word, mark token number i for word number i, as
      the authors' code does (Raphoo/DCSM_Ideal_CLIP). Because of the start token, the latter is
      the token before the word, or an earlier one if a preceding word has several tokens.

    Raises ValueError for an unknown position, repeated words, words with spaces, or more words than
    an int8 counts.
    """

    def __init__(self, tokenizer: Tokenizer, words: Sequence[str], position: str = "token") -> None:
        if position not in POSITIONS:
            raise ValueError(f"position is one of {POSITIONS}; got {position!r}")
        broken = [word for word in words if word.split() != [word]]
        if broken or len(set(words)) != len(words):
            raise ValueError(f"words are different and have no spaces; got {list(words)}")
        if len(words) > np.iinfo(np.int8).max:
            raise ValueError(f"at most {np.iinfo(np.int8).max} words have marks; got {len(words)}")
        self.tokenizer, self.words, self.position = tokenizer, tuple(words), position
        self.fingerprint = tokenizer.fingerprint
        # copied: Python finds the protocol's defaults before it calls __getattr__
        self.pad_id, self.eos_id, self.unk_id = tokenizer.pad_id, tokenizer.eos_id, tokenizer.unk_id
        self.vocab_size, self.context_length = tokenizer.vocab_size, tokenizer.context_length

    # sot_id and decode, which only some tokenizers have
    def __getattr__(self, name: str):
        # not set yet during unpickling
        if name == "tokenizer":
            raise AttributeError(name)
        return getattr(self.tokenizer, name)

    def rows(self, texts: Sequence[str]) -> Iterable[Sequence[int]]:
        """The ids of the tokenizer."""
        return self.tokenizer.rows(texts)

    def marks(self, texts: Sequence[str]) -> np.ndarray:
        """int8 (texts, context_length)."""
        marks = np.zeros((len(texts), self.tokenizer.context_length), np.int8)
        for row, text in zip(marks, texts, strict=True):
            words = text.split(" ")
            for index, word in enumerate(self.words):
                if word not in words:
                    continue
                position = words.index(word)
                if self.position == "token":
                    position = self._num_tokens(words[:position])
                # all words beyond the cut get the last position: the first in `words` wins
                if position < len(row) and not row[position]:
                    row[position] = 1 + index
        return marks

    def _num_tokens(self, words: Sequence[str]) -> int:
        """Number of tokens of these words, the start token included."""
        row = self.tokenizer([" ".join(words)])[0]
        ends = np.flatnonzero(row == self.tokenizer.eos_id)
        return int(ends[0]) if len(ends) else self.tokenizer.context_length

    def vocabulary(self) -> dict[str, int]:
        """Token -> id of the tokenizer."""
        return self.tokenizer.vocabulary()
