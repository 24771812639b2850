"""NegCLIP's hard negatives: two phrases or words of one part of speech swapped in the caption.

Yuksekgonul et al., "When and why vision-language models behave like bags-of-words" (ICLR 2023),
section 4 and the authors' published generator: six attempts, in this order: noun phrases of more
than two words, verb phrases, singular nouns (tag NN), plural nouns (NNS), adverbs, adjectives.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.hard_texts import edit
from vlc_jax.input_pipeline.hard_texts.generator import CaptionGenerator, Tagged, Tagger, Token
from vlc_jax.input_pipeline.hard_texts.taggers import NAME_TAGS, make_tagger

VERBS = ("phrases", "tokens")
CONJUNCTS = ("keep", "drop")

_TOKENS: tuple[Callable[[Token], bool], ...] = (
    lambda token: token.tag == "NN",
    lambda token: token.tag == "NNS",
    lambda token: token.pos == "ADV",
    lambda token: token.pos == "ADJ",
)


class NegClip(CaptionGenerator):
    """NegCLIP's generator: up to six texts, `count` of them drawn.

    Mode "authors" replaces phrases wherever they occur and lower-cases the result; it swaps tokens
    and joins all tokens with single spaces. Mode "clean" swaps only the two spans, keeps spaces and
    case, corrects articles and the first capital, and draws only pairs that differ.

    verbs      phrases: swap verb phrases, as published; tokens: swap verbs like nouns, as in the
               negatives that the authors released (made by another version)
    conjuncts  drop: no pairs joined only by "and", "next to" and the like, since swapping them
               keeps the meaning ("yellow and blue hydrant": 3.7 % of the released negatives);
               keep: such pairs, too; default: drop in mode clean, keep in mode authors
    """

    name = "negclip"

    def __init__(
        self,
        tagger: str = "spacy:en_core_web_lg",
        mode: str = "clean",
        verbs: str = "phrases",
        conjuncts: str | None = None,
    ) -> None:
        edit.check_mode(mode)
        lookup.check_known("kind of verbs", [verbs], VERBS)
        conjuncts = conjuncts or ("keep" if mode == "authors" else "drop")
        lookup.check_known("treatment of conjuncts", [conjuncts], CONJUNCTS)
        self._is_clean, self._verbs, self._drops = mode == "clean", verbs, conjuncts == "drop"
        self._tagger: Tagger = make_tagger(tagger)
        tags = f"{self._tagger.name}@{self._tagger.version}"
        number = "2" if self._drops else "1"
        self.version = edit.version(
            number, mode=mode, verbs=verbs, conjuncts=conjuncts, tagger=tags
        )

    def texts(self, caption: str, rng: np.random.Generator, count: int) -> Sequence[str]:
        """Raises DataError for a caption that the tagger cannot tag."""
        tagged = self._tagger(caption)
        texts = []
        for candidates, is_phrase in self._attempts(caption, tagged):
            pair = self._pair(caption, candidates, rng)
            if pair is None:
                continue
            if self._is_clean:
                names = [(t.start, t.stop) for t in tagged.tokens if t.tag in NAME_TAGS]
                texts.append(edit.exchange(caption, *pair, names=names))
                continue
            text = _replaced(caption, *pair) if is_phrase else _joined(tagged.tokens, *pair)
            if _bare(text) != _bare(caption):
                # Only phrases are lower-cased, as in the authors' released table.
                texts.append(text.lower() if is_phrase else text)
        return edit.choose(rng, edit.distinct(texts, caption), count)

    def _attempts(self, caption: str, tagged: Tagged) -> Iterator[tuple[list[edit.Span], bool]]:
        """Yields (candidate spans, is_phrase) of each attempt, in the authors' order."""
        tokens = tagged.tokens
        chunks = [(tokens[a].start, tokens[b - 1].stop) for a, b in tagged.noun_chunks]
        # More than two words, as in the authors' code: "the dog" and "a cat" swap as nouns.
        yield [span for span in chunks if len(caption[slice(*span)].split()) > 2], True
        if self._verbs == "phrases":
            runs = verb_phrases([token.pos for token in tokens])
            yield [(tokens[a].start, tokens[b - 1].stop) for a, b in runs], True
        else:
            yield [(t.start, t.stop) for t in tokens if t.pos == "VERB"], False
        for fits in _TOKENS:
            yield [(t.start, t.stop) for t in tokens if fits(t)], False

    def _pair(
        self, caption: str, spans: list[edit.Span], rng: np.random.Generator
    ) -> tuple[edit.Span, edit.Span] | None:
        """A random pair of spans to swap; None without an admissible pair."""
        if not self._is_clean and not self._drops:
            # As in the authors' code, equal words may be drawn; the caption then has no negative.
            if len(spans) < 2:
                return None
            first, second = rng.permutation(len(spans))[:2]
            return spans[first], spans[second]
        pairs = [
            (spans[i], spans[j])
            for i in range(len(spans))
            for j in range(i + 1, len(spans))
            if not (self._drops and edit.are_alike(caption, spans[i : j + 1]))
        ]
        if self._is_clean:
            pairs = [
                p for p in pairs if caption[slice(*p[0])].lower() != caption[slice(*p[1])].lower()
            ]
        return pairs[int(rng.integers(len(pairs)))] if pairs else None


def verb_phrases(parts: Sequence[str]) -> list[tuple[int, int]]:
    """Runs [first, last + 1) of VERB? ADV* AUX* VERB+ in universal parts of speech.

    Overlapping runs: the longest wins, then the first, as in spaCy's filter_spans.
    """
    runs = [
        (start, stop)
        for start in range(len(parts))
        for stop in range(start + 1, len(parts) + 1)
        if parts[stop - 1] == "VERB" and _is_verb_phrase(parts[start:stop])
    ]
    disjoint: list[tuple[int, int]] = []
    for start, stop in sorted(runs, key=lambda run: (run[0] - run[1], run[0])):
        if all(stop <= a or b <= start for a, b in disjoint):
            disjoint.append((start, stop))
    return sorted(disjoint)


def _is_verb_phrase(parts: Sequence[str]) -> bool:
    middle = list(parts)
    while middle and middle[-1] == "VERB":
        middle.pop()
    if len(middle) == len(parts):
        return False
    if middle and middle[0] == "VERB":
        middle = middle[1:]
    adverbs = middle.count("ADV")
    return middle == ["ADV"] * adverbs + ["AUX"] * (len(middle) - adverbs)


def _replaced(caption: str, first: edit.Span, second: edit.Span) -> str:
    """Swaps two phrases at every occurrence of their strings, even inside words."""
    a, b = caption[slice(*first)], caption[slice(*second)]
    # \0 is a placeholder, as in the authors' code: else the second replace undoes the first.
    return caption.replace(a, "\0").replace(b, a).replace("\0", b)


def _joined(tokens: Sequence[Token], first: edit.Span, second: edit.Span) -> str:
    words = {(token.start, token.stop): token.text for token in tokens}
    words[first], words[second] = words[second], words[first]
    return " ".join(words.values())


def _bare(text: str) -> list[str]:
    """Words without periods and commas; the authors compare texts by them."""
    return text.replace(".", "").replace(",", "").split()
