"""What is done to a caption before it is cut into tokens: the rules published tokenizers expect."""

import functools
import html
import re
import string
import unicodedata
from collections.abc import Callable

_TERMINAL_ESCAPE = re.compile(r"\x1b\[[\d;]*[a-zA-Z]")
_SINGLE_QUOTES = "\u02bc\u2018\u2019\u201a\u201b"
_DOUBLE_QUOTES = "\u201c\u201d\u201e\u201f"
_LIGATURES = "ĲĳŉǄǅǆǇǈǉǊǋǌǱǲǳﬀﬁﬂﬃﬄﬅﬆ"
_CONTROLS = (*range(0x09), 0x0B, *range(0x0E, 0x20), 0x7F, *range(0x206A, 0x2070), 0xFEFF)
_INTERLINEAR = range(0xFFF9, 0xFFFD)
_WIDE = (0x3000, *range(0xFF01, 0xFFF0))  # full- and half-width forms
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def without_surrogates(text: str) -> str:
    """Joins surrogate pairs and replaces lone ones, which no UTF-8 tokenizer can take."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def lower(text: str) -> str:
    """Lower case, nothing else."""
    return text.lower()


def canonicalize(text: str) -> str:
    """SigLIP's rule (big_vision `canonicalize_text`): no punctuation, lower case, single spaces."""
    return " ".join(text.replace("_", " ").translate(_PUNCTUATION).lower().split())


def clip(text: str) -> str:
    """CLIP's rule: repaired Unicode, HTML entities resolved, single spaces, lower case.

    The reference runs `ftfy.fix_text`, `html.unescape` twice and `str.lower`. Of ftfy's repairs all
    are here but one: text decoded with a wrong character set ("Ã©" for "é") is left as it is.
    """
    if text.isascii() and "&" not in text and text.isprintable():
        return " ".join(text.split()).lower()
    if "<" not in text:
        text = html.unescape(text)
    text = _TERMINAL_ESCAPE.sub("", text)
    text = without_surrogates(text.translate(_repairs()))
    text = unicodedata.normalize("NFC", text)
    return " ".join(html.unescape(html.unescape(text)).split()).lower()


def unchanged(text: str) -> str:
    """The caption as it is."""
    return text


CLEANINGS: dict[str, Callable[[str], str]] = {
    "none": unchanged,
    "lower": lower,
    "canonicalize": canonicalize,
    "clip": clip,
}


@functools.cache
def _repairs() -> dict[int, str | None]:
    """Single-character repairs of ftfy, as a `str.translate` table."""
    table: dict[int, str | None] = dict.fromkeys((*_CONTROLS, *_INTERLINEAR))
    for code in _WIDE:
        table[code] = unicodedata.normalize("NFKC", chr(code))
    for letter in _LIGATURES:
        table[ord(letter)] = unicodedata.normalize("NFKC", letter)
    table[ord("ﬅ")] = "ſt"
    table[ord("ŉ")] = "'n"
    table |= dict.fromkeys(map(ord, _SINGLE_QUOTES), "'")
    table |= dict.fromkeys(map(ord, _DOUBLE_QUOTES), '"')
    for code in range(0x80, 0xA0):  # C1 controls are Windows-1252 letters read as Latin-1
        letter = bytes([code]).decode("cp1252", "ignore") or chr(code)
        table[code] = table.get(ord(letter)) or letter
    return table
