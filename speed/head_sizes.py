"""Sizes of a case of speed/heads.py, for interpreters with JAX or with torch."""

from typing import NamedTuple


class Sizes(NamedTuple):
    """Sizes of a case, sent by the JAX side to the torch side."""

    batch: int
    patches: int
    width: int
    embed: int
    text_width: int
    length: int
    operations: int
