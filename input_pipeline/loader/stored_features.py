"""Precomputed features of frozen towers, serialised into the bytes of a record's "image".

One safetensors blob per record has the features of its image and of all its texts (captions, hard
negatives, hard positives): "image_pooled" (embed,), "image_tokens" (patches, width), "text_pooled"
(texts, embed), "text_tokens" (texts, length, width), as far as a head needs them, and the texts as
JSON. bfloat16 numbers are stored as uint16 bits.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

from vlc_jax.input_pipeline.record import Caption, DataError, Record

DTYPES = ("float32", "float16", "bfloat16")
_BITS = ":bfloat16"  # suffix of names: safetensors' numpy interface has no bfloat16, so its bits
# are stored as uint16


class Stored:
    """Features of one record.   image: part -> array.   text: part -> array (texts, ...)."""

    def __init__(
        self, image: dict[str, np.ndarray], text: dict[str, np.ndarray], texts: Sequence[str]
    ) -> None:
        self.image, self.text = image, text
        self._rows = {name: row for row, name in enumerate(texts)}

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the image's largest array."""
        return max(self.image.values(), key=np.size).shape

    def row(self, text: Caption) -> int:
        """Row of a text's features. Raises DataError for a text that was not stored."""
        text = str(text)  # of a conversation, as `pack` stores it
        if text not in self._rows:
            raise DataError(
                f"no features of {text!r} are stored, only features of the records' own texts; "
                "prepare hard negatives and positives with the data, then store their features"
            )
        return self._rows[text]


class FeatureTransform:
    """Counterpart of ImageTransform for stored features: bytes -> Stored."""

    def __call__(self, data: Any, rng: np.random.Generator | None) -> Stored:
        """Raises DataError for bytes that `pack` did not write."""
        del rng
        return unpack(data)


def texts_of(record: Record) -> list[Caption]:
    """Texts of a record without repetitions, in order."""
    lists = [record.captions, *record.negatives, *record.positives]
    return list(dict.fromkeys(text for texts in lists for text in texts))


def pack(
    image: Mapping[str, np.ndarray],
    text: Mapping[str, np.ndarray],
    texts: Sequence[Caption],
    dtype: str,
) -> bytes:
    """Packs the features of one record into bytes, rounded to `dtype`, one of DTYPES."""
    numbers = {f"image_{part}": array for part, array in image.items()}
    numbers |= {f"text_{part}": array for part, array in text.items()}
    arrays = {"texts": np.frombuffer(json.dumps([*map(str, texts)]).encode(), np.uint8)}
    for name, array in numbers.items():
        if dtype == "bfloat16":
            arrays[name + _BITS] = array.astype(ml_dtypes.bfloat16).view(np.uint16)
        else:
            arrays[name] = array.astype(dtype)
    return safetensors.numpy.save(arrays)


def unpack(data: bytes) -> Stored:
    """Inverse of `pack`. Raises DataError for other bytes."""
    try:
        arrays = safetensors.numpy.load(data)
        texts = json.loads(arrays.pop("texts").tobytes())
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"these bytes are no features: {error}") from error
    parts: dict[str, dict[str, np.ndarray]] = {"image": {}, "text": {}}
    for name, array in arrays.items():
        side, _, part = name.removesuffix(_BITS).partition("_")
        parts[side][part] = array.view(ml_dtypes.bfloat16) if name.endswith(_BITS) else array
    return Stored(parts["image"], parts["text"], texts)


def text_arrays(
    rows: Sequence[Stored], texts: Sequence[Sequence[Caption]], count: int, name: str
) -> dict[str, np.ndarray]:
    """Features of each row's texts as arrays `{name}_{part}` (rows, count, ...); {} for count 0.

    Slots of "" and unfilled slots are 0. Raises DataError for a text that was not stored.
    """
    if not count:
        return {}
    arrays = {}
    for part, example in rows[0].text.items():
        array = np.zeros((len(rows), count, *example.shape[1:]), example.dtype)
        for i, (row, row_texts) in enumerate(zip(rows, texts, strict=True)):
            for k, text in enumerate(row_texts):
                if text:
                    array[i, k] = row.text[part][row.row(text)]
        arrays[f"{name}_{part}"] = array
    return arrays
