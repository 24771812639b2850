"""Hard texts generated once, when data are prepared, and stored with the records."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from vlc_jax.input_pipeline import record_validation
from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.hard_texts.generator import Generator
from vlc_jax.input_pipeline.record import DataError, Record, Source, has_text_only

_SIDES = {"negatives": "negative_kinds", "positives": "positive_kinds"}
_MAX_TRIED = 16  # records in the search for a usable one


class GeneratedSource:
    """A source whose records carry hard texts that generators made of each caption.

    generators: "negatives", "positives" -> name -> generator. A caption that already has texts of
    a generator gets no more of it. count: most texts per caption and generator. The draws depend on
    the seed, the record's id, the caption's index and the generator's name.

    `request` has everything that determines the texts; its versions include the generators of texts
    that the source already has. Reading a record raises DataError if a generator does. Raises
    ValueError if the source has texts of another version of a generator.
    """

    def __init__(
        self,
        source: Source,
        generators: Mapping[str, Mapping[str, Generator]],
        *,
        count: int,
        seed: int,
    ) -> None:
        if count < 1:
            raise ValueError(f"texts per kind must be at least 1; got {count}")
        if not 0 <= seed < 2**64:
            raise ValueError(f"the seed of texts must be at least 0 and below 2**64; got {seed}")
        self._source, self._generators = source, generators
        self._count, self._seed = count, seed
        stored = sampling.stored_versions(source)
        sampling.check_stored(generators, stored)
        versions = {
            side: stored.get(side, {}) | {name: made.version for name, made in table.items()}
            for side, table in generators.items()
        }
        self.request = {**versions, "count": count, "seed": seed}
        self.has_text_only = has_text_only(source)
        # without the texts, which `request` identifies
        self.fingerprint = source.fingerprint

    def try_one(self) -> None:
        """Generates the texts of the first usable record, before anything is written.

        Raises ValueError if a generator cannot process records of this source.
        """
        for index in range(min(len(self), _MAX_TRIED)):
            try:
                self[index]
            except DataError:
                continue
            return

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> Record:
        record = self._source[index]
        captions = record_validation.captions(record)
        fields: dict[str, Any] = {}
        for side, generators in self._generators.items():
            if not generators:
                continue
            texts = _lists(getattr(record, side), record)
            kinds = _lists(getattr(record, _SIDES[side]), record)
            for caption in captions:
                kinds[caption] += [sampling.UNKNOWN_KIND] * (
                    len(texts[caption]) - len(kinds[caption])
                )
                present = {*kinds[caption]}
                for name, generator in generators.items():
                    if name not in present:
                        made = self._made(record, caption, side, name, generator)
                        texts[caption] += made
                        kinds[caption] += [name] * len(made)
            fields |= {side: texts, _SIDES[side]: kinds}
        return dataclasses.replace(record, **fields)

    def _made(
        self, record: Record, caption: int, side: str, name: str, generator: Generator
    ) -> list[str]:
        # Keyed by the record's id, not its index: texts stay if other records are added or removed.
        rng = sampling.stream(f"{record.id}/{caption}/{side}/{name}", self._seed)
        scene = record.meta.get("scene")
        try:
            text = record.captions[caption]
            return sampling.several_texts(generator, text, rng, self._count, scene)
        except DataError as error:
            raise DataError(f"{record.id}: {name}: {error}") from error


def _lists(stored: Sequence[Sequence[str]], record: Record) -> list[list[str]]:
    return [list(texts) for texts in stored] or [[] for _ in record.captions]


def make(
    negatives: Sequence[str], positives: Sequence[str], options: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, Generator]]:
    """Generators of hard negatives and positives by name.

    Raises ValueError for unknown ones, and for one that is named twice."""
    for names in (negatives, positives):
        if len({*names}) < len(names):
            raise ValueError(f"a generator makes its texts once; got {','.join(names)}")
    for name in options:
        if name not in (*negatives, *positives):
            raise ValueError(f"options for the generator {name!r}, which is not requested")
    made: dict[str, dict[str, Generator]] = {}
    for side, names in (("negatives", negatives), ("positives", positives)):
        table = sampling.generator_table(side) if names else {}
        made[side] = {
            name: sampling.make_generator(side, table, name, options.get(name, {}))
            for name in names
        }
    return made
