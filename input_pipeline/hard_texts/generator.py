"""The generator protocol (caption -> hard negatives or hard positives), and the tagger protocol.

The name of a generator is its key in `negatives.NEGATIVES` or `positives.POSITIVES`, in configs
(config.input.negatives.generators) and in stored texts.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

SceneGraph = Mapping[str, Any]  # of an embedded scene: record.meta["scene"]


class Token(NamedTuple):
    """A word or a sign of a caption: caption[start:stop]."""

    text: str
    tag: str  # Penn Treebank: NN, NNS, JJ, VBG, ...
    pos: str  # universal: NOUN, ADJ, VERB, ADV, ADP, ...
    start: int
    stop: int


class Tagged(NamedTuple):
    """The tokens of a caption, and its noun phrases as token ranges [first, last + 1)."""

    tokens: tuple[Token, ...]
    noun_chunks: tuple[tuple[int, int], ...]


class Tagger(Protocol):
    """Caption -> parts of speech. Generated texts are stored with its `name` and `version`."""

    name: str
    version: str

    def __call__(self, caption: str) -> Tagged:
        """Raises DataError for a caption that it cannot tag."""
        ...


class Generator(Protocol):
    """caption -> captions; a pure function of caption, `scene` and the draws of `rng`.

    `version` changes with the output, and names the tagger or model. If the texts of one call share
    a random draw (such as the word class), `one_by_one = True` makes data preparation call the
    generator once per text. `is_fixed = True`: a caption always has the same text, or none.
    """

    name: str
    version: str

    def __call__(
        self, caption: str, rng: np.random.Generator, count: int, scene: SceneGraph | None = None
    ) -> Sequence[str]:
        """At most `count` different texts, the best ones; none if no rule applies.

        scene: None for a caption of no embedded scene.
        """
        ...


class CaptionGenerator:
    """Base class of the generators that read the caption alone; a subclass defines `texts`."""

    name: str

    def __call__(
        self, caption: str, rng: np.random.Generator, count: int, scene: SceneGraph | None = None
    ) -> Sequence[str]:
        return self.texts(caption, rng, count)

    def texts(self, caption: str, rng: np.random.Generator, count: int) -> Sequence[str]:
        """`Generator.__call__` without a scene."""
        raise NotImplementedError
