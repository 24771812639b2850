"""The embedded world as a source: pictures are sampled, drawn and described on the fly."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.record import DataError, Record
from vlc_jax.input_pipeline.scenes import conversations as conversing
from vlc_jax.input_pipeline.scenes import draw, grammar, hard_image, questions, sample
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.scenes.grammar import Caption
from vlc_jax.input_pipeline.scenes.hard_image import Pair
from vlc_jax.input_pipeline.scenes.stream import Stream
from vlc_jax.input_pipeline.scenes.world import Scene

IMAGES = ("paired", "permuted")


class ScenesSource:
    """`count` pictures of a split, each with `captions` true captions, the questions that these
    answer (scenes/questions.py) and its scene graph.

    Record i depends on the world, the split and i alone, not on `count`. `world_options` changes
    fields of `scenes.world.World`, `caption_options` fields of `scenes.grammar.Style`; pictures do
    not depend on the captions.

    `hard_images` gives every record one hard image and lists (kind, share): "relation" and
    "attribute", see `scenes.hard_image`. A record then has one caption, which names two objects;
    its hard image has the id "<id>~<kind>" and the counterpart of that caption; each caption is the
    hard negative of the other one. The records differ from a source without hard images: scenes
    that allow no hard image are replaced.

    `conversations` lists (kind, share): "caption" is a share of the texts, the other kinds (see
    scenes/conversations.py) are shares of the turns of all other texts. Text k is then caption k,
    or a conversation with a turn about each caption, starting with caption k, for the tokenizer
    `scenes_conversation`.

    `images` is "paired", or "permuted": record i then has the image of record i + count/2, and its
    hard image, and keeps its captions, its scene graph and hence its hard texts. What a model
    learns from these pairs about captions and hard texts, it learns without the image: the blind
    control of a method.

    Raises ValueError for unknown names and impossible values.
    """

    def __init__(
        self,
        world: str = "scenes-mini",
        split: str = "train",
        count: int = 64_000,
        captions: int = 4,
        world_options: Mapping[str, Any] | None = None,
        caption_options: Mapping[str, Any] | None = None,
        hard_images: Sequence[tuple[str, float]] = (),
        conversations: Sequence[tuple[str, float]] = (),
        images: str = "paired",
    ):
        lookup.check_known("arrangement of images", [images], IMAGES)
        lookup.check_known("split", [split], sample.SPLITS)
        for name, value in (("count", count), ("captions", captions)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}")
        self.world = worlds.named(world, **(world_options or {}))
        self.style = grammar.style_of(self.world, **(caption_options or {}))
        self.split = split
        self._count = count
        self._captions = captions
        self._shares = _shares("hard image", hard_images, hard_image.KINDS)
        self._kinds = _shares("conversation", conversations, conversing.KINDS)
        self.fingerprint = f"{self.world.id}/{split}/{count}/captions-{self._caption_version()}"
        if self._shares:
            if captions != 1:
                raise ValueError(
                    f"with hard_images a picture has one caption, the counterpart of its hard "
                    f"image's; got captions={captions}: set captions=1 and raise count instead "
                    f"(pictures are drawn when they are read)"
                )
            # raises ValueError if the world has no such pictures
            for kind in self._shares:
                hard_image.draw_pair(self.world, split, 0, self.style, {kind: 1.0})
            self.fingerprint += f"/hard_images-{_listed(self._shares)}"
        if self._kinds:
            self.fingerprint += f"/conversations-{_listed(self._kinds)}"
        # Records are independent draws: any shift is a random permutation, and this one leaves no
        # record its own image.
        self._shift = count // 2 if images == "permuted" else 0
        if images == "permuted":
            if not self._shift:
                raise ValueError(f"images='permuted' needs two records; got count={count}")
            self.fingerprint += "/images-permuted"

    def _caption_version(self) -> str:
        """Number and style of captions as a short name."""
        # the later fields count where they are set, so that earlier fingerprints hold
        style = repr(self.style).replace(", completeness=None, saliency=0.0", "")
        style = hashlib.blake2b(style.encode(), digest_size=4).hexdigest()
        return f"{self._captions}-{style}"

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Record:
        """Record `index` in [0, count). Raises IndexError outside."""
        # iteration over the source ends at the first IndexError
        if not 0 <= index < self._count:
            raise IndexError(f"record {index} of {self._count}")
        record_id = self._id(index)
        if self._shares:
            pair = self._pair(index)
            hard, shown = f"{record_id}~{pair.kind}", self._shown(index, pair).scene
            captions = [pair.caption]
            return self._record(record_id, pair.scene, captions, hard, pair.hard_caption, shown)
        scene = sample.sample_scene(self.world, self.split, index)
        stream = Stream(f"{record_id}/captions")
        captions = [grammar.describe(scene, stream, self.style) for _ in range(self._captions)]
        shown = scene
        if self._shift:
            shown = sample.sample_scene(self.world, self.split, self._other(index))
        return self._record(record_id, scene, captions, shown=shown)

    def find(self, record_id: str) -> Record:
        """The record or hard image of an id. Raises DataError if there is none."""
        main, mark, kind = record_id.partition("~")
        number = main.rpartition("/")[2]
        index = int(number) if number.isdecimal() else -1
        if 0 <= index < self._count and main == self._id(index):
            if not mark:
                return self[index]
            if self._shares and (pair := self._pair(index)).kind == kind:
                captions, shown = [pair.hard_caption], self._shown(index, pair).hard_scene
                return self._record(record_id, pair.hard_scene, captions, main, pair.caption, shown)
        raise DataError(f"source {self.fingerprint!r} has no record {record_id!r}")

    def _id(self, index: int) -> str:
        return f"{self.world.id}/{self.split}/{index}"

    def _pair(self, index: int) -> Pair:
        return hard_image.draw_pair(self.world, self.split, index, self.style, self._shares)

    def _shown(self, index: int, pair: Pair) -> Pair:
        """The pair whose images record `index`, of the pair `pair`, has."""
        return self._pair(self._other(index)) if self._shift else pair

    def _other(self, index: int) -> int:
        return (index + self._shift) % self._count

    def _record(
        self,
        record_id: str,
        scene: Scene,
        captions: Sequence[Caption],
        hard_image: str = "",
        negative: Caption | None = None,
        shown: Scene | None = None,
    ) -> Record:
        """hard_image: its id, and its caption, the hard negative of the only caption; none without
        hard images.   shown: the scene of the image; default: the scene of the captions."""
        texts = [caption.text for caption in captions]
        if self._kinds:
            stream = Stream(f"{record_id}/conversations")
            rotations = [[*captions[k:], *captions[:k]] for k in range(len(captions))]
            texts = [
                conversing.conversation(rotation, scene, stream, self._kinds)
                for rotation in rotations
            ]
        return Record(
            record_id,
            draw.draw(shown or scene),
            texts,
            questions=[questions.question(caption) for caption in captions],
            negatives=[[negative.text]] if negative and not self._kinds else (),
            hard_images=[hard_image] if hard_image else [],
            meta={"scene": scene.to_json()},
        )


def _shares(
    name: str, listed: Sequence[tuple[str, float]], known: Sequence[str]
) -> dict[str, float]:
    """Kind -> share, as numbers that sum to 1."""
    lookup.check_known(f"kind of {name}", [kind for kind, _ in listed], known)
    shares = {kind: float(share) for kind, share in listed}
    if len(shares) < len(listed) or any(share <= 0 for share in shares.values()):
        raise ValueError(
            f"{name.replace(' ', '_')}s lists each kind once with a share above 0; got {listed}"
        )
    total = sum(shares.values())
    return {kind: share / total for kind, share in shares.items()}


def _listed(shares: Mapping[str, float]) -> str:
    return "-".join(f"{kind}:{share:g}" for kind, share in shares.items())
