"""The embedded world as a source: every picture is sampled, drawn and described when asked for."""

import hashlib
from collections.abc import Mapping
from typing import Any

from input_pipeline.record import Record
from input_pipeline.scenes import draw, grammar, sample
from input_pipeline.scenes import world as worlds
from input_pipeline.scenes.stream import Stream


class ScenesSource:
    """`count` pictures of a split, each with `captions` true captions and its scene graph.

    Record i depends on the world, the split and i alone, not on `count`. `world_options` changes
    fields of `scenes.world.World`, `caption_options` fields of `scenes.grammar.Style`; pictures do
    not depend on the captions. Raises ValueError for unknown names and impossible values.
    """

    def __init__(
        self,
        world: str = "scenes-mini",
        split: str = "train",
        count: int = 64_000,
        captions: int = 4,
        world_options: Mapping[str, Any] | None = None,
        caption_options: Mapping[str, Any] | None = None,
    ):
        worlds.check_known("split", [split], sample.SPLITS)
        for name, value in (("count", count), ("captions", captions)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}")
        self.world = worlds.named(world, **(world_options or {}))
        self.style = grammar.style_of(self.world, **(caption_options or {}))
        self.split = split
        self._count = count
        self._captions = captions
        self.fingerprint = f"{self.world.id}/{split}/{count}/captions-{self._caption_version()}"

    def _caption_version(self) -> str:
        """How many captions a picture has and in which style, in short."""
        style = hashlib.blake2b(repr(self.style).encode(), digest_size=4).hexdigest()
        return f"{self._captions}-{style}"

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Record:
        """Record `index` in [0, count). Raises IndexError outside."""
        if not 0 <= index < self._count:
            raise IndexError(f"record {index} of {self._count}")
        scene = sample.sample_scene(self.world, self.split, index)
        record_id = f"{self.world.id}/{self.split}/{index}"
        stream = Stream(f"{record_id}/captions")
        captions = [grammar.describe(scene, stream, self.style).text for _ in range(self._captions)]
        return Record(record_id, draw.draw(scene), captions, meta={"scene": scene.to_json()})
