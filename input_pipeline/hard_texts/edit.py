"""Text editing for all generators: swaps and replaces spans, corrects articles and capitals.

A span is (start, stop) in characters; an edit is (start, stop, new text).
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from vlc_jax.input_pipeline import lookup

MODES = ("clean", "authors")  # the default; the published behaviour with all quirks

Span = tuple[int, int]
Edit = tuple[int, int, str]
T = TypeVar("T")

_WORD = re.compile(r"\w+(?:['’-]\w+)*")
_ARTICLE_BEFORE = re.compile(r"\b(an?)\s+$", re.IGNORECASE)
# Vowel letters that sound like consonants ("a university"), and vice versa ("an hour").
_SPELT_A = re.compile(r"uni(?!n|m)|us[aeiu]|eu|ewe|one\b|once|uk\b|ut[ei]", re.IGNORECASE)
_SPELT_AN = re.compile(r"[aeiou]|hour|honest|hono|heir|8|11\b|18\b", re.IGNORECASE)
_ITEM = r"(?:[\w'-]+\s+){0,2}[\w'-]+"
_SYMMETRIC = re.compile(
    rf"(?:\s*,(?:\s*{_ITEM}\s*,)*(?:\s*{_ITEM}(?=\s+(?:and|or)\b))?)?"
    r"\s*(?:(?:,|and|or|&|next\s+to|near|beside|close\s+to)\s+)?(?:(?:an?|the)\s+)?",
    re.IGNORECASE,
)


def check_mode(mode: str) -> None:
    """Raises ValueError for a mode that is not one of MODES."""
    lookup.check_known("mode", [mode], MODES)


def check_names(kind: str, option: str, names: Sequence[str], known: Sequence[str]) -> None:
    """Raises ValueError for an unknown name and for no name at all."""
    lookup.check_known(kind, names, known)
    if not names:
        raise ValueError(f"{option} is empty; name some of {', '.join(known)}")


def version(number: str, **options: Any) -> str:
    """Version of a generator: number of its rule set, and all options that change its texts."""
    return " ".join([number, *(f"{name}={value}" for name, value in options.items())])


def spans(caption: str) -> list[Span]:
    """Word spans of a caption; "man's" and "t-shirt" are single words, punctuation is skipped."""
    return [match.span() for match in _WORD.finditer(caption)]


def whole(phrases: Iterable[str]) -> re.Pattern[str]:
    """Pattern of any of the phrases as whole words, case-insensitive; the longest match wins."""
    longest_first = sorted(set(phrases), key=len, reverse=True)
    inner = "|".join(re.escape(phrase) for phrase in longest_first)
    return re.compile(rf"(?<![\w'’-])(?:{inner})(?![\w'’-])", re.IGNORECASE)


def choose(rng: np.random.Generator, items: Sequence[T], count: int) -> list[T]:
    """A random subset of `count` items in their order; all items if there are no more."""
    if len(items) <= count:
        return list(items)
    # one draw, not a permutation: the texts of prepared data depend on it
    if count == 1:
        return [items[int(rng.integers(len(items)))]]
    return [items[i] for i in sorted(rng.permutation(len(items))[:count])]


def distinct(texts: Iterable[str], caption: str | None = None) -> list[str]:
    """The texts in their order, without repetitions and the caption itself."""
    unique = dict.fromkeys(texts)
    unique.pop(caption, None)
    return list(unique)


def article(word: str) -> str:
    """ "a" or "an" by the spelling of the next word, with the commonest exceptions."""
    return "an" if _SPELT_AN.match(word) and not _SPELT_A.match(word) else "a"


def like(word: str, model: str) -> str:
    """The word in the case of `model`: all capitals, a capital first letter, or unchanged."""
    if len(model) > 1 and model.isupper():
        return word.upper()
    return word[:1].upper() + word[1:] if model[:1].isupper() else word


def apply(caption: str, edits: Iterable[Edit]) -> str:
    """The caption after non-overlapping edits."""
    pieces, position = [], 0
    for start, stop, text in sorted(edits):
        pieces += [caption[position:start], text]
        position = stop
    return "".join([*pieces, caption[position:]])


def repaired(caption: str, edits: Sequence[Edit]) -> str:
    """`apply`, then corrects "a" and "an" before the edits, if they were correct before."""
    more = []
    for start, stop, text in edits:
        before = _ARTICLE_BEFORE.search(caption[:start])
        if before is None or any(a < before.end(1) and before.start(1) < b for a, b, _ in edits):
            continue
        old, new = article(caption[start:stop]), article(text)
        if old == before[1].lower() and old != new:
            more.append((*before.span(1), like(new, before[1])))
    return apply(caption, [*edits, *more])


def exchange(caption: str, first: Span, second: Span, names: Sequence[Span] = ()) -> str:
    """The caption with two disjoint spans swapped; spaces and punctuation stay.

    Corrects articles and the capital of the first word; `names`, spans of proper names, keep their
    capitals.
    """
    first, second = sorted((first, second))
    early, late = caption[slice(*first)], caption[slice(*second)]
    starts = {start for start, _ in names}
    if not caption[: first[0]].strip(" \"'(") and early[:1].isupper():
        late = late[:1].upper() + late[1:]
        opening = early.split()[0]
        if first[0] not in starts and opening != "I" and not opening[1:].strip("-'").isupper():
            early = early[:1].lower() + early[1:]
    return repaired(caption, [(*first, late), (*second, early)])


def is_symmetric(between: str) -> bool:
    """True if the text between two spans joins them symmetrically: "and", a list, "next to".

    "a cat and a dog" means the same as "a dog and a cat", so swapping them makes no negative.
    """
    return _SYMMETRIC.fullmatch(between) is not None and bool(between.strip())


def are_alike(caption: str, spans: Sequence[Span]) -> bool:
    """True if each span, from left to right, is joined symmetrically to the next one.

    Swapping the first and the last of "a man and a woman near a dog" then changes no meaning.
    """
    return all(is_symmetric(caption[a[1] : b[0]]) for a, b in itertools.pairwise(spans))


def treebank(caption: str) -> list[str]:
    """Words and signs, split like NLTK's word tokenizer: "isn't" is "is", "n't"; a double quote
    becomes `` or ''. A period before a capital ends a sentence, except behind a title or initials
    (other abbreviations of NLTK's model are not recognized).
    """
    text = re.sub(r'(^|[\s(\[{<])"', r"\1 `` ", caption)
    text = text.replace('"', " '' ")
    text = re.sub(r"\.\.+", r" \g<0> ", text)
    text = re.sub(r"[;@#$%&?!()\[\]{}<>…“”]|--+", r" \g<0> ", text)
    text = re.sub(r"[:,](?!\d)", r" \g<0> ", text)
    text = re.sub(r"(?<![.\s])\.(?=[\s'’)\]}]*$)", " .", text)
    text = re.sub(r"(\S*[^.\s])\.(?=\s+[A-Z])", _sentence_end, text)
    text = re.sub(r"(^|\s)(['‘’])(?=\w\w)", r"\1\2 ", text)
    text = re.sub(r"(?<=[^'\s])'(?=\s|$)", " '", text)
    text = re.sub(r"(?i)(?<=\w)(n['’]t|['’](?:s|m|d|ll|re|ve))\b", r" \1", text)
    return re.sub(r"(?i)\b(can)(not)\b", r"\1 \2", text).split()


# titles, and initials: "Dr. Smith", "J. Smith", "a U.S. Army truck"
_ABBREVIATION = re.compile(r"(?i:mr|mrs|ms|dr|st|prof|gen|col|sgt|lt)|(?:[A-Za-z]\.)*[A-Z]")


def _sentence_end(match: re.Match[str]) -> str:
    return match[0] if _ABBREVIATION.fullmatch(match[1]) else f"{match[1]} ."
