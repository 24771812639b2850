"""Files of a workdir, which may be anybody's: JSON of any kind is read or refused, never followed
by a traceback, and nothing is written through a link."""

import json
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline import stores

MAX_DEPTH = 50  # of lists and objects in one another; a config has 4 to 6


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError for any other text, and for one that is nested
    deeper than MAX_DEPTH: functions that call themselves for every level would end in a
    RecursionError somewhere later."""
    too_deep = f"it is nested deeper than {MAX_DEPTH} levels"
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError(too_deep) from error
    # Most texts have too few brackets to be deep: counting these is quicker than the levels.
    opening = ("[", "{") if isinstance(text, str) else (b"[", b"{")
    if sum(map(text.count, opening)) > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise ValueError(too_deep)
    return value


def _depth(value: Any, above: int = 0) -> int:
    """Levels of lists and objects, counted no further than needed."""
    if not isinstance(value, dict | list) or above > MAX_DEPTH:
        return above
    inner = value.values() if isinstance(value, dict) else value
    return max((_depth(item, above + 1) for item in inner), default=above + 1)


def without_link(path: Path) -> Path:
    """`path`, at which a symbolic link is removed: opened for writing, it would lead elsewhere."""
    if path.is_symlink():
        path.unlink()
    return path


def replace(path: Path, text: str) -> None:
    """Writes a text file all or nothing, by a rename: a reader never sees half of it."""
    # Lone surrogates (in a file's name, or a caption) are no UTF-8.
    stores.replace(path, text.encode("utf-8", "replace"))
