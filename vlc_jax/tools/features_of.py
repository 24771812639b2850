"""Source of the features of a config's frozen towers, which `vlc-jax cache_features` stores."""

import dataclasses
import functools
import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.devices import runtime
from vlc_jax.encode.batches import BatchEncoder, text_lengths
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline import record_validation
from vlc_jax.input_pipeline.loader import stored_features
from vlc_jax.input_pipeline.record import DataError, Record
from vlc_jax.input_pipeline.sources.features import HARD_IMAGE
from vlc_jax.run.workdir import SavedConfig
from vlc_jax.setup import init_from, resolve
from vlc_jax.types import ImageFeatures, TextFeatures
from vlc_jax.types.setup import Setup


class FeaturesOf:
    """Source of records whose image is replaced by packed features of image and texts, in `dtype`;
    the hard images `names`, looked up by id, follow the records.

    Features are computed in whole batches, and each thread keeps its last one: read records in
    order. Pickles as the config: another process loads the towers itself.   weights: the
    fingerprint of `params`.
    """

    def __init__(
        self, setup: Setup, params: Any, weights: Any, dtype: str, names: Sequence[str]
    ) -> None:
        self._source, self._names, self._dtype = setup.training.data.source, names, dtype
        self._state = json.dumps(setup.config), json.dumps(weights), dtype, tuple(names)
        self.fingerprint = self._source.fingerprint
        self._transform, self._batch_size = setup.evaluation.transform, setup.evaluation.batch_size
        self._reads_text = "text" in setup.parameters.frozen
        image_request, text_request = setup.model.head.requests
        image = BatchEncoder(
            setup,
            lambda model, rows: model.image(setup.normalise(rows["image"]), image_request),
            lambda images: {"image": np.stack(images)},
        )
        text = BatchEncoder(
            setup,
            lambda model, rows: model.text(rows["text"], text_request),
            lambda texts: {"text": setup.tokenizer(texts)},
            lengths=text_lengths(setup, is_mixed=True),
        )
        self._image = partial(image, {"params": params})
        self._text = partial(text, {"params": params})
        self._last = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, self._state

    def __len__(self) -> int:
        return len(self._source) + len(self._names)

    def __getitem__(self, index: int) -> Record:
        number, row = divmod(index, self._batch_size)
        if number != getattr(self._last, "number", None):
            first = number * self._batch_size
            records = map(self._record, range(first, min(first + self._batch_size, len(self))))
            self._last.batch, self._last.number = self._with_features(list(records)), number
        record = self._last.batch[row]
        if isinstance(record, DataError):
            raise record
        return record

    def _record(self, index: int) -> Record | DataError:
        try:
            if index < len(self._source):
                return self._source[index]
            record = self._source.find(self._names[index - len(self._source)])
            return dataclasses.replace(record, meta=record.meta | {HARD_IMAGE: True})
        except DataError as error:
            return error

    def _with_features(self, records: Sequence[Record | DataError]) -> list[Record | DataError]:
        # threads, since decoding releases the GIL
        with ThreadPoolExecutor(max_workers=8) as pool:
            pixels = list(pool.map(self._pixels, records))
        good = [i for i, image in enumerate(pixels) if not isinstance(image, DataError)]
        results: list[Record | DataError] = list(pixels)
        if not good:
            return results
        image = stored_parts(self._image([pixels[i] for i in good]))
        texts, text = [[] for _ in good], {}
        if self._reads_text:
            texts = [stored_features.texts_of(records[i]) for i in good]
            text = stored_parts(self._text([t for of in texts for t in of]))
        ends = np.cumsum([len(record_texts) for record_texts in texts])
        for row, (i, record_texts, end) in enumerate(zip(good, texts, ends, strict=True)):
            packed = stored_features.pack(
                {part: array[row] for part, array in image.items()},
                {part: array[end - len(record_texts) : end] for part, array in text.items()},
                record_texts,
                self._dtype,
            )
            results[i] = dataclasses.replace(records[i], image=packed)
        return results

    def _pixels(self, record: Record | DataError) -> np.ndarray | DataError:
        if isinstance(record, DataError):
            return record
        try:
            record_validation.captions(record)
            return self._transform(record.image, None)
        except DataError as error:
            return DataError(f"{record.id}: {error}")


def stored_parts(features: ImageFeatures | TextFeatures) -> dict[str, np.ndarray]:
    """The stored parts of features; masks are recomputed from token ids when features are read."""
    parts = {"pooled": features.pooled, "tokens": features.tokens}
    return {name: array for name, array in parts.items() if array is not None}


@functools.lru_cache(maxsize=1)
def _made(config: str, weights: str, dtype: str, names: tuple[str, ...]) -> FeaturesOf:
    """The source in a worker. weights: the fingerprint of the towers' where the command started."""
    runtime.claim()
    setup = resolve(SavedConfig(json.loads(config), Path("the config of this command")).lock())
    params, fingerprint = init_from.load_frozen(setup)
    if json.dumps(fingerprint) != weights:
        raise UsageError(
            "a worker finds other weights than those where the command started: config.init_from "
            "is a path that all workers see, with the same files"
        )
    return FeaturesOf(setup, params, fingerprint, dtype, names)
