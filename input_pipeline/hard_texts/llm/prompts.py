"""Prompts for hard positives, the captions they suit, and the cleaning of answers.

The two kinds are those of Kamath et al., "The Hard Positive Truth about Vision-Language
Compositionality" (ECCV 2024), appendix C: REPLACE writes a caption again with one word exchanged
for a synonym, SWAP exchanges what stands on both sides of "and". The prompts follow the structure
described there (an instruction, examples as Input/Output pairs, the caption last) in words and
examples of our own, so that answers are not those of the paper's prompts, even from its model.
The paper reads answers as they are; ours are cleaned, and what cannot be a hard positive is left
out.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

TOO_LONG = "too_long"  # `Answer.finish` of one that was not read to its end
MISSING = "None"  # what the authors' files hold where there is no hard positive
PLACE = "{caption}"  # where the caption goes in a prompt
# A hard positive is about as long as its caption: at most twice as long and this many letters more.
_SPARE_LETTERS = 100
_SWAP_WORDS = 15  # captions of SWAP have fewer words, as in the paper

_REPLACE = """\
Below are captions of photographs. Write the last one again with one word exchanged for a synonym. \
The word may name a thing, a property, an action or a place. The new caption has to be true of \
exactly the same photographs, and all other words stay as they are. Give the new caption and \
nothing else.

Input: A little boat lies on the beach.
Output: A small boat lies on the beach.

Input: two people are looking at a painting in a museum
Output: two people are looking at a picture in a museum

Input: A lamp stands beside the bed.
Output: A lamp stands next to the bed.

Input: A boy hops over a puddle of water.
Output: A boy jumps over a puddle of water.

Input: the rug in front of the fireplace is grey
Output: the carpet in front of the fireplace is grey

Input: {caption}
Output:"""

_SWAP = """\
Below are captions of photographs, each with two parts joined by the word "and". Write the last \
one again with the two parts in the opposite order. Everything that belongs to a part moves with \
it, so that the new caption is true of exactly the same photographs, and no word is added or lost. \
Give the new caption and nothing else.

Input: A white horse and a brown cow on a hill.
Output: A brown cow and a white horse on a hill.

Input: a kitchen with a stove and a fridge
Output: a kitchen with a fridge and a stove

Input: A dusty and rusty truck is parked in a field.
Output: A rusty and dusty truck is parked in a field.

Input: A woman is sitting on a bench and reading a newspaper.
Output: A woman is reading a newspaper and sitting on a bench.

Input: a plate of rice and beans beside a glass of juice
Output: a plate of beans and rice beside a glass of juice

Input: {caption}
Output:"""


class Kind(NamedTuple):
    """A kind of hard positive: its prompt, the longest answer, which captions have none."""

    prompt: str
    max_tokens: int
    unfit: Callable[[str], str | None]  # the reason why a caption is not asked about, or None


def _unfit_for_replace(caption: str) -> str | None:
    return None if caption.strip() else "empty caption"


def _unfit_for_swap(caption: str) -> str | None:
    if not re.search(r"\band\b", caption, re.IGNORECASE):
        return 'no "and"'
    return None if len(caption.split()) < _SWAP_WORDS else f"{_SWAP_WORDS} words or more"


KINDS = {
    "replace": Kind(_REPLACE, 30, _unfit_for_replace),
    "swap": Kind(_SWAP, 20, _unfit_for_swap),
}


class Answer(NamedTuple):
    """The answer of the endpoint for one caption.

    finish: "stop", "length" where the answer was cut at the longest length, "content_filter",
    TOO_LONG, or whatever else the endpoint calls it. Token counts are 0 where it does not count.
    """

    text: str | None
    finish: str | None
    prompt_tokens: int
    completion_tokens: int
    model: str | None


def fill(prompt: str, caption: str) -> str:
    """The prompt for a caption, whose white space becomes single spaces."""
    return prompt.replace(PLACE, " ".join(caption.split()))


_THOUGHT = re.compile(r"^\s*<think>.*?</think>", re.DOTALL)  # of models that reason aloud
_LABEL = re.compile(
    r"^\**(?:output|answer|result|(?:the )?(?:new |rewritten |swapped )?(?:caption|sentence))"
    r"\s*\**\s*:\s*(?:\*\*)?\s*",
    re.IGNORECASE,
)
_NUMBERING = re.compile(r"^(?:[-*•]|\(?\d{1,2}[.)](?!\d))\s+")
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "`": "`", "«": "»"}
_DAMAGE = re.compile("[\ufffd\ud800-\udfff]")  # what no decoder could read, half a letter
_REFUSAL = re.compile(
    r"^(?:(?:i'm |i am )?(?:very )?sorry\b|i (?:can'?t|can ?not|am unable|won't)\b|as an ai\b)",
    re.IGNORECASE,
)


def clean(answer: Answer, caption: str) -> tuple[str | None, str | None]:
    """(the hard positive, None), or (None, why there is none).

    Takes the first line that says something ("Here is the caption:" does not), without label
    ("Output:"), numbering, asterisks and surrounding quotation marks. One that is much longer than
    the caption is none.
    """
    if answer.finish == "content_filter":
        return None, "content filter"
    if answer.finish == TOO_LONG:
        return None, "too long"
    text = _THOUGHT.sub("", answer.text or "")
    if text.lstrip().startswith("<think>"):
        return None, "cut off"
    is_cut = answer.finish == "length" and bool(text.strip())
    whole = text.rpartition("\n")[0] if is_cut else text
    lines = [line for line in map(_strip, whole.split("\n")) if line and not line.endswith(":")]
    if not lines:
        return None, "cut off" if is_cut else "empty"
    text = lines[0]
    if _key(text) in ("none", "n/a"):
        return None, "answered None"
    if _REFUSAL.match(text.replace("’", "'")):
        return None, "refusal"
    if len(text) > 2 * len(caption) + _SPARE_LETTERS:
        return None, "too long"
    if _DAMAGE.search(text):
        return None, "damaged letters"
    return (None, "same as the caption") if _key(text) == _key(caption) else (text, None)


def _strip(line: str) -> str:
    """The line without what surrounds a caption."""
    text, before = " ".join(line.split()), None
    while text != before:
        before = text
        text = _LABEL.sub("", _NUMBERING.sub("", text)).strip()
        for mark in ("**", "*"):
            if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark):
                text = text[len(mark) : -len(mark)].strip()
        if len(text) > 1 and _QUOTES.get(text[0]) == text[-1]:
            inner = text[1:-1]
            closes = re.escape(text[-1])
            if not re.search(rf"{closes}\s|\s{closes}", inner):  # '"one" and "two"' is left alone
                text = inner.strip()
    return text


def _key(text: str) -> str:
    """The text without case, white space and final stop, for comparison."""
    return " ".join(text.casefold().split()).rstrip(" .!")
