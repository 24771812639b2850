"""Kinds of fields in annotation files: each raises DataError for a value that is not of its kind.

A message is the rule and the value; `published.Files` puts file and case before it.
"""

from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.record import DataError, check_text, path_below


def text(value: Any) -> None:
    """A text that a tokenizer, a terminal and a file can take."""
    if not isinstance(value, str):
        raise DataError(f"a text is needed; got {shown(value)}")
    check_text(value)


def texts(value: Any) -> None:
    """A list of texts, at least one."""
    if not isinstance(value, list) or not value:
        raise DataError(f"a list of texts is needed; got {shown(value)}")
    for each in value:
        text(each)


def image_name(value: Any) -> None:
    """The name of an image below the folder of images."""
    text(value)
    path_below(Path(), value)


def image_id(value: Any) -> None:
    """A whole number, or a text that is part of an image's name."""
    if not isinstance(value, int) or isinstance(value, bool):
        image_name(value)


def anything(value: Any) -> None:
    """A value that its reader checks itself."""


def optional(value: Any) -> None:
    """A value that its reader checks itself, and that a row may lack."""


def shown(value: Any) -> str:
    """The start of a value for messages."""
    try:
        return f"{value!r:.80}"
    except RecursionError:  # JSON may nest as deep as Python's stack
        return f"a {type(value).__name__} nested too deep"
