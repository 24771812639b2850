"""Left/right hard negatives: "on the left" becomes "on the right" and vice versa.

"On erroneous agreements of CLIP image embeddings", section 4.2 and appendix B, and the authors'
code, which has six phrases where the paper lists five.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.hard_texts import edit, word_tables

KEYS = ("phrases", "words")


class LeftRight:
    """One text, or none where the caption has no such phrase.

    keys "phrases": on/to/at the left/right; "words": left and right wherever they stand, one of
    them drawn, so that "a man left the room" gets a text as well.

    Mode "authors" takes the first phrase of the table that the caption has in small letters,
    replaces it everywhere and leaves other phrases alone: of "A on the left, B on the right" it
    makes "A on the right, B on the right". Mode "clean" exchanges all of them at once, in any
    case, as whole words.
    """

    name = "left_right"

    def __init__(self, keys: str = "phrases", mode: str = "clean") -> None:
        edit.check_mode(mode)
        lookup.check_known("kind of keys", [keys], KEYS)
        self._keys, self._is_clean = keys, mode == "clean"
        self._table = word_tables.LEFT_RIGHT if keys == "phrases" else word_tables.LEFT_RIGHT_WORDS
        self._pattern = edit.whole(self._table)
        self.version = edit.version("1", mode=mode, keys=keys)

    def __call__(
        self,
        caption: str,
        rng: np.random.Generator,
        count: int,
        scene: Mapping[str, Any] | None = None,
    ) -> Sequence[str]:
        """At most one text; with drawn words in mode "authors" up to `count`."""
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
        # The first key of the table wins and ends the search, as in the authors' code; all keys at
        # once are mode "clean".
        for phrase, opposite in self._table.items():
            if phrase in caption:
                return [caption.replace(phrase, opposite)]
        return []
