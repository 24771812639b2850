"""Generators of exact hard negatives and hard positives for the scenes' captions.

The caption is parsed and compared with the scene graph, so a negative is false for the image (but
see `Replace`) and a positive is true. Each class is a `hard_texts.generator.Generator`.
"""

import abc
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.hard_texts.generator import Generator, SceneGraph
from vlc_jax.input_pipeline.scenes import contrast, grammar
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.scenes.grammar import Caption
from vlc_jax.input_pipeline.scenes.stream import Stream
from vlc_jax.input_pipeline.scenes.world import Scene

# raise it when a generator's texts change; part of every `version`
VERSION = 1
_ROLES = {"size": 1.0, "relation": 1.0, "colour": 1.0}
# draws per text, since draws may repeat
_TRIES = 4


Draws = Iterator[Caption | None]


@dataclasses.dataclass
class _Contrast(abc.ABC):
    """Base class of the generators; `world` and `world_options` define the scenes' world.

    A call raises ValueError without a scene, for a scene of another world, and for a caption
    outside the world's grammar.
    """

    name: ClassVar[str]
    world: str = dataclasses.field(default="scenes-mini", kw_only=True)
    world_options: Mapping[str, Any] | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self._world = worlds.named(self.world, **(self.world_options or {}))
        self.version = f"{VERSION}-{self._world.id}"

    def __call__(
        self, caption: str, rng: np.random.Generator, count: int, scene: SceneGraph | None = None
    ) -> list[str]:
        """At most `count` different texts, in random order."""
        if scene is None:
            raise ValueError(
                f"{self.name} needs the scene graph of a caption; only records of the source "
                f"'scenes' have one (meta['scene'])"
            )
        if scene["world"] != self._world.id:
            raise ValueError(
                f"{self.name} is made for world {self._world.id!r}, but the scene is of "
                f"{scene['world']!r}: give it the source's world and world_options"
            )
        parsed = grammar.parse(caption, self._world)
        if parsed is None:
            raise ValueError(f"{self.name}: no caption of world {self._world.id!r}: {caption!r}")
        # A single draw from the loader's generator; `stream` does not depend on numpy's version.
        stream = Stream(f"{self.name}/{rng.integers(2**63)}")
        texts: list[str] = []
        for made in self._draw(parsed, worlds.from_json(scene, self._world), stream, count):
            if made is not None and (text := made.text) not in texts:
                texts.append(text)
            if len(texts) == count:
                break
        return texts

    @abc.abstractmethod
    def _draw(self, caption: Caption, scene: Scene, stream: Stream, count: int) -> Draws:
        """Yields captions, possibly repeated; None for an impossible change."""


@dataclasses.dataclass
class Swap(_Contrast):
    """Hard negatives: two phrases swap one word: "a red circle and a blue square" -> "a blue circle
    and a red square". `roles`: roles of the word, of colour, size, texture and shape.
    """

    name = "scenes_swap"

    roles: Sequence[str] = ("colour",)

    def __post_init__(self) -> None:
        super().__post_init__()
        lookup.check_known("role to swap", self.roles, (*contrast.ATTRIBUTES, "shape"))

    def _draw(self, caption: Caption, scene: Scene, stream: Stream, count: int) -> Draws:
        phrases = len(caption.phrases)
        ways = [(r, (i, j)) for r in self.roles for j in range(1, phrases) for i in range(j)]
        for k in stream.sample(len(ways), len(ways)):
            yield contrast.swap(caption, scene, *ways[k])


class Reverse(_Contrast):
    """Hard negative: the sides of a relation swapped, "X left of Y" -> "Y left of X"."""

    name = "scenes_reverse"

    def _draw(self, caption: Caption, scene: Scene, stream: Stream, count: int) -> Draws:
        yield contrast.reverse(caption, scene)


class Negate(_Contrast):
    """Hard negative: an object of the image negated, "X and Y" -> "X and no Y"."""

    name = "scenes_negate"

    def _draw(self, caption: Caption, scene: Scene, stream: Stream, count: int) -> Draws:
        yield contrast.negate(caption, scene)


@dataclasses.dataclass
class Describe(_Contrast):
    """Hard positives: other true captions of the image, in the style of `caption_options`.

    Many of them together are a dense description (DAC's bags).
    """

    name = "scenes_describe"

    caption_options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.style = grammar.style_of(self._world, **(self.caption_options or {}))

    def _draw(self, caption: Caption, scene: Scene, stream: Stream, count: int) -> Draws:
        for _ in range(_TRIES * count):
            made = grammar.describe(scene, stream, self.style)
            yield None if made.text == caption.text else made


class Units(_Contrast):
    """Hard positives: the parts of the caption, each object alone and the relation between shapes.

    "a red circle left of a square" -> "a red circle", "a square", "a circle left of a square".
    """

    name = "scenes_units"

    def _draw(self, caption: Caption, scene: Scene, stream: Stream, count: int) -> Draws:
        if caption.kind == "count":  # its shape is a plural
            return
        phrases = caption.phrases[:1] if caption.kind == "negation" else caption.phrases
        parts = [Caption("single", (phrase,)) for phrase in phrases]
        if caption.kind == "relation":
            shapes = tuple([grammar.Phrase(phrase.shape) for phrase in phrases])
            parts.append(Caption("relation", shapes, caption.link))
        for k in stream.sample(len(parts), len(parts)):
            yield None if parts[k].text == caption.text else parts[k]


class Reorder(_Contrast):
    """Hard positive: the order changed, "X and Y" -> "Y and X", "X left of Y" -> "Y right of X"."""

    name = "scenes_reorder"

    def _draw(self, caption: Caption, scene: Scene, stream: Stream, count: int) -> Draws:
        yield contrast.reorder(caption)


@dataclasses.dataclass
class Paraphrase(_Contrast):
    """Positives: the same content in another sentence, as a language model rewords a caption.

    The prefix is drawn anew, the objects are reordered in half of the texts, and each word that has
    a synonym in `sets` ("a", "b" or "ab") is replaced by it with probability 1/2. A text never
    equals the caption.
    """

    name = "scenes_paraphrase"

    sets: str = "ab"

    def __post_init__(self) -> None:
        super().__post_init__()
        lookup.check_known("synonym set", [self.sets], contrast.SYNONYM_SETS)

    def _draw(self, caption: Caption, scene: Scene, stream: Stream, count: int) -> Draws:
        for _ in range(_TRIES * count):
            made = contrast.paraphrase(caption, stream, self.sets)
            yield None if made.text == caption.text else made


@dataclasses.dataclass
class _OneWord(_Contrast):
    """Changes one word; its role is drawn by the shares of the roles in the caption."""

    roles: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.roles = dict(_ROLES if self.roles is None else self.roles)
        lookup.check_known("role", self.roles, contrast.ROLES)
        if not self.roles or min(self.roles.values()) <= 0:
            raise ValueError(f"roles are {{role: share}}, shares above 0; got {self.roles}")

    def _draw(self, caption: Caption, scene: Scene, stream: Stream, count: int) -> Draws:
        shares = dict(self.roles)
        for _ in range(len(shares) + _TRIES * count):
            if not shares:
                return
            total = sum(shares.values())
            role = list(shares)[stream.weighted([share / total for share in shares.values()])]
            made = self._change(caption, scene, role, stream)
            # the caption lacks the role; the other roles share its weight
            if made is None:
                del shares[role]
            yield made

    @abc.abstractmethod
    def _change(self, caption: Caption, scene: Scene, role: str, stream: Stream) -> Caption | None:
        """The caption with a word of the role changed; None if impossible."""


@dataclasses.dataclass
class Replace(_OneWord):
    """Hard negatives: one word replaced by another of its class.

    `roles` maps shape, colour, size, texture, relation, place or number to its share; roles that
    the caption lacks leave their share to the others. `draw` is one of `contrast.DRAWS`; the first
    makes some "negatives" that are true, as rule-based methods do.
    """

    name = "scenes_replace"

    draw: str = "uniform_word_list"

    def __post_init__(self) -> None:
        super().__post_init__()
        lookup.check_known("draw", [self.draw], contrast.DRAWS)

    def _change(self, caption: Caption, scene: Scene, role: str, stream: Stream) -> Caption | None:
        return contrast.replace(caption, scene, role, stream, self.draw)


@dataclasses.dataclass
class Synonym(_OneWord):
    """Hard positives: one word replaced by its synonym from set "a", "b" or both ("ab").

    `roles` maps roles to shares, as for `Replace`; colour, size, texture and relation have
    synonyms.
    """

    name = "scenes_synonym"

    sets: str = "ab"

    def __post_init__(self) -> None:
        super().__post_init__()
        lookup.check_known("role with synonyms", self.roles, (*contrast.ATTRIBUTES, "relation"))
        lookup.check_known("synonym set", [self.sets], contrast.SYNONYM_SETS)

    def _change(self, caption: Caption, scene: Scene, role: str, stream: Stream) -> Caption | None:
        return contrast.synonym(caption, role, stream, self.sets)


SCENES_NEGATIVES: dict[str, Callable[..., Generator]] = {
    generator.name: generator for generator in (Swap, Reverse, Replace, Negate)
}
SCENES_POSITIVES: dict[str, Callable[..., Generator]] = {
    generator.name: generator for generator in (Synonym, Reorder, Paraphrase, Describe, Units)
}
