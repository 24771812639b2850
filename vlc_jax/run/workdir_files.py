"""Safe file helpers for workdirs of unknown origin.

JSON parsing with bounded depth, atomic replacement, no writes through symbolic links.
"""

import json
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline import stores

MAX_DEPTH = 50  # of nested lists and objects; a config has 4 to 6


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text.

    Raises ValueError for invalid JSON, and for JSON nested deeper than MAX_DEPTH, on which
    recursive functions would raise RecursionError later.
    """
    too_deep = f"it is nested deeper than {MAX_DEPTH} levels"
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError(too_deep) from error
    # Counting brackets is faster than walking the value, and most texts have few of them.
    opening = ("[", "{") if isinstance(text, str) else (b"[", b"{")
    if sum(map(text.count, opening)) > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise ValueError(too_deep)
    return value


def _depth(value: Any, above: int = 0) -> int:
    """Depth of nested lists and objects, counted up to MAX_DEPTH + 1."""
    if not isinstance(value, dict | list) or above > MAX_DEPTH:
        return above
    inner = value.values() if isinstance(value, dict) else value
    return max((_depth(item, above + 1) for item in inner), default=above + 1)


def without_link(path: Path) -> Path:
    """`path`, after removing a symbolic link there: a write would follow it out of the workdir."""
    if path.is_symlink():
        path.unlink()
    return path


def replace(path: Path, text: str) -> None:
    """Writes a text file atomically, by a rename: a reader never sees a partial file."""
    # "replace": UTF-8 refuses lone surrogates, which file names and captions may have.
    stores.replace(path, text.encode("utf-8", "replace"))
