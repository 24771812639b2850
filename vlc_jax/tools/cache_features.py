"""Features of frozen towers, computed once: a head is then trained with no tower in memory.

  vlc-jax cache_features --config configs/dcsm.py \\
    --config.init_from=runs/clip --out features/dcsm
  python -m vlc_jax.main --config configs/dcsm.py --config.init_from=runs/clip \\
    --config.input.source=features --config.input.source_options="{'path': 'features/dcsm'}" \\
    --workdir runs/dcsm

Reads the training records of the config's source with the evaluation transform (no random crop),
and stores the features of the frozen towers that the config's head requests: of the image, and of
every text in the record. Texts generated at load time have no features: prepare them with the data.
With config.frozen=("image",), only images have features; the text tower is then trained, or
replaced by vectors. The same command continues an interrupted one.
Exit code 0: done; 2: wrong request; 3: bad data; 130: interrupted, complete shards stay.
"""

import contextlib
import dataclasses
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import flags

from vlc_jax.encode.batches import BatchEncoder
from vlc_jax.errors import UsageError, known, usage_errors
from vlc_jax.input_pipeline import record_validation
from vlc_jax.input_pipeline.commands import shard_writer
from vlc_jax.input_pipeline.loader import stored_features
from vlc_jax.input_pipeline.record import DataError, Record, Source, has_text_only
from vlc_jax.input_pipeline.sources.features import HARD_IMAGE
from vlc_jax.input_pipeline.stores import progress
from vlc_jax.setup import command_line as config_flag
from vlc_jax.setup import init_from, resolve
from vlc_jax.tools import command
from vlc_jax.types import ImageFeatures, TextFeatures
from vlc_jax.types.setup import Setup

OUT = flags.DEFINE_string("out", None, "folder of the features", required=True)
DTYPE = flags.DEFINE_string(
    "dtype", "bfloat16", f"of the numbers: {', '.join(stored_features.DTYPES)}"
)
SHARD_SIZE = flags.DEFINE_integer("shard_size", 4096, "records per file")


class FeaturesOf:
    """Source of records whose image is replaced by packed features of image and texts, in `dtype`;
    the hard images `names`, looked up by id, follow the records.

    Features are computed in whole batches and only the last batch is cached: read records in order.
    """

    def __init__(self, setup: Setup, params: Any, dtype: str, names: Sequence[str]) -> None:
        self._source, self._names, self._dtype = setup.training.data.source, names, dtype
        self.fingerprint = self._source.fingerprint
        self._transform, self._batch_size = setup.evaluation.transform, setup.evaluation.batch_size
        self._reads_text = "text" in setup.parameters.frozen
        of_image, of_text = setup.model.head.requests
        image = BatchEncoder(
            setup,
            lambda model, rows: model.image(setup.normalise(rows["image"]), of_image),
            lambda images: {"image": np.stack(images)},
        )
        text = BatchEncoder(
            setup,
            lambda model, rows: model.text(rows["text"], of_text),
            lambda texts: {"text": setup.tokenizer(texts)},
        )
        self._image = partial(image, {"params": params})
        self._text = partial(text, {"params": params})
        self._number, self._batch = -1, list[Record | DataError]()

    def __len__(self) -> int:
        return len(self._source) + len(self._names)

    def __getitem__(self, index: int) -> Record:
        number, row = divmod(index, self._batch_size)
        if number != self._number:
            first = number * self._batch_size
            records = map(self._record, range(first, min(first + self._batch_size, len(self))))
            self._number, self._batch = number, self._with_features(list(records))
        record = self._batch[row]
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
        ends = np.cumsum([len(of_one) for of_one in texts])
        for row, (i, of_one, end) in enumerate(zip(good, texts, ends, strict=True)):
            packed = stored_features.pack(
                {part: array[row] for part, array in image.items()},
                {part: array[end - len(of_one) : end] for part, array in text.items()},
                of_one,
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


def hard_images(source: Source) -> list[str]:
    """Ids of hard images that are not records of the source themselves."""
    known, named = set(), dict[str, None]()
    for index in range(len(source)):
        # a bad record is reported when its features are computed
        with contextlib.suppress(DataError):
            record = source[index]
            known.add(record.id)
            named |= dict.fromkeys(record.hard_images)
    return [name for name in named if name not in known]


def stored_parts(features: ImageFeatures | TextFeatures) -> dict[str, np.ndarray]:
    """The stored parts of features; masks are recomputed from token ids when features are read."""
    parts = {"pooled": features.pooled, "tokens": features.tokens}
    return {name: array for name, array in parts.items() if array is not None}


def store(setup: Setup, out: Path, dtype: str, shard_size: int) -> dict[str, Any]:
    """Writes or continues the folder of features `out`; returns its manifest.

    Raises UsageError if the towers of the config are not frozen, or records have no image.
    """
    known("dtype of features", dtype, stored_features.DTYPES)
    data = setup.training.data
    if has_text_only(data.source):
        raise UsageError(
            "records without an image have no features: set "
            "config.input.source_options.text_only=False, or take shards without --text-only"
        )
    if "image" not in setup.parameters.frozen:
        raise UsageError(
            "features need frozen towers: config.frozen must contain 'image', and 'text' if texts "
            f"have features, too; got {setup.parameters.frozen}"
        )
    if jax.process_count() > 1:
        raise UsageError("features are computed by a single process on all its devices")
    frozen, fingerprint = init_from.load_frozen(setup)
    names = hard_images(data.source) if data.hard_images else []
    request = {
        "split": "train",
        "features": {**data.feature_cache_key, "weights": fingerprint["weights"]},
        "dtype": dtype,
    }
    records = FeaturesOf(setup, frozen, dtype, names)
    with progress.bar("features", len(records)) as advance, usage_errors():
        return shard_writer.write(
            records,
            out,
            size=setup.evaluation.transform.size,
            image_format="features",
            shard_size=shard_size,
            max_bad_share=data.max_bad_share,
            request=request,
            advance=advance,
        )


def sentence() -> str:
    """Runs or resumes the command; returns the summary line."""
    manifest = store(resolve(config_flag.config()), Path(OUT.value), DTYPE.value, SHARD_SIZE.value)
    size = sum(shard["bytes"] for shard in manifest["shards"])
    return f"{OUT.value}: features of {manifest['count']:,} records, {size / 2**30:.2f} GiB"


if __name__ == "__main__":
    command.start(sentence)
