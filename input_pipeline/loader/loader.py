"""Loader of training batches; their content is a function of (seed, step) alone.

Row j of the global batch of step s is position s * batch_size + j of an endless shuffled sequence
(examples.py), for any number of hosts, workers and threads; resuming needs only the step number.
Host h of H makes the h-th of H equal slices of the rows.

  source = make_source("records", "train", path="captions.jsonl", image_folder="images")
  tokenizer = make_tokenizer("clip", 77, path="bpe_simple_vocab_16e6.txt.gz")
  with make_train(source, tokenizer, ImageTransform(224), batch_size=256, seed=0) as batches:
      for batch in batches: ...
"""

import collections
import dataclasses
import json
import logging
import math
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import numpy as np

from vlc_jax.input_pipeline import batch as batches_contract
from vlc_jax.input_pipeline import record_validation
from vlc_jax.input_pipeline.batch import Batch
from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.loader import stored_features
from vlc_jax.input_pipeline.loader.examples import Example, Examples
from vlc_jax.input_pipeline.loader.workers import WorkerStream
from vlc_jax.input_pipeline.record import Sharded, Source
from vlc_jax.input_pipeline.tokenizers.tokenizer import Tokenizer, tokenize

# "endless": Grain wants a length, and positions must stay below 2**64
_NUM_STEPS = 2**48
# A record takes far less, but a read from hanging storage may never end; and a scheduler that sent
# SIGTERM often kills half a minute later.
_CLOSE_PATIENCE_S = 10.0
# wait for a batch until the first warning; doubles with each warning
_WAIT_REPORT_S = 30.0


@dataclasses.dataclass(eq=False)
class Batches:
    """Random-access sequence of batches: `batches[step]` is this host's share of a global batch.

    Pickles to worker processes. See `make_train` for the meaning of the fields.
    """

    examples: Examples
    tokenizer: Tokenizer
    batch_size: int
    process_index: int = 0
    process_count: int = 1

    def __post_init__(self) -> None:
        hard_images = self.examples.hard_images
        _check_batch_size(self.batch_size, self.process_count, hard_images)
        _check_range("process_index", self.process_index, 0, self.process_count)
        self.examples.records_per_step = self.batch_size // (1 + hard_images)
        self.rows = self.batch_size // self.process_count
        self.first_row = self.process_index * self.rows

    def __len__(self) -> int:
        return _NUM_STEPS

    def __getitem__(self, step: int) -> dict[str, Any]:
        """A batch and the bad records met while it was made.

        Returns {"batch": Batch, "bad": JSON of id -> reason, "stand_ins": number of rows that
        replace a missing hard image, "reads": read counts}. Raises DataError, Cancelled.
        """
        bad: dict[str, str] = {}
        first = step * self.batch_size + self.first_row
        sequence = self.sequence(first, self.rows, bad)
        is_stored = isinstance(self.examples.image_transform, stored_features.FeatureTransform)
        rows, images = self._stored(sequence) if is_stored else self._pixels(sequence)
        result = {
            **images,
            **tokenize(self.tokenizer, [example.caption for example in rows]),
            "id": np.array([batches_contract.image_id(row.record) for row in rows], np.uint64),
            # a training batch is always full
            "mask": np.ones(self.rows, np.bool_),
        }
        examples = self.examples
        if examples.question:
            result["question"] = self.tokenizer([row.question for row in rows])
        if examples.has_text_only:
            result["has_image"] = np.array([row.record.image is not None for row in rows])
        result |= {key: np.stack([row.views[key] for row in rows]) for key in rows[0].views}
        slots = sampling.slots(examples.negatives, examples.positives)
        result |= self._texts("negative", [row.negatives for row in rows], slots)
        if slots:
            # cut, in lower case or of unknown words, a negative may have the tokens of its caption
            is_other = (result["negative_text"] != result["text"][:, None]).any(axis=-1)
            result["negative_mask"] &= is_other
        result |= self._texts("positive", [row.positives for row in rows], examples.positives.count)
        if is_stored:
            result |= self._stored_texts(rows, slots, examples.positives.count)
        stand_ins = sum(row.is_stand_in for row in rows)
        source = examples.source
        # Reads of all threads since the last batch: only the sum over batches is meaningful.
        reads = source.take_counts() if isinstance(source, Sharded) else {}
        return {"batch": result, "bad": json.dumps(bad), "stand_ins": stand_ins, "reads": reads}

    def _pixels(self, sequence: Iterator[Example]) -> tuple[list[Example], Batch]:
        images = np.empty((self.rows, *self.examples.image_transform.shape), np.uint8)
        rows: list[Example] = []
        # copied one by one, so that no image is in memory twice
        for example in sequence:
            images[len(rows)] = example.pixels
            rows.append(example._replace(pixels=images[len(rows)]))
        return rows, {"image": images}

    def _stored(self, sequence: Iterator[Example]) -> tuple[list[Example], Batch]:
        rows = list(sequence)
        parts = rows[0].pixels.image
        images = {p: np.stack([row.pixels.image[p] for row in rows]) for p in parts}
        return rows, {f"image_{part}": array for part, array in images.items()}

    def _stored_texts(self, rows: list[Example], negatives: int, positives: int) -> Batch:
        stored = [row.pixels for row in rows]
        arrays = stored_features.text_arrays(stored, [[row.caption] for row in rows], 1, "text")
        arrays = {name: array[:, 0] for name, array in arrays.items()}
        texts = [row.negatives for row in rows]
        arrays |= stored_features.text_arrays(stored, texts, negatives, "negative_text")
        texts = [row.positives for row in rows]
        return arrays | stored_features.text_arrays(stored, texts, positives, "positive_text")

    def sequence(self, first: int, count: int, bad: dict[str, str]) -> Iterator[Example]:
        """Examples of positions first ... first + count - 1, in whole groups.

        Adds bad records to `bad`.
        """
        group = 1 + self.examples.hard_images
        for number in range(first // group, (first + count) // group):
            yield from self.examples.group(number, bad)

    def _texts(self, kind: str, texts: list[list[str]], count: int) -> Batch:
        if not count:
            return {}
        filled = [text for row in texts for text in (*row, *[""] * (count - len(row)))]
        arrays = tokenize(self.tokenizer, filled, f"{kind}_text")
        arrays = {name: x.reshape(self.rows, count, -1) for name, x in arrays.items()}
        mask = np.array([text != "" for text in filled]).reshape(self.rows, count)
        return {**arrays, f"{kind}_mask": mask}


class Loader:
    """Iterator over training batches, made ahead of time in threads or worker processes.

    `bad` maps the id of every record skipped so far to the reason; `stand_ins` counts this host's
    rows so far that replace a missing hard image. Close it after use, or use it as a context
    manager.
    """

    def __init__(self, batches: Batches, *, start_step: int, workers: int, threads: int) -> None:
        # Not in a thread of the pool: while grain is imported, etils.epy.lazy_imports makes the
        # imports of all threads lazy, and jax, tracing a model in another thread, fails at its own.
        import grain  # noqa: F401

        self.step = start_step  # of the next batch
        self.bad: dict[str, str] = dict(batches.examples.known_bad)
        self.stand_ins = 0
        self._reads: collections.Counter[str] = collections.Counter()
        self._batches = batches
        self._workers = WorkerStream(batches, start_step, workers, threads) if workers else None
        self._make = self._workers or batches.__getitem__
        # Workers deliver in order through one thread; threads make a batch each. One batch more
        # than threads is pending, so that a thread that finishes never waits for the consumer.
        pool_size, ahead = (1, 2) if workers else (threads, threads + 1)
        self._pool = futures.ThreadPoolExecutor(pool_size, thread_name_prefix="loader")
        self._pending: collections.deque[futures.Future] = collections.deque()
        self._ahead = ahead
        self._wait = _Wait()
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
        """The next batch; None if it is not ready after `timeout` seconds: call again.

        Raises DataError if too many records are bad, and re-raises a worker's error.
        """
        if self._closed:
            raise ValueError("this loader is closed")
        first = self._pending[0]
        if not self._wait.until_done(first, timeout, self._waiting_for):
            return None
        # an error stays first in the queue: the next call raises it again
        made = first.result()
        result: Batch = made["batch"]
        for name, reason in json.loads(made["bad"]).items():
            self.bad.setdefault(name, reason)
        # Examples checks the share of one batch; only here is the sum over batches known.
        examples = self._batches.examples
        record_validation.check_share(self.bad, examples.limit, len(examples.source))
        # once: shapes and dtypes are the same at every step
        if not self._checked:
            batches_contract.check(result)
            self._checked = True
        self._pending.popleft()
        self.stand_ins += int(made["stand_ins"])
        self._reads.update(made["reads"])
        self.step += 1
        self._fill()
        return result

    def take_reads(self) -> dict[str, int]:
        """Reads of this host's shards since the last call (staged_shards.ReadCounts)."""
        taken, self._reads = dict(self._reads), collections.Counter()
        return taken

    def epochs(self) -> dict[str, float]:
        """Epochs of each part of a mixture, over all hosts; {} for other sources."""
        return self._batches.examples.epochs(self.step)

    def record_ids(self, step: int) -> list[str]:
        """Ids of the records in the global batch of a step, in order.

        Makes the examples again, which costs as much as loading the batch.
        """
        size = self._batches.batch_size
        return [row.record.id for row in self._batches.sequence(step * size, size, {})]

    def close(self) -> None:
        """Stops threads and worker processes; waits _CLOSE_PATIENCE_S at most for reads."""
        if self._closed:
            return
        self._closed = True
        # First: a thread that skips one bad record after another checks only this flag.
        self._batches.examples.cancelled = True
        for future in self._pending:
            future.cancel()
        # before the wait below: the pool's thread waits for them
        if self._workers is not None:
            self._workers.stop()
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

    def _waiting_for(self) -> str:
        return self._workers.waiting_for() if self._workers else "the threads that read records"

    def _fill(self) -> None:
        while len(self._pending) < self._ahead:
            self._pending.append(self._pool.submit(self._make, self.step + len(self._pending)))


class _Wait:
    """Waits for batches; warns about a late one, at doubling intervals."""

    def __init__(self) -> None:
        self._since: float | None = None  # start of the wait for the current batch
        self._report_after = _WAIT_REPORT_S

    def until_done(
        self, future: futures.Future, timeout: float | None, describe: Callable[[], str]
    ) -> bool:
        """True if the future is done within `timeout` seconds.

        `describe` names the awaited worker or threads in the warning.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        if self._since is None:
            self._since = time.monotonic()
        while not future.done():
            now = time.monotonic()
            if now >= self._since + self._report_after:
                logging.getLogger(__name__).warning(
                    "no batch for %.0f s, waiting for %s; is the storage hanging?",
                    now - self._since,
                    describe(),
                )
                self._report_after = 2 * (now - self._since)
            if now >= deadline:
                return False
            futures.wait([future], min(deadline, self._since + self._report_after) - now)
        self._since, self._report_after = None, _WAIT_REPORT_S
        return True


def make_train(
    source: Source,
    tokenizer: Tokenizer,
    image_transform: ImageTransform,
    *,
    start_step: int = 0,
    workers: int = 0,
    threads: int = 2,
    max_bad_share: float = 0.01,
    **options: Any,
) -> Loader:
    """Makes the loader of a training run; it starts to make batches at once.

    start_step: step of the first batch.
    workers: processes that make batches; 0: `threads` threads of this process, which are enough if
      the work is decoding images (Pillow releases the interpreter lock). Each worker has `threads`
      threads, too.
    max_bad_share: share of the source's records; more unusable ones raise DataError.
    options: further fields of `Batches` and `Examples`. batch_size: rows of the global batch; every
      host, process_index of process_count, makes batch_size / process_count of them. seed, hard
      images, hard texts, noun phrases, questions, views.
    Raises ValueError for invalid numbers, for a source without hard images and for texts that were
    prepared with another version of a generator.
    """
    _check_range("start_step", start_step, 0, _NUM_STEPS)
    _check_range("workers", workers, 0, 1024)
    _check_range("threads", threads, 1, 1024)
    if not 0 <= max_bad_share <= 1:
        raise ValueError(f"max_bad_share is a share in [0, 1]; got {max_bad_share}")
    fields = options.keys() & {field.name for field in dataclasses.fields(Batches)}
    share = {name: options.pop(name) for name in fields}
    limit = max_bad_share * len(source)
    batches = Batches(Examples(source, image_transform, limit=limit, **options), tokenizer, **share)
    batches.examples.check()
    if isinstance(source, Sharded):
        # discards earlier reads (the preview's), which are not the run's
        source.take_counts()
    return Loader(batches, start_step=start_step, workers=workers, threads=threads)


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if not low <= value < high:
        raise ValueError(f"{name} must be at least {low} and below {high}; got {value}")


def _check_batch_size(batch_size: int, process_count: int, hard_images: int) -> None:
    if hard_images < 0:
        raise ValueError(f"hard_images must be at least 0; got {hard_images}")
    share = max(1, process_count) * (1 + hard_images)
    if batch_size < 1 or process_count < 1 or batch_size % share:
        groups = f", each with groups of 1 + {hard_images} rows" if hard_images else ""
        raise ValueError(
            f"batch_size {batch_size} is not divisible by {process_count} processes{groups}; use "
            f"{max(1, batch_size // share) * share}"
        )
