"""Left/right hard negatives: "on the left" becomes "on the right" and vice versa.

"On erroneous agreements of CLIP image embeddings", section 4.2 and appendix B, and the authors'
code, whose table has six phrases; the paper lists five.
"""

import re
from collections.abc import Sequence

import numpy as np

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.hard_texts import edit, word_tables
from vlc_jax.input_pipeline.hard_texts.generator import CaptionGenerator

KEYS = ("phrases", "words")


class LeftRight(CaptionGenerator):
    """Swaps left and right: one text, or none if the caption has no such phrase.

    keys "phrases": on/to/at the left/right; "words": "left" and "right" anywhere, one occurrence
    drawn (it also changes "a man left the room").

    Mode "authors" replaces every occurrence of one phrase, the first of the table that occurs in
    lower case, and no other phrase: "A on the left, B on the right" becomes "A on the right, B on
    the right". Mode "clean" replaces all phrases at once, as whole words, in any case.
    """

    name = "left_right"

    def __init__(self, keys: str = "phrases", mode: str = "clean") -> None:
        edit.check_mode(mode)
        lookup.check_known("kind of keys", [keys], KEYS)
        self._keys, self._is_clean = keys, mode == "clean"
        self.is_fixed = self._is_clean or keys == "phrases"
        self._table = word_tables.LEFT_RIGHT if keys == "phrases" else word_tables.LEFT_RIGHT_WORDS
        self._pattern = edit.whole(self._table)
        self.version = edit.version("1", mode=mode, keys=keys)

    def texts(self, caption: str, rng: np.random.Generator, count: int) -> Sequence[str]:
        """At most one text; up to `count` for keys="words" in mode "authors"."""
        if self._is_clean:
            matches = list(self._pattern.finditer(caption))
            new = [self._table[match[0].lower()] for match in matches]
            new = [edit.like(text, match[0]) for text, match in zip(new, matches, strict=True)]
            edits = [(*match.span(), text) for text, match in zip(new, matches, strict=True)]
            return edit.distinct([edit.apply(caption, edits)], caption)
        if self._keys == "words":
            words = [m for m in re.finditer(r"\S+", caption) if m[0].lower() in self._table]
            chosen = edit.choose(rng, words, count)
            return [edit.apply(caption, [(*m.span(), self._table[m[0].lower()])]) for m in chosen]
        # As in the authors' code, only the first matching key of the table is replaced.
        for phrase, opposite in self._table.items():
            if phrase in caption:
                return [caption.replace(phrase, opposite)]
        return []
