"""ARO's order perturbations: the words of a caption shuffled.

Yuksekgonul et al., "When and why vision-language models behave like bags-of-words" (ICLR 2023),
section 3.2. Mode "authors" joins tokens with single spaces and may return the words in their
original order. Mode "clean" moves only words, leaves spaces and punctuation in place and never
returns the original order.
"""

from collections.abc import Callable, Sequence

import numpy as np

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.hard_texts import edit
from vlc_jax.input_pipeline.hard_texts.generator import CaptionGenerator, Tagger
from vlc_jax.input_pipeline.hard_texts.taggers import ADJECTIVE_TAGS, NOUN_TAGS, make_tagger

TAGGED_SHUFFLES = ("shuffle_nouns_and_adjectives", "shuffle_all_but_nouns_and_adjectives")
# draws per text, since some draws leave the order unchanged
_TRIES = 20


class TaggedShuffle(CaptionGenerator):
    """Shuffles that need parts of speech.

    shuffle_nouns_and_adjectives          permutes the nouns, and permutes the adjectives
    shuffle_all_but_nouns_and_adjectives  permutes all other tokens
    """

    def __init__(
        self, name: str, tagger: str = "spacy:en_core_web_sm", mode: str = "clean"
    ) -> None:
        lookup.check_known("shuffle", [name], TAGGED_SHUFFLES)
        edit.check_mode(mode)
        self.name, self._is_clean = name, mode == "clean"
        self._tagger: Tagger = make_tagger(tagger)
        tags = f"{self._tagger.name}@{self._tagger.version}"
        self.version = edit.version("1", mode=mode, tagger=tags)

    def texts(self, caption: str, rng: np.random.Generator, count: int) -> Sequence[str]:
        """Raises DataError for a caption that the tagger cannot tag."""
        tokens = self._tagger(caption).tokens
        words = [token.text for token in tokens]
        spans = [(token.start, token.stop) for token in tokens]
        nouns = [i for i, token in enumerate(tokens) if token.tag in NOUN_TAGS]
        adjectives = [i for i, token in enumerate(tokens) if token.tag in ADJECTIVE_TAGS]
        groups = [nouns, adjectives]
        if self.name == "shuffle_all_but_nouns_and_adjectives":
            stay = {*nouns, *adjectives}
            if self._is_clean:
                stay |= {i for i, word in enumerate(words) if not any(map(str.isalnum, word))}
            groups = [[i for i in range(len(tokens)) if i not in stay]]

        def draw() -> list[int]:
            return _within(len(words), groups, rng)

        if self._is_clean:
            return _clean(caption, spans, draw, count)
        return _joined(words, draw, count)


class PlainShuffle(CaptionGenerator):
    """Shuffles that need words only.

    shuffle_within_trigrams  permutes the words inside each group of three
    shuffle_trigrams         permutes the groups of three
    shuffle_words            permutes all words, split at spaces
    """

    def __init__(self, name: str, mode: str = "clean") -> None:
        lookup.check_known("shuffle", [name], PLAIN_SHUFFLES)
        edit.check_mode(mode)
        self.name, self._is_clean = name, mode == "clean"
        self.version = edit.version("1", mode=mode)

    def texts(self, caption: str, rng: np.random.Generator, count: int) -> Sequence[str]:
        """Up to `count` texts."""
        order = PLAIN_SHUFFLES[self.name]
        if self._is_clean:
            spans = edit.spans(caption)
            return _clean(caption, spans, lambda: order(len(spans), rng), count)
        # As in ARO: words are split at spaces, trigrams consist of NLTK's tokens.
        words = caption.split() if self.name == "shuffle_words" else edit.treebank(caption)
        return _joined(words, lambda: order(len(words), rng), count)


def _within(size: int, groups: Sequence[Sequence[int]], rng: np.random.Generator) -> list[int]:
    """A permutation of range(size) that shuffles within each group and fixes all other items."""
    order = list(range(size))
    for group in groups:
        for position, index in zip(group, rng.permutation(len(group)), strict=True):
            order[position] = group[index]
    return order


def _trigrams(size: int) -> list[list[int]]:
    return [list(range(size))[i : i + 3] for i in range(0, size, 3)]


def _trigram_order(size: int, rng: np.random.Generator) -> list[int]:
    groups = _trigrams(size)
    return [i for k in rng.permutation(len(groups)) for i in groups[k]]


PLAIN_SHUFFLES: dict[str, Callable[[int, np.random.Generator], list[int]]] = {
    "shuffle_within_trigrams": lambda size, rng: _within(size, _trigrams(size), rng),
    "shuffle_trigrams": _trigram_order,
    "shuffle_words": lambda size, rng: _within(size, [range(size)], rng),
}


def _joined(words: Sequence[str], draw: Callable[[], list[int]], count: int) -> list[str]:
    """The authors' texts of `count` draws, without repetitions."""
    return edit.distinct(" ".join([words[i] for i in draw()]) for _ in range(count))


def _clean(
    caption: str, spans: Sequence[edit.Span], draw: Callable[[], list[int]], count: int
) -> list[str]:
    """At most `count` distinct texts whose words are not in the caption's order."""
    words = [caption[start:stop] for start, stop in spans]
    lowered = [word.lower() for word in words]
    texts: dict[str, None] = {}
    for _ in range(_TRIES * count):
        if len(texts) == count:
            break
        order = draw()
        if [lowered[i] for i in order] == lowered:
            continue
        edits = [(*span, words[i]) for span, i in zip(spans, order, strict=True)]
        texts[edit.apply(caption, edits)] = None
    return list(texts)
