"""Rule-based hard positives, REPLACE and SWAP: near synonyms, or the sides of an "and" swapped.

Kamath et al., "The hard positive truth about vision-language compositionality" (ECCV 2024),
section 3: REPLACE and SWAP. Their training texts were written by a language model; these are the
rules of their benchmark, inferred from the published captions.
"""

import itertools
import re
from collections.abc import Mapping, Sequence

import numpy as np

from vlc_jax.input_pipeline.hard_texts import edit, word_tables
from vlc_jax.input_pipeline.hard_texts.generator import CaptionGenerator, Tagged, Tagger
from vlc_jax.input_pipeline.hard_texts.taggers import make_tagger

RELATIONS = ("spatial_relation", "action_relation")
CATEGORIES = tuple(word_tables.REPLACE)

_ATTRIBUTES = frozenset(
    word
    for kind in ("color", "size", "material", "state")
    for word in (
        *itertools.chain.from_iterable(word_tables.CREPE_GROUPS[kind]),
        # SVLC's materials are nouns.
        *(word_tables.SVLC_CLASSES[kind] if kind != "material" else ()),
    )
).difference(*word_tables.CREPE_GROUPS["object"])

_COLOR = "|".join(word_tables.CREPE_GROUPS["color"][0])
# phrase -> following words that rule its replacement out, since the meaning would change. For "in":
# parts of set phrases ("in front of"), clothes and colours ("in white").
_NOT_BEFORE = {
    phrase: re.compile(rf"\s+(?:{after})\b", re.IGNORECASE)
    for phrase, after in {
        "in": rf"(?:the\s+)?(?:far\s+|very\s+)?(?:{'|'.join(word_tables.NOT_WITHIN)})"
        rf"|(?:all\s+|bright\s+|dark\s+|light\s+)?(?:{_COLOR})"
        rf"|(?:[\w'-]+\s+){{0,3}}(?:{'|'.join(word_tables.CLOTHES)})",
        **word_tables.SET_PHRASES,
    }.items()
}
# "by" after these words is not "near": participles ("ridden by"), and "near by", "close by".
_NOT_BEFORE_BY = re.compile(
    r"(?:\w{3}ed|\b(?:fed|led|made|near|close|side)|dden|[vk]en|[at]ten|wn)\s+$", re.IGNORECASE
)

_WHOLE_SWAP = re.compile(r"^the (.+) and the (.+)$")
# longer sides are sentences
_SIDE = r"(?:an?|the)(?:\s+(?!(?:an?|the)\b)[\w'-]+){1,3}"
_WHOLE_CLEAN = re.compile(rf"^\W*(?P<first>{_SIDE})\s+and\s+(?P<second>{_SIDE})\W*$", re.IGNORECASE)
_FUNCTION_WORDS = "at", "by", "that", "who", "which", "while", "is", "are", "and", "to", "as", "or"
_RELATION = edit.whole(
    [
        *[phrase for group in word_tables.CREPE_GROUPS["relation"] for phrase in group],
        *word_tables.SVLC_CLASSES["action"],
        *_FUNCTION_WORDS,
    ]
)
_COLORS = re.compile(rf"\b(?P<first>{_COLOR})\s+and\s+(?P<second>{_COLOR})\b", re.IGNORECASE)


def replace(caption: str, table: Mapping[str, str], is_relation: bool) -> str | None:
    """Replaces the table's first phrase that occurs in the caption, as the authors do.

    An attribute is replaced as a substring, even inside words ("covered" -> "covecrimson"); a
    relation only between spaces, and then the whole caption is lower-cased. None if no phrase
    occurs.
    """
    for phrase, replacement in table.items():
        old, new = (f" {phrase} ", f" {replacement} ") if is_relation else (phrase, replacement)
        if old in caption:
            # The first phrase of the table wins, even if it hits another word: the published
            # benchmark has such rows, and only this order reproduces all of them.
            text = caption.replace(old, new)
            return text.lower() if is_relation else text
    return None


class Replace(CaptionGenerator):
    """REPLACE: a word or phrase replaced by a near synonym.

    categories  keys of `word_tables.REPLACE`: attributes (action, color, size, state) and relations
                (spatial_relation, action_relation); each makes at most one text in mode "authors"

    Mode "authors" is `replace`. Mode "clean" replaces whole words in any case, the longest phrase
    first, keeps case, corrects articles, and skips phrases whose meaning would change ("in front
    of", "in white", "by far", "sitting room", "ridden by"); each matching phrase makes a text.
    """

    name = "replace"

    def __init__(self, categories: Sequence[str] = CATEGORIES, mode: str = "clean") -> None:
        edit.check_mode(mode)
        edit.check_names("category", "categories", categories, CATEGORIES)
        self._categories, self._is_clean = tuple(categories), mode == "clean"
        self._tables = [word_tables.REPLACE[name] for name in categories]
        self._patterns = [edit.whole(table) for table in self._tables]
        number = "2" if self._is_clean else "1"
        self.version = edit.version(number, mode=mode, categories=",".join(categories))

    def texts(self, caption: str, rng: np.random.Generator, count: int) -> Sequence[str]:
        """Up to `count` texts, a random subset if there are more."""
        texts: list[str] = []
        for category, table, pattern in zip(
            self._categories, self._tables, self._patterns, strict=True
        ):
            if self._is_clean:
                texts += _clean(caption, table, pattern)
                continue
            text = replace(caption, table, category in RELATIONS)
            texts += [] if text is None else [text]
        return edit.choose(rng, edit.distinct(texts, caption), count)


def _clean(caption: str, table: Mapping[str, str], pattern: re.Pattern[str]) -> list[str]:
    """One text per table phrase in the caption, with all its occurrences replaced."""
    edits_of: dict[str, list[edit.Edit]] = {}
    for match in pattern.finditer(caption):
        phrase = match[0].lower()
        other = _NOT_BEFORE.get(phrase)
        if other is not None and other.match(caption, match.end()):
            continue
        if phrase == "by" and _NOT_BEFORE_BY.search(caption[: match.start()]):
            continue
        new = edit.like(table[phrase], match[0]) if match.start() == 0 else table[phrase]
        edits_of.setdefault(phrase, []).append((*match.span(), new))
    return [edit.repaired(caption, edits) for edits in edits_of.values()]


class Swap(CaptionGenerator):
    """SWAP: the two sides of an "and" swapped (its own inverse).

    Mode "authors" swaps captions "the A and the B" only. Mode "clean" allows other articles,
    capitals and a period, if neither side contains a relation or another "and"; it also swaps two
    colours joined by "and", and, with a tagger, any two noun phrases joined by "and". It skips
    sides that lack their noun ("a big and a small dog", "a cat and a half").
    """

    name = "swap"

    def __init__(self, mode: str = "clean", tagger: str | None = None) -> None:
        edit.check_mode(mode)
        if tagger is not None and mode == "authors":
            raise ValueError(
                "mode 'authors' of swap needs no tagger; leave the tagger out, or the mode"
            )
        self._is_clean = mode == "clean"
        self._tagger: Tagger | None = None if tagger is None else make_tagger(tagger)
        tags = "none" if self._tagger is None else f"{self._tagger.name}@{self._tagger.version}"
        number = "2" if self._is_clean else "1"
        self.version = edit.version(number, mode=mode, tagger=tags)

    def texts(self, caption: str, rng: np.random.Generator, count: int) -> Sequence[str]:
        """Up to `count` texts. Raises DataError for a caption that the tagger cannot tag."""
        if not self._is_clean:
            match = _WHOLE_SWAP.match(caption)
            texts = [f"the {match[2]} and the {match[1]}"] if match else []
            return edit.distinct(texts, caption)[:count]
        colors = [(m.span("first"), m.span("second")) for m in _COLORS.finditer(caption)]
        pairs: list[tuple[edit.Span, edit.Span]] = []
        if self._tagger is None:
            match = _WHOLE_CLEAN.match(caption)
            sides = (match["first"], match["second"]) if match else ()
            if match and not any(_RELATION.search(side) for side in sides):
                pairs.append((match.span("first"), match.span("second")))
        else:
            pairs = _joined_chunks(caption, self._tagger(caption))
        pairs = [pair for pair in pairs if all(_has_noun(caption[slice(*side)]) for side in pair)]
        texts = [edit.exchange(caption, *pair) for pair in (*colors, *pairs)]
        return edit.choose(rng, edit.distinct(texts, caption), count)


def _has_noun(side: str) -> bool:
    last = side.split()[-1].lower()
    return last != "half" and last not in _ATTRIBUTES


def _joined_chunks(caption: str, tagged: Tagged) -> list[tuple[edit.Span, edit.Span]]:
    """Pairs of neighbouring noun phrases joined only by "and"."""
    tokens = tagged.tokens
    spans = [(tokens[a].start, tokens[b - 1].stop) for a, b in tagged.noun_chunks]
    return [
        (first, second)
        for first, second in itertools.pairwise(spans)
        if caption[first[1] : second[0]].strip().lower() == "and"
    ]
