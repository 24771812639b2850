"""Two images as one with the captions of both: what CLIC trains on (Peleg et al. 2025)."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError, Record, Source

FIRST = "/first"  # after an id: the first image alone
_TRIES = 5  # other images, if some cannot be used


class SideBySideSource:
    """Each record of a source beside another one, a function of `seed` and its place.

    base, base_options: the source of the records, which have any number of captions.
    The picture is a square of `size` pixels. If the first image is at least as wide as high, one
    lies above the other, else they are side by side, each squashed to its half, in either order.
    The caption is "A. B.", of the first captions of both; the hard positives are, in this order,
    "B. A." and `more` sentences of further captions of both, in either order, as far as there are
    some. The hard image of a record is its first image alone, with its first caption: it is found
    by its id and is no record itself.
    """

    finds_more = True

    def __init__(
        self,
        split: str = "train",
        *,
        base: str = "records",
        base_options: Mapping[str, Any] | None = None,
        size: int = 224,
        more: int = 2,
        seed: int = 0,
    ) -> None:
        # sources/__init__.py imports this file
        from vlc_jax.input_pipeline.sources import make_source

        if size < 2 or size % 2 or more < 0:
            raise ValueError(
                f"size is even and at least 2, and more is at least 0; got size={size}, more={more}"
            )
        self._records: Source = make_source(base, split, **(base_options or {}))
        if len(self._records) < 2:
            raise ValueError(
                f"side_by_side puts two records together; its base has {len(self._records)}"
            )
        self._size, self._more, self._seed = size, more, seed
        self.image_sizes = getattr(self._records, "image_sizes", {})
        content = json.dumps([self._records.fingerprint, size, more, seed])
        self.fingerprint = f"side_by_side/{hashlib.sha256(content.encode()).hexdigest()[:32]}"

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> Record:
        """Raises IndexError outside of the records, DataError for one that cannot be used."""
        if not 0 <= index < len(self):
            raise IndexError(f"record {index} of {len(self)}")
        rng = np.random.default_rng([self._seed, index])
        first, picture, captions = self._usable(index)
        _, other_picture, other_captions = self._other(index, captions[0], rng)
        pairs = list(zip(_in_order(captions, rng), _in_order(other_captions, rng), strict=False))
        caption, exchanged = (_sentences(pair) for pair in (pairs[0], pairs[0][::-1]))
        more = [_sentences(pair[:: rng.choice([-1, 1])]) for pair in pairs[1 : 1 + self._more]]
        is_wide = picture.width >= picture.height
        half = (self._size, self._size // 2) if is_wide else (self._size // 2, self._size)
        halves = [
            np.asarray(each.resize(half, Image.Resampling.BICUBIC))
            for each in (picture, other_picture)[:: rng.choice([-1, 1])]
        ]
        return Record(
            id=str(index),
            image=np.concatenate(halves, axis=0 if is_wide else 1),
            captions=[caption],
            positives=[[exchanged, *more]],
            hard_images=[f"{index}{FIRST}"],
            group=first.group,
        )

    def find(self, record_id: str) -> Record:
        """The record of an id, or its first image alone. Raises DataError if there is none."""
        number = record_id.removesuffix(FIRST)
        if not number.isdecimal() or int(number) >= len(self):
            raise DataError(f"there is no record {record_id!r} of two images side by side")
        if number == record_id:
            return self[int(number)]
        record, _, captions = self._usable(int(number))
        return Record(record_id, record.image, captions[:1], hard_images=[number])

    def _usable(self, index: int) -> tuple[Record, Image.Image, list[str]]:
        """A record, its picture, and its captions without blank ones."""
        record = self._records[index]
        captions = [text for text in record.captions if isinstance(text, str) and text]
        if record.image is None or not captions:
            raise DataError(f"record {record.id} has no image or no caption for side_by_side")
        return record, image_ops.open_rgb(record.image), captions

    def _other(
        self, index: int, caption: str, rng: np.random.Generator
    ) -> tuple[Record, Image.Image, list[str]]:
        """Another record with another caption: of equal ones "B. A." is no second text."""
        reason: object = ""
        for number in rng.integers(1, len(self), _TRIES):
            try:
                found = self._usable((index + int(number)) % len(self))
            except DataError as error:
                reason = error
                continue
            if _sentences((found[2][0],)) != _sentences((caption,)):
                return found
            reason = f"record {found[0].id} has the same caption"
        raise DataError(f"none of {_TRIES} records can stand beside record {index}: {reason}")


def _in_order(captions: list[str], rng: np.random.Generator) -> list[str]:
    """The first caption, then the others in random order."""
    return captions[:1] + [captions[1 + k] for k in rng.permutation(len(captions) - 1)]


def _sentences(pair: tuple[str, ...]) -> str:
    return " ".join([f"{text.rstrip('.')}." for text in pair])
