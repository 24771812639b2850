"""Marks on tokens: which word of a short list is written there. DCSM reads them as rows of its map.

A marked token is its id plus MARK times (1 + the place of the word in the list).
"""

from collections.abc import Sequence

import numpy as np

from input_pipeline.tokenizers.tokenizers import Tokenizer

MARK = 2**24  # above every vocabulary
INDICES = ("token", "word")


class MarkingTokenizer:
    """Another tokenizer's ids, the first occurrence of each of `words` in a text being marked.

    A word is found where it stands between spaces, in the same case ("left." is not "left").

    index: token, its first token is marked; word: the token whose place in the row is the place of
      the word in the text, counted in words. The latter is what the authors of DCSM do
      (Raphoo/DCSM_Ideal_CLIP): since a start token comes first, it is the token before, or an
      earlier one still if a word before it has several tokens.
    """

    def __init__(self, tokenizer: Tokenizer, words: Sequence[str], index: str = "token") -> None:
        if index not in INDICES:
            raise ValueError(f"index is one of {INDICES}; got {index!r}")
        broken = [word for word in words if word.split() != [word]]
        if broken or len(set(words)) != len(words):
            raise ValueError(f"words are different and have no spaces; got {list(words)}")
        if tokenizer.vocab_size > MARK:
            raise ValueError(f"ids must be below {MARK} to be marked; got {tokenizer.vocab_size}")
        self.tokenizer, self.words, self.index = tokenizer, tuple(words), index
        self.fingerprint = tokenizer.fingerprint

    def __getattr__(self, name: str):  # pad_id, eos_id, vocab_size, context_length, unk_id
        if name == "tokenizer":  # not there yet while this is unpickled
            raise AttributeError(name)
        return getattr(self.tokenizer, name)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """int32 (texts, context_length), some of them marked."""
        ids = self.tokenizer(texts)
        for row, text in zip(ids, texts, strict=True):
            words = text.split(" ")
            for place, word in enumerate(self.words):
                if word not in words:
                    continue
                at = words.index(word)
                if self.index == "token":
                    at = self._tokens(words[:at])
                if at < len(row):
                    row[at] += MARK * (1 + place) if row[at] < MARK else 0
        return ids

    def _tokens(self, words: Sequence[str]) -> int:
        """How many tokens stand before the text that follows these words."""
        length, before = self.tokenizer.context_length, " ".join(words)
        row = self.tokenizer([before])[0]
        ends = np.flatnonzero(row == self.tokenizer.eos_id)
        return int(ends[0]) if len(ends) else length

    def vocabulary(self) -> dict[str, int]:
        """That of the tokenizer."""
        return self.tokenizer.vocabulary()
