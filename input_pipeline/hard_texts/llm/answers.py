"""Answers of language models, and parsers of the texts in them."""

import re
from typing import NamedTuple

TOO_LONG = "too_long"  # `Answer.finish` for a prompt that leaves no room for an answer
# A rewritten caption has at most 2 * len(caption) + _SPARE_LETTERS characters.
_SPARE_LETTERS = 100
# Maximal characters of a sentence in a list; CLIP reads about the first 300.
_SENTENCE = 400


class Answer(NamedTuple):
    """The answer of a language model for one caption.

    finish: "stop", "length" (cut at max_tokens), "content_filter", TOO_LONG, or another reason of
    the service. Token counts are 0 if the service does not report them.
    """

    text: str | None
    finish: str | None
    prompt_tokens: int
    completion_tokens: int
    model: str | None


class Text(NamedTuple):
    """A text parsed from an answer.

    foil: the text minimally changed, so that it is false. kind: for presets with several kinds."""

    text: str
    foil: str | None = None
    kind: str = ""


# The texts of an answer; without texts, the reason.
Parsed = tuple[list[Text], str | None]

_THOUGHT = re.compile(r"^\s*<think>.*?</think>", re.DOTALL)  # of reasoning models
_LABEL = re.compile(
    r"^\**(?:output|answer|result|(?:the )?(?:new |rewritten |swapped )?(?:caption|sentence))"
    r"\s*\**\s*:\s*(?:\*\*)?\s*",
    re.IGNORECASE,
)
_NUMBERING = re.compile(r"^(?:[-*•]|\(?\d{1,2}[.)](?!\d))\s+")
_ITEM = re.compile(r"^\s*(?:[-*•]|\(?(\d{1,2})[.):]?)\s+(?=\S)")  # group 1: the item's number
_QUOTES = {'"': '"', "'": "'", "“": "”", "‘": "’", "`": "`", "«": "»"}
# Replacement character and lone surrogates, which no tokenizer encodes as meant.
_DAMAGE = re.compile("[\ufffd\ud800-\udfff]")
_REFUSAL = re.compile(
    r"^(?:(?:i'm |i am )?(?:very )?sorry\b|i (?:can'?t|can ?not|am unable|won't)\b|as an ai\b)",
    re.IGNORECASE,
)
_ARROW = re.compile(r"\s*(?:->|=>|→)\s*")
_UNIT = re.compile(r"^(entity|relation)\s*:\s*", re.IGNORECASE)


def read_caption(answer: Answer, caption: str) -> Parsed:
    """The rewritten caption.

    The first line that does not end with a colon ("Here is the caption:"), stripped of label
    ("Output:"), numbering, asterisks and surrounding quotation marks. A text much longer than the
    caption is unusable.
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


def read_sentences(answer: Answer, caption: str) -> Parsed:
    """The sentences of a list, up to a break in its numbers: base models start another list."""
    items, reason = _items(answer)
    fit = [item for item in items if len(item) <= _SENTENCE and key(item) != key(caption)]
    return _distinct([Text(item) for item in fit], reason)


def read_phrases(answer: Answer, caption: str) -> Parsed:
    """Phrases of a caption, from a list.

    As in C2LIP's code, drops phrases longer than the caption, with parentheses, or of one letter.
    """
    items, reason = _items(answer)
    fit = [item.rstrip(".") for item in items if 1 < len(item) <= len(caption)]
    return _distinct([Text(item) for item in fit if not re.search("[()]", item)], reason)


def read_units(answer: Answer, caption: str) -> Parsed:
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
    return _distinct(texts, reason or _no_list(lines))


def _distinct(texts: list[Text], reason: str | None) -> Parsed:
    """The texts without repetitions; without texts, the reason."""
    distinct: dict[str, Text] = {}
    for text in texts:
        distinct.setdefault(key(text.text), text)
    return ([*distinct.values()], None) if texts else ([], reason or "no list")


def _no_list(lines: list[str]) -> str:
    """The reason why the lines contain no list."""
    return (_unusable(_strip(lines[0])) or "no list") if lines else "empty"


def _lines(answer: Answer) -> tuple[list[str], str | None]:
    """The complete lines of an answer, and the reason if there are none."""
    if answer.finish == "content_filter":
        return [], "content filter"
    if answer.finish == TOO_LONG:
        return [], "too long"
    text = _THOUGHT.sub("", answer.text or "")
    if text.lstrip().startswith("<think>"):
        return [], "cut off"
    # Cut at max_tokens: its last line may end in the middle of a sentence.
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
            # after the list: a remark, or another prompt and its list
            break
        last = number
        item = _strip(line[match.end() :])
        if item and not _unusable(item):
            items.append(item)
    return items, reason or _no_list(lines)


def _unusable(text: str) -> str | None:
    """The reason why a text is no caption; None for a usable text."""
    if key(text) in ("none", "n/a"):
        return "answered None"
    if _REFUSAL.match(text.replace("’", "'")):
        return "refusal"
    return "damaged letters" if _DAMAGE.search(text) else None


def _strip(line: str) -> str:
    """The line without label, numbering, asterisks and quotation marks."""
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
            # not for '"one" and "two"', whose first quotation mark closes before the end
            if not re.search(rf"{closes}\s|\s{closes}", inner):
                text = inner.strip()
    return text


def key(text: str) -> str:
    """The text without case, white space and final stop, for comparison."""
    return " ".join(text.casefold().split()).rstrip(" .!")
