"""Answers of language models, and the texts that are read out of them."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

TOO_LONG = "too_long"  # `Answer.finish` of one that was not read to its end
# A caption written anew is about as long as the old one: at most twice as long and this many
# letters more.
_SPARE_LETTERS = 100
_SENTENCE = 400  # letters of a sentence of a list, of which CLIP reads the first 300 or so


class Question(NamedTuple):
    """A prompt for caption `index`, and further fields of its request (max_tokens, seed, ...)."""

    index: int
    prompt: str
    fields: Mapping[str, Any]


class Answer(NamedTuple):
    """The answer of a language model for one caption.

    finish: "stop", "length" where the answer was cut at the longest length, "content_filter",
    TOO_LONG, or whatever else an endpoint calls it. Token counts are 0 where it does not count.
    """

    text: str | None
    finish: str | None
    prompt_tokens: int
    completion_tokens: int
    model: str | None


Store = Callable[[int, Answer], None]
# What answers: an endpoint, or a language model in this process. It calls the store with the index
# of each question and its answer, in any order, as soon as it is there.
Complete = Callable[[Iterator[Question], Store], None]


class Text(NamedTuple):
    """A text read out of an answer; foil: the same, minimally changed, so that it is wrong; kind:
    of several that a preset tells apart."""

    text: str
    foil: str | None = None
    kind: str = ""


# The texts of an answer, or none and the reason why.
Found = tuple[list[Text], str | None]

_THOUGHT = re.compile(r"^\s*<think>.*?</think>", re.DOTALL)  # of models that reason aloud
_LABEL = re.compile(
    r"^\**(?:output|answer|result|(?:the )?(?:new |rewritten |swapped )?(?:caption|sentence))"
    r"\s*\**\s*:\s*(?:\*\*)?\s*",
    re.IGNORECASE,
)
_NUMBERING = re.compile(r"^(?:[-*•]|\(?\d{1,2}[.)](?!\d))\s+")
_ITEM = re.compile(r"^\s*(?:[-*•]|\(?(\d{1,2})[.):]?)\s+(?=\S)")  # of a list, its number if any
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "`": "`", "«": "»"}
_DAMAGE = re.compile("[\ufffd\ud800-\udfff]")  # what no decoder could read, half a letter
_REFUSAL = re.compile(
    r"^(?:(?:i'm |i am )?(?:very )?sorry\b|i (?:can'?t|can ?not|am unable|won't)\b|as an ai\b)",
    re.IGNORECASE,
)
_ARROW = re.compile(r"\s*(?:->|=>|→)\s*")
_UNIT = re.compile(r"^(entity|relation)\s*:\s*", re.IGNORECASE)


def read_caption(answer: Answer, caption: str) -> Found:
    """The caption in other words.

    Takes the first line that says something ("Here is the caption:" does not), without label
    ("Output:"), numbering, asterisks and surrounding quotation marks. One that is much longer than
    the caption is none.
    """
    lines, reason = _lines(answer)
    lines = [line for line in map(_strip, lines) if line and not line.endswith(":")]
    if not lines:
        return [], reason or "empty"
    text = lines[0]
    if why := _unusable(text):
        return [], why
    if len(text) > 2 * len(caption) + _SPARE_LETTERS:
        return [], "too long"
    if key(text) == key(caption):
        return [], "same as the caption"
    return [Text(text)], None


def read_sentences(answer: Answer, caption: str) -> Found:
    """The sentences of a list, as far as its numbers go on: base models begin another one."""
    items, reason = _items(answer)
    fit = [item for item in items if len(item) <= _SENTENCE and key(item) != key(caption)]
    return _found([Text(item) for item in fit], reason)


def read_phrases(answer: Answer, caption: str) -> Found:
    """Phrases of a caption, from a list.

    By the rules of C2LIP's code none that is longer than the caption, has parentheses or is a
    single letter.
    """
    items, reason = _items(answer)
    fit = [item.rstrip(".") for item in items if 1 < len(item) <= len(caption)]
    return _found([Text(item) for item in fit if not re.search("[()]", item)], reason)


def read_units(answer: Answer, caption: str) -> Found:
    """Units and their foils: lines such as "entity: red car -> blue car", or "relation: ..."."""
    lines, reason = _lines(answer)
    texts: list[Text] = []
    for line in map(_strip, lines):
        label, parts = _UNIT.match(line), _ARROW.split(_UNIT.sub("", line))
        if label is None or len(parts) != 2:
            continue
        unit, foil = (_strip(part).rstrip(".") for part in parts)
        is_short = max(len(unit), len(foil)) <= 2 * len(caption) + _SPARE_LETTERS
        if unit and foil and is_short and key(unit) != key(foil) and not _unusable(unit + foil):
            texts.append(Text(unit, foil, label[1].lower()))
    return _found(texts, reason or _no_list(lines))


def _found(texts: list[Text], reason: str | None) -> Found:
    """Different texts, or why there are none."""
    different: dict[str, Text] = {}
    for text in texts:
        different.setdefault(key(text.text), text)
    return ([*different.values()], None) if texts else ([], reason or "no list")


def _no_list(lines: list[str]) -> str:
    """The reason why lines hold no list."""
    return (_unusable(_strip(lines[0])) or "no list") if lines else "empty"


def _lines(answer: Answer) -> tuple[list[str], str | None]:
    """The lines of an answer that are whole, and the reason if there are none."""
    if answer.finish == "content_filter":
        return [], "content filter"
    if answer.finish == TOO_LONG:
        return [], "too long"
    text = _THOUGHT.sub("", answer.text or "")
    if text.lstrip().startswith("<think>"):
        return [], "cut off"
    is_cut = answer.finish == "length" and bool(text.strip())
    whole = text.rpartition("\n")[0] if is_cut else text
    return [line for line in whole.split("\n") if line.strip()], "cut off" if is_cut else None


def _items(answer: Answer) -> tuple[list[str], str | None]:
    """The items of the first list of an answer, and the reason if there is none."""
    lines, reason = _lines(answer)
    items: list[str] = []
    last = 0
    for line in lines:
        match = _ITEM.match(line)
        if match is None and not last:
            continue  # "Here is the list:"
        number = 0 if match is None else int(match[1] or last + 1)
        if match is None or number != last + 1:
            break  # behind the list: a remark, or the next prompt and its list
        last = number
        item = _strip(line[match.end() :])
        if item and not _unusable(item):
            items.append(item)
    return items, reason or _no_list(lines)


def _unusable(text: str) -> str | None:
    """The reason why a text is no caption of anything; None if it may be one."""
    if key(text) in ("none", "n/a"):
        return "answered None"
    if _REFUSAL.match(text.replace("’", "'")):
        return "refusal"
    return "damaged letters" if _DAMAGE.search(text) else None


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


def key(text: str) -> str:
    """The text without case, white space and final stop, for comparison."""
    return " ".join(text.casefold().split()).rstrip(" .!")
