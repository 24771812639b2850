"""THE generator contract: caption -> hard negatives or hard positives, and the taggers they use.

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
    """The tokens of a caption, and its noun phrases as ranges of tokens [first, last + 1)."""

    tokens: tuple[Token, ...]
    noun_chunks: tuple[tuple[int, int], ...]


class Tagger(Protocol):
    """Caption -> parts of speech. `name` and `version` are stored with all texts made with it."""

    name: str
    version: str

    def __call__(self, caption: str) -> Tagged:
        """Raises DataError for a caption that it cannot tag."""
        ...


class Generator(Protocol):
    """caption -> captions, a pure function of caption, `scene` and the draws of `rng`.

    `version` changes when its output does, and names the tagger or model it uses. A generator whose
    texts of one call share a random draw (such as the word class) has `one_by_one = True`: data
    preparation then makes each text in a call of its own.
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
