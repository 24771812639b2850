"""Training examples: the record, caption, pixels and hard texts at each position of the sequence.

Main rows are the records in shuffled epochs. With h hard images, h rows follow each main row: the
records that it names in `Record.hard_images`. Position p belongs to main row p // (1 + h). An
example depends only on the seed, its position and the source.

An unusable record is replaced by the next usable one of the source. So is a missing hard image (too
few are named, or they are unusable); such rows have `is_stand_in`.
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from vlc_jax.input_pipeline import record_validation
from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.hard_texts.generator import SceneGraph
from vlc_jax.input_pipeline.hard_texts.noun_phrases import NounPhrases
from vlc_jax.input_pipeline.hard_texts.sampling import HardTexts
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.loader import questions
from vlc_jax.input_pipeline.loader.views import Views
from vlc_jax.input_pipeline.record import (
    Caption,
    DataError,
    Findable,
    Record,
    Source,
    has_text_only,
)
from vlc_jax.input_pipeline.sources import order
from vlc_jax.input_pipeline.sources.mixture_order import MixtureOrder

_MAX_CHECKED = 1000  # records, spread over the source; at least one must name hard images
_NONE = HardTexts()
_KNOWN = "was found unusable earlier"
# Random streams of a position; the index enters the key, so new ones go to the end.
_STREAMS = ("image", "negatives", "positives", "hard_images", "noun_phrases", "views")


class Cancelled(Exception):  # noqa: N818
    """Raised in a loader's thread if the loader is closed while the thread makes a batch."""


class Example(NamedTuple):
    """One row of a batch."""

    record: Record
    caption: Caption
    pixels: np.ndarray  # uint8 (height, width, 3), black where the record has no image
    negatives: list[str]
    positives: list[str]
    question: str  # about the image; "" for none
    views: dict[str, np.ndarray]  # further views of the image (views.py)
    is_stand_in: bool = False  # replaces a missing hard image


@dataclasses.dataclass(eq=False)
class Examples:
    """Factory of examples: `group(number)` is a main row with its hard images.

    limit: number of unusable records above which DataError is raised.
    known_bad: ids (or ids and reasons) of records known to be unusable, skipped and counted.
    hard_images: number per record. Each is a further row of the batch with its own caption and
      hard texts: a batch has batch_size / (1 + hard_images) records of the epoch.
    negatives, positives: hard negative / positive captions of every row. A count of 0 leaves their
      keys out of the batch.
    noun_phrases: replaces captions by noun phrases before hard texts are generated; None: off.
    question: template of the question about every image (questions.py); "": none.
    text_only_question: template of the question of text-only records; "": none.
    views: further views of every image; None: none.
    records_per_step: main rows of a step, for the steps at which weights of a mixture change.
    """

    source: Source
    image_transform: ImageTransform
    seed: int
    limit: float
    known_bad: Iterable[str] | Mapping[str, str] = ()
    hard_images: int = 0
    negatives: HardTexts = _NONE
    positives: HardTexts = _NONE
    noun_phrases: NounPhrases | None = None
    question: str = ""
    text_only_question: str = ""
    views: Views | None = None
    records_per_step: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.known_bad, Mapping):
            self.known_bad = dict.fromkeys(self.known_bad, _KNOWN)
        self._negatives_of_positive = dataclasses.replace(
            self.negatives, count=self.negatives.of_positives
        )
        self.has_text_only = has_text_only(self.source)
        # set by another thread: `_next_usable` raises Cancelled
        self.cancelled = False
        # index -> (id, reason): a bad record is decoded only once
        self._bad: dict[int, tuple[str, str]] = {}

    def check(self) -> None:
        """Raises ValueError for invalid hard texts and options, DataError for an empty source."""
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be at least 0 and below {2**32}; got {self.seed}")
        sampling.check("negatives", self.negatives)
        sampling.check("positives", self.positives)
        sides = {"negatives": self.negatives.generators, "positives": self.positives.generators}
        sampling.check_stored(sides, sampling.stored_versions(self.source))
        if not len(self.source):
            raise DataError("the source holds no records")
        if self.hard_images:
            rng = _generator(self.seed, 0, "hard_images")
            check_hard_images(self.source, lambda record: self._pixels(record, rng))
        if self.noun_phrases and questions.SLOT in self.question + self.text_only_question:
            raise ValueError(
                "noun_phrases: a part of a caption does not answer the record's question"
            )

    def group(self, number: int, bad: dict[str, str]) -> list[Example]:
        """Main row `number` of the sequence and its hard images.

        Adds skipped bad records to `bad`. Raises DataError if there are too many.
        """
        position = number * (1 + self.hard_images)
        index, main = self._next_usable(int(self._order[number]), position, bad)
        if not self.hard_images:
            return [main]
        group = [main, *self._hard_images(main.record, position)]
        while len(group) <= self.hard_images:
            taken = {example.record.id for example in group}
            index, other = self._next_usable(index, position + len(group), bad, taken)
            group.append(other._replace(is_stand_in=True))
        return group

    def _hard_images(self, main: Record, position: int) -> Iterator[Example]:
        """Usable hard images of the record in random order, at most `hard_images` of them."""
        assert isinstance(self.source, Findable)
        names = [name for name in dict.fromkeys(main.hard_images) if name != main.id]
        rng = _generator(self.seed, position, "hard_images")
        count = 0
        for choice in rng.permutation(len(names)):
            try:
                self._refuse_known(names[choice])
                record = self.source.find(names[choice])
                yield self._example(record, position + count + 1)
            except DataError:  # not lost: `group` marks the row that replaces it
                continue
            count += 1
            if count == self.hard_images:
                return

    def _next_usable(
        self, index: int, position: int, bad: dict[str, str], taken: Collection[str] = ()
    ) -> tuple[int, Example]:
        """Index and example of the first usable record from `index` on that is not in `taken`."""
        for _ in range(len(self.source)):
            if self.cancelled:
                raise Cancelled
            name = f"record {index}"
            try:
                # not decoded again, but counted in every batch
                if index in self._bad:
                    name, reason = self._bad[index]
                    raise DataError(reason)
                self._refuse_known(name)
                record = self.source[index]
                name = record.id
                self._refuse_known(name)
                if name not in taken:
                    return index, self._example(record, position)
            except DataError as error:
                self._bad[index] = (name, str(error))
                bad[name] = str(error)
                record_validation.check_share(bad, self.limit, len(self.source))
            index = (index + 1) % len(self.source)
        raise DataError(f"none of the {len(self.source):,} records can be used here")

    def epochs(self, step: int) -> dict[str, float]:
        """Epochs of each part of a mixture before a step; {} for other sources."""
        if not isinstance(self._order, MixtureOrder):
            return {}
        epochs = self._order.epochs(step * self.records_per_step)
        return dict(zip(self.source.names, epochs, strict=True))

    def _example(self, record: Record, position: int) -> Example:
        """Raises DataError for a record that cannot be used."""
        rng = _generator(self.seed, position, "image")
        caption = _drawn_caption(record, rng)
        pixels = self._pixels(record, rng)
        text, scene = record.captions[caption], record.meta.get("scene")
        sides = {
            "negatives": (self.negatives, record.negatives, record.negative_kinds),
            "positives": (self.positives, record.positives, record.positive_kinds),
        }
        sides = {
            side: each for side, each in sides.items() if each[0].count or each[0].of_positives
        }
        foils: dict[str, str] = {}
        if self.negatives.of_positives and sampling.FROM_RECORD in self.negatives.shares:
            foils = _foils(record, caption)
            sides["negatives"] = (self.negatives, (), ())
        if self.noun_phrases is not None:
            rng = _generator(self.seed, position, "noun_phrases")
            phrase = self.noun_phrases(sampling.text_of(text), rng)
            # stored hard texts belong to the whole caption, not to the phrase
            if phrase != text:
                text = phrase
                sides = {side: (texts, (), ()) for side, (texts, _, _) in sides.items()}
        rng = {side: _generator(self.seed, position, side) for side in sides}
        drawn = {
            side: sampling.draw(
                texts,
                text,
                stored[caption] if stored else (),
                kinds[caption] if kinds else (),
                rng[side],
                scene,
                [*record.captions[:caption], *record.captions[caption + 1 :]],
            )
            for side, (texts, stored, kinds) in sides.items()
        }
        negatives, positives = (drawn.get(side, []) for side in ("negatives", "positives"))
        # padded with "": the slot identifies a negative's positive
        if self.negatives.of_positives:
            negatives += [""] * (self.negatives.count - len(negatives))
            for positive in positives:
                negatives += self._foil(positive, foils, rng["negatives"], scene)
        template = self.question if record.image is not None else self.text_only_question
        question = questions.fill(template, record.questions[caption] if record.questions else None)
        views = {}
        if self.views is not None:
            views = self.views(record.image, _generator(self.seed, position, "views"))
        return Example(record, text, pixels, negatives, positives, question, views)

    def _foil(
        self,
        positive: str,
        foils: Mapping[str, str],
        rng: np.random.Generator,
        scene: SceneGraph | None,
    ) -> list[str]:
        """The hard negatives of a hard positive, the record's or drawn; "" for a missing one."""
        if positive in foils:
            negatives = [foils[positive]]
        else:
            negatives = sampling.draw(self._negatives_of_positive, positive, (), (), rng, scene)
        return [*negatives, *[""] * (self._negatives_of_positive.count - len(negatives))]

    def _pixels(self, record: Record, rng: np.random.Generator) -> np.ndarray:
        if record.image is not None:
            return self.image_transform(record.image, rng)
        if not self.has_text_only:
            raise DataError("the record has no image, and its source says that all have one")
        return np.zeros(self.image_transform.shape, np.uint8)

    @functools.cached_property
    def _order(self) -> order.Order:
        return order.make(self.source, self.seed, self.records_per_step)

    def _refuse_known(self, name: str) -> None:
        if name in self.known_bad:
            raise DataError(self.known_bad[name])

    def __getstate__(self) -> dict[str, object]:
        return {key: value for key, value in self.__dict__.items() if key != "_order"}


def _generator(seed: int, position: int, stream: str) -> np.random.Generator:
    """Random generator of one position and purpose, independent of who draws and when.

    Philox is counter-based: every position has a stream, and no state is carried from step to
    step. A resumed run, another host and a replacement record draw the same numbers as an
    unbroken run.
    """
    # Draws increment the first word of the counter; the position in the third word leaves
    # 2**128 numbers to each stream, so streams never overlap.
    counter = np.array([0, 0, position, 0], np.uint64)
    key = _Key((seed, _STREAMS.index(stream)))
    return np.random.Generator(np.random.Philox(key, counter=counter))


class _Key(tuple, np.random.bit_generator.ISeedSequence):
    """The words of Philox's key: for Philox(key=...) numpy first asks the system for entropy, which
    takes longer than all draws of an example."""

    def generate_state(self, n_words: int, dtype: type = np.uint32) -> np.ndarray:
        return np.array(self, dtype)


def _drawn_caption(record: Record, rng: np.random.Generator) -> int:
    """Position of the caption that is trained on, among the usable ones."""
    captions, weights = record_validation.captions(record), record.caption_weights
    if weights and not (captions := [each for each in captions if weights[each] > 0]):
        raise DataError("its usable captions have the weight 0")
    # a single caption draws no number: the crop continues the same random stream
    if len(captions) == 1:
        return captions[0]
    if not weights:
        return captions[int(rng.integers(len(captions)))]
    ends = np.cumsum([weights[each] for each in captions])
    place = int(np.searchsorted(ends, rng.random() * ends[-1], side="right"))
    # the product may be rounded up
    return captions[min(place, len(captions) - 1)]


def _foils(record: Record, caption: int) -> dict[str, str]:
    """Hard positive -> the hard negative at the same place of the record's lists."""
    positives, negatives = (
        texts[caption] if texts else () for texts in (record.positives, record.negatives)
    )
    if len(positives) != len(negatives):
        raise DataError(
            f"of_positives with the generator {sampling.FROM_RECORD} takes a negative for each "
            f"positive; got {len(negatives)} for {len(positives)}"
        )
    return dict(zip(positives, negatives, strict=True))


def check_hard_images(source: Source, read: Callable[[Record], Any]) -> None:
    """Raises ValueError unless the source has lookup by id and its records name hard images in it.

    Checks 1,000 records, spread over the source; at least one must name another record, whose image
    `read` decodes.
    """
    if not isinstance(source, Findable):
        raise ValueError(
            f"hard_images: records of {type(source).__name__} cannot be found by their id; train "
            "from shards that vlc-jax prepare wrote of it"
        )
    checked = range(0, len(source), max(1, len(source) // _MAX_CHECKED))
    count, example, reason = 0, (), ""
    for index in checked:
        try:
            record = source[index]
        except DataError:
            continue
        for name in record.hard_images:
            if name != record.id:
                count, example = count + 1, example or (name, record.id)
                try:
                    read(source.find(name))
                except DataError as error:
                    reason = reason or str(error)
                else:
                    return
    if example:
        raise ValueError(
            f"hard_images: no readable record has one of the {count:,} hard images looked at, "
            f"such as {example[0]!r} ({reason}); a record has an id like {example[1]!r}. If "
            "hard_images_column names other ids, set the option id_column to their column"
        )
    raise ValueError(
        f"hard_images: none of {len(checked):,} records looked at names any; the source needs "
        "them (NegCLIP's tables have them; a table of yours: option hard_images_column)"
    )
