"""Loader of training batches, whose content is a function of (seed, step) alone.

Row j of the global batch of step s is position s * batch_size + j of an endless shuffled sequence
(examples.py), whatever the number of hosts, workers and threads; resuming needs the step number
only. Host h of H makes the h-th of H equal runs of rows.

  source = make_source("records", "train", path="captions.jsonl", image_folder="images")
  tokenizer = make_tokenizer("clip", 77, path="bpe_simple_vocab_16e6.txt.gz")
  with make_train(source, tokenizer, ImageTransform(224), batch_size=256, seed=0) as batches:
      for batch in batches: ...
"""

import collections
import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent import futures
from typing import Any

import numpy as np

from vlc_jax.input_pipeline import batch as batches_contract
from vlc_jax.input_pipeline import record_validation
from vlc_jax.input_pipeline.batch import Batch
from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.hard_texts.noun_phrases import NounPhrases
from vlc_jax.input_pipeline.hard_texts.sampling import HardTexts
from vlc_jax.input_pipeline.images.image_ops import ImageTransform
from vlc_jax.input_pipeline.loader import questions, stored_features
from vlc_jax.input_pipeline.loader.examples import Example, Examples, check_hard_images
from vlc_jax.input_pipeline.loader.workers import WorkerStream
from vlc_jax.input_pipeline.record import DataError, Sharded, Source
from vlc_jax.input_pipeline.tokenizers.text_vectors import TextVectors
from vlc_jax.input_pipeline.tokenizers.tokenize import tokenize
from vlc_jax.input_pipeline.tokenizers.tokenizer import Tokenizer

_NUM_STEPS = 2**48  # "endless": Grain wants a length, and positions must stay below 2**64
_KNOWN = "was found unusable earlier"
# A record takes far less, but a read from hanging storage may never end; and a scheduler that sent
# SIGTERM often kills half a minute later.
_CLOSE_PATIENCE_S = 10.0
_WAIT_REPORT_S = 30.0  # of waiting for a batch until the log says so, then after twice that, ...
_NONE = HardTexts()


class Batches:
    """Random-access sequence of batches: `batches[step]` is this host's share of a global batch.

    Pickles to worker processes. See `make_train` for the meaning of the fields.
    """

    def __init__(
        self,
        examples: Examples,
        tokenizer: Tokenizer | TextVectors,
        *,
        batch_size: int,
        process_index: int,
        process_count: int,
    ) -> None:
        self.examples = examples
        self.tokenizer = tokenizer
        self.batch_size = batch_size
        self.rows = batch_size // process_count
        self.first_row = process_index * self.rows

    def __len__(self) -> int:
        return _NUM_STEPS

    def __getitem__(self, step: int) -> dict[str, Any]:
        """A batch and the bad records met while it was made.

        Returns {"batch": Batch, "bad": JSON of id -> reason, "stand_ins": rows without a hard
        image, "reads": what was read}. Raises DataError, Cancelled.
        """
        bad: dict[str, str] = {}
        first = step * self.batch_size + self.first_row
        sequence = self.sequence(first, self.rows, bad)
        is_stored = isinstance(self.examples.image_transform, stored_features.FeatureTransform)
        rows, images = self._stored(sequence) if is_stored else self._pixels(sequence)
        result = {
            **images,
            **tokenize(self.tokenizer, [example.caption for example in rows]),
            "id": np.array([batches_contract.hash_id(row.record.id) for row in rows], np.uint64),
            "mask": np.ones(self.rows, np.bool_),  # a training batch is always full
        }
        examples = self.examples
        if examples.question:
            result["question"] = self.tokenizer([row.question for row in rows])
        if examples.has_text_only:
            result["has_image"] = np.array([row.record.image is not None for row in rows])
        slots = sampling.slots(examples.negatives, examples.positives)
        result |= self._texts("negative", [row.negatives for row in rows], slots)
        result |= self._texts("positive", [row.positives for row in rows], examples.positives.count)
        if is_stored:
            result |= self._stored_texts(rows, slots, examples.positives.count)
        stand_ins = sum(row.is_stand_in for row in rows)
        source = examples.source
        # What all threads read since a batch was ready: the sum is right, not a batch's share.
        reads = source.take_counts() if isinstance(source, Sharded) else {}
        return {"batch": result, "bad": json.dumps(bad), "stand_ins": stand_ins, "reads": reads}

    def _pixels(self, sequence: Iterator[Example]) -> tuple[list[Example], Batch]:
        size = self.examples.image_transform.size
        images = np.empty((self.rows, size, size, 3), np.uint8)
        rows: list[Example] = []
        for example in sequence:  # copied one by one, so that no image is held twice
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
        arrays = stored_features.batch_of(stored, [[row.caption] for row in rows], 1, "text")
        arrays = {name: array[:, 0] for name, array in arrays.items()}
        texts = [row.negatives for row in rows]
        arrays |= stored_features.batch_of(stored, texts, negatives, "negative_text")
        texts = [row.positives for row in rows]
        return arrays | stored_features.batch_of(stored, texts, positives, "positive_text")

    def sequence(self, first: int, count: int, bad: dict[str, str]) -> Iterator[Example]:
        """Positions first ... first + count, whole groups of them; bad records go to `bad`."""
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

    `bad` maps the id of every record passed over so far to the reason; `stand_ins` counts this
    host's rows so far in which another record stands for a hard image that is missing. Close it
    after use, or use it as a context manager.
    """

    def __init__(self, batches: Batches, *, start_step: int, workers: int, threads: int) -> None:
        # Not in a thread of the pool: while grain is imported, imports are lazy in every thread
        # (etils.epy.lazy_imports), and jax, tracing a model in another one, fails at its own.
        import grain  # noqa: F401

        self.step = start_step  # of the batch that comes next
        self.bad: dict[str, str] = dict(batches.examples.known_bad)
        self.stand_ins = 0
        self._reads: collections.Counter[str] = collections.Counter()
        self._batches = batches
        self._workers = WorkerStream(batches, start_step, workers, threads) if workers else None
        self._make = self._workers or batches.__getitem__
        # Workers deliver in order through one thread; threads take a batch each. One batch more
        # than threads lies ready, so that a thread that ends never waits for the consumer.
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
        """The next batch, or None if it is not there after `timeout` seconds; then ask again.

        Raises DataError when too many records are bad, and whatever a worker raised.
        """
        if self._closed:
            raise ValueError("this loader is closed")
        first = self._pending[0]
        if not self._wait.until_done(first, timeout, self._waiting_for):
            return None
        made = first.result()  # a failure stays first in the queue: asking again raises it again
        result: Batch = made["batch"]
        for name, reason in json.loads(made["bad"]).items():
            self.bad.setdefault(name, reason)
        # Examples checks the share of one batch; only here is the sum over batches known.
        examples = self._batches.examples
        record_validation.check_share(self.bad, examples.limit, len(examples.source))
        if not self._checked:  # once: shapes and dtypes are the same at every step
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

    def record_ids(self, step: int) -> list[str]:
        """Ids of the records in the global batch of a step, in order.

        Makes the examples again, which costs as much as loading the batch.
        """
        size = self._batches.batch_size
        return [row.record.id for row in self._batches.sequence(step * size, size, {})]

    def close(self) -> None:
        """Stops threads and worker processes. Waits for records being read, but not for ever."""
        if self._closed:
            return
        self._closed = True
        # First of all: a thread may be passing over one bad record after another.
        self._batches.examples.cancelled = True
        for future in self._pending:
            future.cancel()
        if self._workers is not None:  # before the thread is waited for that waits for them
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
    """Waits for batches, with a warning about one that does not come, ever rarer."""

    def __init__(self) -> None:
        self._since: float | None = None  # when the batch was first asked for
        self._report_after = _WAIT_REPORT_S

    def until_done(
        self, future: futures.Future, timeout: float | None, describe: Callable[[], str]
    ) -> bool:
        """True if the future is done after at most `timeout` seconds; `describe` names what is
        waited for."""
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
    tokenizer: Tokenizer | TextVectors,
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
    hard_images: int = 0,
    negatives: HardTexts = _NONE,
    positives: HardTexts = _NONE,
    noun_phrases: NounPhrases | None = None,
    question: str = "",
    text_only_question: str = "",
) -> Loader:
    """Makes the loader of a training run, which begins to work at once.

    batch_size: rows of the global batch; every host makes batch_size / process_count of them.
    start_step: the first batch is that of this step.
    workers: processes that make batches; 0 makes them in `threads` threads of this process, which
      is enough where the work is decoding images (Pillow releases the interpreter lock). Each
      worker has `threads` threads, too.
    max_bad_share: of the records of the source; more unusable ones raise DataError.
    known_bad: ids (or ids and reasons) of records found unusable earlier, skipped and counted.
    hard_images: per record; each is a further row of the batch, with a caption and texts of its
      own, so that a batch holds batch_size / (1 + hard_images) records of the epoch.
    negatives, positives: hard negative / positive captions of every row; where a row has fewer,
      the mask is False. A count of 0 leaves their keys out of the batch.
    noun_phrases: what becomes of captions before hard texts are made of them; None: nothing.
    question: template of what is asked of every image (questions.py); "": nothing.
    text_only_question: the same, where a record is a text alone.
    Raises ValueError for numbers that do not fit, for a source without hard images and for texts
    that were prepared with another version of a generator.
    """
    _check_batch_size(batch_size, process_count, hard_images)
    for name, value, low, high in (
        ("process_index", process_index, 0, process_count),
        ("seed", seed, 0, 2**32),
        ("start_step", start_step, 0, _NUM_STEPS),
        ("workers", workers, 0, 1024),
        ("threads", threads, 1, 1024),
    ):
        if not low <= value < high:
            raise ValueError(f"{name} must be at least {low} and below {high}; got {value}")
    if not 0 <= max_bad_share <= 1:
        raise ValueError(f"max_bad_share is a share in [0, 1]; got {max_bad_share}")
    sampling.check("negatives", negatives)
    sampling.check("positives", positives)
    sides = {"negatives": negatives.generators, "positives": positives.generators}
    sampling.check_stored(sides, sampling.stored_versions(source))
    if not len(source):
        raise DataError("the source holds no records")
    if not isinstance(known_bad, Mapping):
        known_bad = dict.fromkeys(known_bad, _KNOWN)
    if hard_images:
        check_hard_images(source)
    if noun_phrases and questions.SLOT in question + text_only_question:
        raise ValueError("noun_phrases: a part of a caption does not answer the record's question")
    examples = Examples(
        source,
        image_transform,
        seed=seed,
        hard_images=hard_images,
        negatives=negatives,
        positives=positives,
        noun_phrases=noun_phrases,
        question=question,
        text_only_question=text_only_question,
        limit=max_bad_share * len(source),
        known_bad=known_bad,
    )
    if isinstance(source, Sharded):
        source.take_counts()  # what was read before, as by a preview, is not the run's
    batches = Batches(
        examples,
        tokenizer,
        batch_size=batch_size,
        process_index=process_index,
        process_count=process_count,
    )
    return Loader(batches, start_step=start_step, workers=workers, threads=threads)


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
