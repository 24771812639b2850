"""Features of frozen towers, computed once: a head is then trained with no tower in memory.

  vlc-jax cache_features --config configs/dcsm.py \\
    --config.init_from=runs/clip --out features/dcsm
  python -m vlc_jax.main --config configs/dcsm.py --config.init_from=runs/clip \\
    --config.input.source=features --config.input.features.path=features/dcsm --workdir runs/dcsm

Reads the training records of the config's source, each as evaluation would see it (nothing is
cropped by chance), and stores what the config's head takes of the frozen towers: of the image, and
of every text that the record holds. Texts that are made at each reading have no features: prepare
them with the data. Where config.frozen is ("image",), no text has; the text tower is then trained,
or vectors are in its place. The same command continues where it was stopped.
Exit code 0: done; 2: wrong request; 3: bad data; 130: interrupted, whole shards stay.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import flags

from vlc_jax.encode.encoder import BatchEncoder
from vlc_jax.errors import UsageError, known
from vlc_jax.input_pipeline import record_validation
from vlc_jax.input_pipeline.commands import command_line, shard_writer
from vlc_jax.input_pipeline.loader import stored_features
from vlc_jax.input_pipeline.record import DataError, Record, Source, has_text_only
from vlc_jax.input_pipeline.sources.features import HARD_IMAGE
from vlc_jax.setup import command_line as config_flag
from vlc_jax.setup import init_from, resolve
from vlc_jax.setup.data import usage_errors
from vlc_jax.tools import command
from vlc_jax.types import ImageFeatures, TextFeatures
from vlc_jax.types.setup import Setup

OUT = flags.DEFINE_string("out", None, "folder of the features", required=True)
DTYPE = flags.DEFINE_string(
    "dtype", "bfloat16", f"of the numbers: {', '.join(stored_features.DTYPES)}"
)
SHARD_SIZE = flags.DEFINE_integer("shard_size", 4096, "records per file")


class FeaturesOf:
    """The records of a source with the features of image and texts, packed, as their image; behind
    them the hard images `names`, which are found by their ids.

    Whole batches are computed, and the last one is kept: read in order, each costs once.
    """

    def __init__(
        self,
        source: Source,
        compute: Callable[[Sequence[Record]], list[Record | DataError]],
        batch_size: int,
        names: Sequence[str] = (),
    ) -> None:
        self.fingerprint = source.fingerprint
        self._source, self._compute, self._batch_size = source, compute, batch_size
        self._names = names
        self._number, self._batch = -1, list[Record | DataError]()

    def __len__(self) -> int:
        return len(self._source) + len(self._names)

    def __getitem__(self, index: int) -> Record:
        number, place = divmod(index, self._batch_size)
        if number != self._number:
            self._number, self._batch = number, self._compute(list(self._records(number)))
        found = self._batch[place]
        if isinstance(found, DataError):
            raise found
        return found

    def _records(self, number: int) -> Iterator[Record | DataError]:
        first = number * self._batch_size
        for index in range(first, min(first + self._batch_size, len(self))):
            try:
                yield self._record(index)
            except DataError as error:
                yield error

    def _record(self, index: int) -> Record:
        if index < len(self._source):
            return self._source[index]
        record = self._source.find(self._names[index - len(self._source)])
        return dataclasses.replace(record, meta=record.meta | {HARD_IMAGE: True})


def hard_images(source: Source) -> list[str]:
    """The ids of hard images that records name and that are no records of the source themselves."""
    known, named = set(), dict[str, None]()
    for index in range(len(source)):
        with contextlib.suppress(DataError):  # reported when its features are due
            record = source[index]
            known.add(record.id)
            named |= dict.fromkeys(record.hard_images)
    return [name for name in named if name not in known]


class FeatureEncoder:
    """Records -> the same with packed features of frozen towers, `dtype` numbers."""

    def __init__(self, setup: Setup, params: Any, dtype: str) -> None:
        self._dtype, self._transform = dtype, setup.evaluation.transform
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
        self._image, self._text = (
            partial(image, {"params": params}),
            partial(text, {"params": params}),
        )

    def __call__(self, records: Sequence[Record | DataError]) -> list[Record | DataError]:
        """Records with features instead of images; one that cannot be read stays a DataError."""
        with ThreadPoolExecutor(max_workers=8) as pool:  # decoding releases the GIL
            pixels = list(pool.map(self._pixels, records))
        good = [i for i, image in enumerate(pixels) if not isinstance(image, DataError)]
        found: list[Record | DataError] = list(pixels)
        if not good:
            return found
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
            found[i] = dataclasses.replace(records[i], image=packed)
        return found

    def _pixels(self, record: Record | DataError) -> np.ndarray | DataError:
        if isinstance(record, DataError):
            return record
        try:
            record_validation.captions(record)
            return self._transform(record.image, None)
        except DataError as error:
            return DataError(f"{record.id}: {error}")


def stored_parts(found: ImageFeatures | TextFeatures) -> dict[str, np.ndarray]:
    """The parts of features that are stored; masks are made anew from the token ids."""
    parts = {"pooled": found.pooled, "tokens": found.tokens}
    return {name: array for name, array in parts.items() if array is not None}


def store(setup: Setup, out: Path, dtype: str, shard_size: int) -> dict[str, Any]:
    """Writes the features into the folder `out`, or goes on with it, and returns its manifest.

    Raises UsageError where the config's towers are not frozen ones, or records have no image.
    """
    known("dtype of features", dtype, stored_features.DTYPES)
    data = setup.training.data
    if has_text_only(data.source):
        raise UsageError(
            "records without an image have no features: set config.input.llava.text_only=False, or "
            "take shards without --text-only"
        )
    if "image" not in setup.parameters.frozen:
        raise UsageError(
            "features are of towers that stay as they are: config.frozen names 'image', and 'text' "
            f"if texts have features, too; got {setup.parameters.frozen}"
        )
    if jax.process_count() > 1:
        raise UsageError("features are stored by one process, with all the devices it has")
    frozen, fingerprint = init_from.load_frozen(setup)
    names = hard_images(data.source) if data.hard_images else []
    request = {
        "split": "train",
        "features": {**data.feature_cache_key, "weights": fingerprint["weights"]},
        "dtype": dtype,
    }
    records = FeaturesOf(
        data.source, FeatureEncoder(setup, frozen, dtype), setup.evaluation.batch_size, names
    )
    with command_line.bar("features", len(records)) as advance, usage_errors():
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
    """Does what the flags say; a sentence about it."""
    manifest = store(resolve(config_flag.config()), Path(OUT.value), DTYPE.value, SHARD_SIZE.value)
    size = sum(shard["bytes"] for shard in manifest["shards"])
    return f"{OUT.value}: features of {manifest['count']:,} records, {size / 2**30:.2f} GiB"


if __name__ == "__main__":
    command.start(sentence)
