"""Training batches: the right records in the right order, decoded, tokenized, stacked, in advance.

Row j of the global batch of step s is position s * batch_size + j of an endless sequence of
shuffled epochs. What a position holds depends on the seed and the source alone, so neither hosts,
workers nor threads change it, and resuming needs the step number only. Host h of H makes the h-th
of H equal runs of rows.

A record that cannot be used gives its place to the next usable one of the source.
"""

import collections
import functools
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any

import numpy as np

from input_pipeline import batch as batches_contract
from input_pipeline import usable
from input_pipeline.batch import Batch
from input_pipeline.image import ImageTransform
from input_pipeline.record import DataError, Record, Source
from input_pipeline.text.tokenizers import Tokenizer
from input_pipeline.workers import WorkerStream

_ENDLESS = 2**48  # steps; grain wants a length
_KNOWN = "was found unusable earlier"
_CLOSE_PATIENCE_S = 30.0


class Cancelled(Exception):  # noqa: N818
    """The loader was closed while it made a batch."""


class Batches:
    """`batches[step]`: this host's share of a global batch, and the bad records met on the way.

    Pickles to worker processes. See `make_train` for the meaning of the fields.
    """

    def __init__(
        self,
        source: Source,
        tokenizer: Tokenizer,
        image_transform: ImageTransform,
        *,
        batch_size: int,
        seed: int,
        process_index: int,
        process_count: int,
        negatives: int,
        positives: int,
        limit: float,
        known_bad: Mapping[str, str],
    ) -> None:
        self.source = source
        self.tokenizer = tokenizer
        self.image_transform = image_transform
        self.batch_size = batch_size
        self.seed = seed
        self.rows = batch_size // process_count
        self.first_row = process_index * self.rows
        self.negatives = negatives
        self.positives = positives
        self.limit = limit
        self.known_bad = known_bad
        self.cancelled = False
        self._bad: dict[int, tuple[str, str]] = {}  # index -> (id, reason), to decode them once

    def __len__(self) -> int:
        return _ENDLESS

    def __getitem__(self, step: int) -> dict[str, Any]:
        """{"batch": Batch, "bad": JSON of id -> reason}. Raises DataError, Cancelled."""
        bad: dict[str, str] = {}
        size = self.image_transform.size
        images = np.empty((self.rows, size, size, 3), np.uint8)
        texts: list[str] = []
        negatives: list[list[str]] = []
        positives: list[list[str]] = []
        ids = np.empty(self.rows, np.uint64)
        first = step * self.batch_size + self.first_row
        for row in range(self.rows):
            record, caption, images[row], rng = self.example(first + row, bad)
            texts.append(record.captions[caption])
            ids[row] = batches_contract.hash_id(record.id)
            if self.negatives:
                negatives.append(_draw(record.negatives, caption, self.negatives, rng))
            if self.positives:
                positives.append(_draw(record.positives, caption, self.positives, rng))
        result = {
            "image": images,
            "text": self.tokenizer(texts),
            "id": ids,
            "mask": np.ones(self.rows, np.bool_),
        }
        result |= self._options("negative", negatives, self.negatives)
        result |= self._options("positive", positives, self.positives)
        return {"batch": result, "bad": json.dumps(bad)}

    def example(
        self, position: int, bad: dict[str, str]
    ) -> tuple[Record, int, np.ndarray, np.random.Generator]:
        """Record, number of its caption, pixels and generator of a place in the sequence.

        Bad records passed over are added to `bad`. Raises DataError when they are too many.
        """
        index = int(self._order[position])
        for _ in range(len(self.source)):
            if self.cancelled:
                raise Cancelled
            rng = self._generator(position)  # anew: what came before must not change the draws
            name = f"record {index}"
            try:
                if index in self._bad:
                    name, reason = self._bad[index]
                    raise DataError(reason)
                self._refuse_known(name)
                record = self.source[index]
                name = record.id
                self._refuse_known(name)
                captions = usable.captions(record)
                caption = captions[int(rng.integers(len(captions))) if len(captions) > 1 else 0]
                return record, caption, self.image_transform(record.image, rng), rng
            except DataError as error:
                self._bad[index] = (name, str(error))
                bad[name] = str(error)
                usable.check_share(bad, self.limit, len(self.source))
                index = (index + 1) % len(self.source)
        raise DataError(f"none of the {len(self.source):,} records can be used")

    @functools.cached_property
    def _order(self) -> Sequence[int]:
        import grain  # imports jax where it can; readers and checks do without both

        return grain.MapDataset.range(len(self.source)).seed(self.seed).shuffle().repeat()

    def _generator(self, position: int) -> np.random.Generator:
        """Counter-based: a stream of its own for every position, without warming up (8 us)."""
        counter = np.array([0, 0, position, 0], np.uint64)
        key = np.array([self.seed, 0], np.uint64)
        return np.random.Generator(np.random.Philox(key=key, counter=counter))

    def _refuse_known(self, name: str) -> None:
        if name in self.known_bad:
            raise DataError(self.known_bad[name])

    def _options(self, kind: str, texts: list[list[str]], count: int) -> Batch:
        if not count:
            return {}
        filled = [text for row in texts for text in (*row, *[""] * (count - len(row)))]
        tokens = self.tokenizer(filled).reshape(self.rows, count, self.tokenizer.context_length)
        mask = np.arange(count) < np.array([len(row) for row in texts])[:, None]
        return {f"{kind}_text": tokens, f"{kind}_mask": mask}

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_order"}


class Loader:
    """Iterator over training batches, made ahead of time in threads or worker processes.

    `bad` maps the id of every record passed over so far to the reason. Close it after use, or use
    it as a context manager.
    """

    def __init__(self, batches: Batches, *, start_step: int, workers: int, threads: int) -> None:
        self.step = start_step  # of the batch that comes next
        self.bad: dict[str, str] = dict(batches.known_bad)
        self._batches = batches
        self._workers = WorkerStream(batches, start_step, workers, threads) if workers else None
        self._make = self._workers or batches.__getitem__
        # Workers deliver in order through one thread; threads take a batch each.
        pool_size, ahead = (1, 2) if workers else (threads, threads + 1)
        self._pool = futures.ThreadPoolExecutor(pool_size, thread_name_prefix="loader")
        self._pending: collections.deque[futures.Future] = collections.deque()
        self._ahead = ahead
        self._checked = False
        self._closed = False
        self._fill()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        result = self.next(timeout=None)
        assert result is not None
        return result

    def next(self, timeout: float | None) -> Batch | None:
        """The next batch, or None if it is not there after `timeout` seconds; then ask again.

        Raises DataError when too many records are bad, and whatever a worker raised.
        """
        if self._closed:
            raise ValueError("this loader is closed")
        first = self._pending[0]
        futures.wait([first], timeout)
        if not first.done():
            return None
        made = first.result()  # a failure stays first in the queue: asking again raises it again
        result: Batch = made["batch"]
        for name, reason in json.loads(made["bad"]).items():
            self.bad.setdefault(name, reason)
        usable.check_share(self.bad, self._batches.limit, len(self._batches.source))
        if not self._checked:
            batches_contract.check(result)
            self._checked = True
        self._pending.popleft()
        self.step += 1
        self._fill()
        return result

    def record_ids(self, step: int) -> list[str]:
        """Ids of the records in the global batch of a step, in order.

        Found by making the examples again, which costs as much as loading the batch.
        """
        bad: dict[str, str] = {}
        first = step * self._batches.batch_size
        return [
            self._batches.example(position, bad)[0].id
            for position in range(first, first + self._batches.batch_size)
        ]

    def close(self) -> None:
        """Stops threads and worker processes. Waits for the batch being made, but not for ever."""
        if self._closed:
            return
        self._closed = True
        self._batches.cancelled = True
        for future in self._pending:
            future.cancel()
        unfinished = futures.wait(self._pending, _CLOSE_PATIENCE_S).not_done
        self._pending.clear()
        self._pool.shutdown(wait=not unfinished, cancel_futures=True)
        if self._workers is not None:
            self._workers.close()
        if unfinished:
            logging.getLogger(__name__).warning(
                "a loader thread did not end within %g s; is the storage hanging?",
                _CLOSE_PATIENCE_S,
            )

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _fill(self) -> None:
        while len(self._pending) < self._ahead:
            self._pending.append(self._pool.submit(self._make, self.step + len(self._pending)))


def make_train(
    source: Source,
    tokenizer: Tokenizer,
    image_transform: ImageTransform,
    *,
    batch_size: int,
    seed: int,
    start_step: int = 0,
    process_index: int = 0,
    process_count: int = 1,
    workers: int = 0,
    threads: int = 2,
    max_bad_share: float = 0.01,
    known_bad: Iterable[str] | Mapping[str, str] = (),
    negatives: int = 0,
    positives: int = 0,
) -> Loader:
    """The loader of a training run; it begins to work at once.

    batch_size: examples of the global batch; every host makes batch_size / process_count of them.
    start_step: the first batch is that of this step.
    workers: processes that make batches; 0 makes them in `threads` threads of this process, which
      is enough where the work is decoding images (it runs outside the interpreter lock). Each
      worker has `threads` threads, too.
    max_bad_share: of the records of the source; more unusable ones raise DataError.
    known_bad: ids (or ids and reasons) of records found unusable earlier, skipped and counted.
    negatives, positives: hard negative / positive captions drawn per example, without repetition;
      where a record has fewer, the mask is False. 0 leaves their keys out of the batch.
    Raises ValueError for numbers that do not fit.
    """
    if batch_size < 1 or process_count < 1 or batch_size % process_count:
        raise ValueError(
            f"batch_size {batch_size} is not divisible by {process_count} processes; use "
            f"{max(1, batch_size // max(1, process_count)) * process_count}"
        )
    for name, value, low, high in (
        ("process_index", process_index, 0, process_count),
        ("seed", seed, 0, 2**32),
        ("start_step", start_step, 0, _ENDLESS),
        ("workers", workers, 0, 1024),
        ("threads", threads, 1, 1024),
        ("negatives", negatives, 0, 1024),
        ("positives", positives, 0, 1024),
    ):
        if not low <= value < high:
            raise ValueError(f"{name} must be at least {low} and below {high}; got {value}")
    if not 0 <= max_bad_share <= 1:
        raise ValueError(f"max_bad_share is a share in [0, 1]; got {max_bad_share}")
    if not len(source):
        raise DataError("the source holds no records")
    if not isinstance(known_bad, Mapping):
        known_bad = dict.fromkeys(known_bad, _KNOWN)
    batches = Batches(
        source,
        tokenizer,
        image_transform,
        batch_size=batch_size,
        seed=seed,
        process_index=process_index,
        process_count=process_count,
        negatives=negatives,
        positives=positives,
        limit=max_bad_share * len(source),
        known_bad=known_bad,
    )
    return Loader(batches, start_step=start_step, workers=workers, threads=threads)


def _draw(
    texts: Sequence[Sequence[str]], caption: int, count: int, rng: np.random.Generator
) -> list[str]:
    """Up to `count` of a caption's negatives or positives, at random, without repetition."""
    options = [text for text in texts[caption] if text.strip()] if texts else []
    if len(options) <= count:
        return options
    return [options[index] for index in rng.permutation(len(options))[:count]]
