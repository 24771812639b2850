"""SVLC's rule-based hard negatives: a word replaced by another of its word class.

Doveh et al., "Teaching structured vision & language concepts to vision & language models"
(CVPR 2023), section 3.1 and the authors' code.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from vlc_jax.input_pipeline.hard_texts import edit, word_tables
from vlc_jax.input_pipeline.hard_texts.generator import CaptionGenerator

CLASSES = tuple(word_tables.SVLC_CLASSES)


class SvlcRule(CaptionGenerator):
    """SVLC's generator; all texts of one call change words of one class.

    Mode "authors" searches a class's words as substrings, but replaces only a match that is a whole
    word between spaces: 27.5 % of COCO captions get no text. It replaces every occurrence of that
    word, even inside words ("sitting" -> "sittcoveringg"), which spoils 12.2 % of its texts. Mode
    "clean" matches only whole words and phrases, in any case and next to punctuation; it corrects
    articles and never draws a word that does not contradict the old one ("big" -> "large").
    """

    name = "svlc_rule"
    # else all stored texts of a caption would change words of the same class
    one_by_one = True

    def __init__(self, classes: Sequence[str] = CLASSES, mode: str = "clean") -> None:
        edit.check_mode(mode)
        edit.check_names("word class", "classes", classes, CLASSES)
        self._is_clean = mode == "clean"
        self._classes = [word_tables.SVLC_CLASSES[name] for name in classes]
        if self._is_clean:
            mended = word_tables.SVLC_REPAIRED
            self._classes = [tuple([mended.get(w, w) for w in words]) for words in self._classes]
            self._patterns = [
                edit.whole([*words, *word_tables.SVLC_PHRASES]) for words in self._classes
            ]
        self.version = edit.version("1", mode=mode, classes=",".join(classes))

    def texts(self, caption: str, rng: np.random.Generator, count: int) -> Sequence[str]:
        """Up to `count` texts, each with another new word; none if no word can be replaced."""
        make = self._clean if self._is_clean else self._authors
        return edit.distinct(make(caption, rng, count), caption)

    def _authors(self, caption: str, rng: np.random.Generator, count: int) -> list[str]:
        # Substrings select the class, whole tokens the word: "on" in "stone" selects the actions,
        # which may then have no word to replace. Without a match the class is the first, colours.
        present = [words for words in self._classes if any(word in caption for word in words)]
        words = present[int(rng.integers(len(present)))] if present else self._classes[0]
        tokens = set(caption.split())
        old = [word for word in words if word in tokens]
        if not old:
            return []
        new = [word for word in dict.fromkeys(words) if word not in tokens]
        # str.replace on the whole caption, not on tokens: a bug of the authors, kept for parity.
        return [
            caption.replace(old[int(rng.integers(len(old)))], new[i])
            for i in rng.permutation(len(new))[:count]
        ]

    def _clean(self, caption: str, rng: np.random.Generator, count: int) -> list[str]:
        matches_by_class = [
            [match for match in pattern.finditer(caption) if match[0].lower() in words]
            for pattern, words in zip(self._patterns, self._classes, strict=True)
        ]
        present = [i for i, matches in enumerate(matches_by_class) if matches]
        if not present:
            return []
        index = present[int(rng.integers(len(present)))]
        occurrences: dict[str, list[Any]] = {}
        for match in matches_by_class[index]:
            occurrences.setdefault(match[0].lower(), []).append(match)
        texts = []
        for i in rng.permutation(len(self._classes[index])):
            if len(texts) == count:
                break
            new = self._classes[index][i]
            old = [word for word in occurrences if not word_tables.same_meaning(new, word)]
            if old and new not in occurrences:
                word = old[int(rng.integers(len(old)))]
                texts.append(_replaced(caption, occurrences[word], new))
        return texts


def _replaced(caption: str, matches: Sequence[Any], new: str) -> str:
    edits = [(*match.span(), edit.like(new, match[0])) for match in matches]
    return edit.repaired(caption, edits)
