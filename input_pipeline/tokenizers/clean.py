"""Cleaning of captions before tokenization: the rules that published tokenizers expect."""

import html
import string
from collections.abc import Callable

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def without_surrogates(text: str) -> str:
    """Joins surrogate pairs and replaces lone surrogates, which UTF-8 cannot encode."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def lower(text: str) -> str:
    """SigLIP 2's rule (big_vision `lower`): lower case, nothing else."""
    return text.lower()


def canonicalize(text: str) -> str:
    """SigLIP's rule (big_vision `canonicalize_text`): no punctuation, lower case, single spaces."""
    return " ".join(text.replace("_", " ").translate(_PUNCTUATION).lower().split())


def repaired(text: str) -> str:
    """CLIP's repair: `ftfy.fix_text`, HTML entities resolved twice, single spaces; all that
    open_clip does for tokenizers of Hugging Face."""
    # else nothing to repair
    if "&" in text or not (text.isascii() and text.isprintable()):
        import ftfy  # here: few captions need it, and it is slow

        text = ftfy.fix_text(without_surrogates(text))
    return " ".join(html.unescape(html.unescape(text)).split())


def clip(text: str) -> str:
    """CLIP's rule: repaired, lower case."""
    return repaired(text).lower()


def clip_canonicalize(text: str) -> str:
    """open_clip's rule for SigLIP: repaired, then canonicalized."""
    return canonicalize(repaired(text))


def unchanged(text: str) -> str:
    """The caption as it is."""
    return text


CLEANINGS: dict[str, Callable[[str], str]] = {
    "none": unchanged,
    "lower": lower,
    "canonicalize": canonicalize,
    "repair": repaired,
    "clip": clip,
    "clip_canonicalize": clip_canonicalize,
}


def named(name: str) -> Callable[[str], str]:
    """The rule `name` of CLEANINGS. Raises ValueError for an unknown name."""
    if name not in CLEANINGS:
        raise ValueError(f"clean must be one of {sorted(CLEANINGS)}; got {name!r}")
    return CLEANINGS[name]
