"""THE generator contract: what makes hard negatives or hard positives of a caption.

A generator is named in a table (`negatives.NEGATIVES`, `positives.POSITIVES`), in configs
(config.input.negatives.generators) and in what was made with it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np


class Token(NamedTuple):
    """A word or a sign of a caption, which is caption[start:stop]."""

    text: str
    tag: str  # Penn Treebank: NN, NNS, JJ, VBG, ...
    pos: str  # universal: NOUN, ADJ, VERB, ADV, ADP, ...
    start: int
    stop: int


class Tagged(NamedTuple):
    """A caption's tokens, and which runs of them [first, last + 1) are noun phrases."""

    tokens: tuple[Token, ...]
    noun_chunks: tuple[tuple[int, int], ...]


class Tagger(Protocol):
    """Finds parts of speech. `name` and `version` go into everything made with it."""

    name: str
    version: str

    def __call__(self, caption: str) -> Tagged:
        """Raises DataError for a caption that it cannot tag."""
        ...


class Generator(Protocol):
    """caption -> captions, a pure function of caption, `scene` and the draws of `rng`.

    `version` changes when its output does, and names the tagger or model it uses. One whose texts
    of a call have a draw in common also says `one_by_one = True`: texts that are stored, to be
    drawn from later, are then made in a call each.
    """

    name: str
    version: str

    def __call__(
        self,
        caption: str,
        rng: np.random.Generator,
        count: int,
        scene: Mapping[str, Any] | None = None,
    ) -> Sequence[str]:
        """Different texts, best `count` of them if it has a choice; none where nothing fits.

        scene: the scene graph of an embedded scene (`record.meta["scene"]`); None for others.
        """
        ...
