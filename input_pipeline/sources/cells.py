"""Cells of a table that hold lists: hard texts, their kinds, ids of hard images."""

import ast
import json
import threading
from typing import Any

from vlc_jax.input_pipeline.record import DataError

# Python 3.11 has one parser depth counter for all threads: if the garbage collector lets another
# thread parse in between, the count is off, and Python raises SystemError.
_one_at_a_time = threading.Lock()


def read(row: dict[str, Any], column: str | None, name: str) -> Any:
    """A cell's value; parses lists, which CSV and TSV hold as JSON or Python literals."""
    value = None if column is None else row.get(column)
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:  # most JSON lists are Python literals, too, but not lists with null or true
            with _one_at_a_time:
                return ast.literal_eval(value.strip())
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            try:
                return json.loads(value)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{name}: {column!r} is not a list: {error}") from error
    return value


def per_caption(value: list[Any], column: str | None, captions: int, name: str) -> list[list[str]]:
    """A list of texts for each caption; a flat list belongs to all captions."""
    if all(isinstance(text, str) for text in value):
        return [value] * captions if value else []
    if len(value) != captions or not all(isinstance(texts, list) for texts in value):
        raise DataError(
            f"{name}: {column!r} is a list of texts or one list for each of {captions} captions; "
            f"got {value}"
        )
    if not all(isinstance(text, str) for texts in value for text in texts):
        raise DataError(f"{name}: {column!r} holds something that is not text: {value}")
    return value
