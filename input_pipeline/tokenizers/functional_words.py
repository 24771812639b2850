"""A tokenizer that also says which tokens are functional words ("left", "not"), for DCSM."""

from collections.abc import Sequence

import numpy as np

from vlc_jax.input_pipeline.tokenizers.tokenizer import Tokenizer

POSITIONS = ("token", "word")


class FunctionalWordTokenizer:
    """A tokenizer and, beside its ids, the marks of the functional words in a text.

    A mark is 1 + the index of a word in `words`, at the first occurrence of that word in the text;
    0 elsewhere. A word is found where it stands between spaces, in the same case ("left." is not
    "left").

    position: token, the mark is at the word's first token; word: at the token whose number is that
      of the word. The latter is what the authors of DCSM do (Raphoo/DCSM_Ideal_CLIP): since a start
      token comes first, it is the token before, or an earlier one still if a word before it has
      several tokens.

    Raises ValueError for an unknown position, and for words that repeat, have spaces or are more
    than an int8 counts.
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
        # From Python 3.12 on, isinstance(self, Tokenizer) does not see what __getattr__ gives.
        self.pad_id, self.eos_id = tokenizer.pad_id, tokenizer.eos_id
        self.vocab_size, self.context_length = tokenizer.vocab_size, tokenizer.context_length

    def __getattr__(self, name: str):  # such as unk_id, of some tokenizers
        if name == "tokenizer":  # not there yet while this is unpickled
            raise AttributeError(name)
        return getattr(self.tokenizer, name)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """int32 (texts, context_length), the ids of the tokenizer."""
        return self.tokenizer(texts)

    def marks(self, texts: Sequence[str]) -> np.ndarray:
        """int8 (texts, context_length), the marks of every text."""
        marks = np.zeros((len(texts), self.tokenizer.context_length), np.int8)
        for row, text in zip(marks, texts, strict=True):
            words = text.split(" ")
            for index, word in enumerate(self.words):
                if word not in words:
                    continue
                position = words.index(word)
                if self.position == "token":
                    position = self._num_tokens(words[:position])
                # several words behind the end of a cut text have its last position: the first of
                # the list keeps it
                if position < len(row) and not row[position]:
                    row[position] = 1 + index
        return marks

    def _num_tokens(self, words: Sequence[str]) -> int:
        """Number of tokens before the text that follows these words."""
        row = self.tokenizer([" ".join(words)])[0]
        ends = np.flatnonzero(row == self.tokenizer.eos_id)
        return int(ends[0]) if len(ends) else self.tokenizer.context_length

    def vocabulary(self) -> dict[str, int]:
        """Token -> id, of the tokenizer."""
        return self.tokenizer.vocabulary()
