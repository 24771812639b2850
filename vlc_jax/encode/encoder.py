"""Compiled towers and scores of a model: numpy in, numpy out, in batches of one size.

Scores of more than one batch: vlc_jax/encode/score_blocks.py.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import linen as nn

from vlc_jax.devices import sharding
from vlc_jax.evaluators import Scorer
from vlc_jax.input_pipeline.loader import questions
from vlc_jax.input_pipeline.record import ImageLike
from vlc_jax.input_pipeline.tokenizers.tokenizer import tokenize
from vlc_jax.types import ImageFeatures, TextFeatures
from vlc_jax.types.setup import Setup

Rows = dict[str, np.ndarray]

THREADS = 8  # to decode images; decoding releases the GIL
AHEAD = 2  # batches that are read ahead


def compiled(setup: Setup, method: Callable[..., Any]) -> Callable[..., Any]:
    """method(model, *inputs) as a compiled function of (variables, *inputs), results replicated.

    variables: {"params": ...}, and "batch_stats" for a method that scores.
    method: such as `lambda model, text: model.encode_text(text)`.
    """
    run = jax.jit(
        lambda variables, *inputs: nn.apply(method, setup.model)(variables, *inputs),
        out_shardings=sharding.replicated(setup.mesh),
    )

    def call(variables: Any, *inputs: Any) -> Any:
        with jax.set_mesh(setup.mesh):
            return run(variables, *inputs)

    return call


def pair_scores(setup: Setup) -> Callable[[Any, Mapping[str, jax.Array]], jax.Array]:
    """A function (params, rows) -> scores of image i with text i, (batch, 1).

    rows: `image`, `text` and optionally `question` and `text_marks`.
    """

    def score(model: nn.Module, rows: Mapping[str, jax.Array]) -> jax.Array:
        image = model.encode_image(setup.normalise(rows["image"]), rows.get("question"))
        text = model.encode_text(rows["text"], rows.get("text_marks"))
        return model.score_options(image, text)

    return lambda params, rows: nn.apply(score, setup.model)({"params": params}, rows)


class Batch(NamedTuple):
    """Rows of one forward pass.

    indices: of its items among all items; fewer than rows if the last item pads the batch.
    rows: name -> rows of this process.
    """

    indices: Sequence[int]
    rows: Rows


class BatchEncoder:
    """Applies a method of the model to any number of items, in batches of one size.

    The next batches are read while one is computed.

    Args:
      setup: of the model.
      method: (model, batch of rows) -> features, a tree of arrays with as many rows.
      load: items -> {name: numpy rows}; each process loads only its rows of every batch.
      before_batch: called before each batch, for example to stop between two batches.
      call: runs its argument, for example interruptibly by a signal; used to wait for `load`.
      batch_size: rows over all devices, rounded up to a multiple of their number; None:
        config.eval.batch_size.
      length: rows of `load` -> needed number of columns of each. Batches then have items of one
        length, and every process loads the items of all processes.
    """

    def __init__(
        self,
        setup: Setup,
        method: Callable[..., Any],
        load: Callable[[Sequence[Any]], Rows],
        before_batch: Callable[[], None] = lambda: None,
        call: Callable[[Callable[[], Any]], Any] = lambda work: work(),
        batch_size: int | None = None,
        length: Callable[[Rows], Sequence[int]] | None = None,
    ):
        size, groups = batch_size or setup.evaluation.batch_size, sharding.row_groups(setup.mesh)
        self._size = -(-size // groups) * groups  # rounded up to a multiple of groups
        self._encode, self._mesh = compiled(setup, method), setup.mesh
        self._load, self._before_batch, self._call = load, before_batch, call
        self._read = self._in_order if length is None else partial(self._by_length, length)

    def __call__(self, variables: Any, items: Sequence[Any]) -> Any:
        """Features of all items, as numpy, in their order."""
        parts = list(self.batches(variables, items))
        features = jax.tree.map(lambda *x: np.concatenate(x), *(part for _, part in parts))
        order = np.argsort(np.concatenate([indices for indices, _ in parts]))
        if (order == np.arange(len(order))).all():  # saves a copy, which is large with tokens
            return features
        return jax.tree.map(lambda x: x[order], features)

    def batches(self, variables: Any, items: Sequence[Any]) -> Iterator[tuple[Sequence[int], Any]]:
        """Yields (indices of items, their features as numpy) of one batch after another."""
        reader, pool = self._read(items), ThreadPoolExecutor(max_workers=1)
        try:
            ahead = [pool.submit(next, reader, None) for _ in range(AHEAD)]
            computed = None
            while (batch := self._call(ahead.pop(0).result)) is not None:
                ahead.append(pool.submit(next, reader, None))
                self._before_batch()
                rows = sharding.put_batch(self._mesh, batch.rows)
                # read after the next batch is dispatched: the device does not wait for the host
                waiting, computed = computed, (batch.indices, self._encode(variables, rows))
                if waiting:
                    yield _on_host(*waiting)
            if computed:
                yield _on_host(*computed)
        finally:
            # wait=False: a hanging storage must not block here
            pool.shutdown(wait=False, cancel_futures=True)

    def _in_order(self, items: Sequence[Any]) -> Iterator[Batch]:
        for start in range(0, len(items), self._size):
            indices = range(start, min(start + self._size, len(items)))
            yield Batch(indices, self._load([items[i] for i in self._local(indices)]))

    def _by_length(
        self, length: Callable[[Rows], Sequence[int]], items: Sequence[Any]
    ) -> Iterator[Batch]:
        waiting: dict[int, list[tuple[int, Rows]]] = {}
        for start in range(0, len(items), self._size):
            rows = self._load(items[start : start + self._size])
            for row, columns in enumerate(length(rows)):
                cut = {name: x[row, :columns] for name, x in rows.items()}
                waiting.setdefault(columns, []).append((start + row, cut))
            for columns, group in waiting.items():
                while len(group) >= self._size:
                    yield self._stacked(group[: self._size])
                    waiting[columns] = group = group[self._size :]
        # not padded with shorter texts: a text's length must not depend on the other texts
        yield from (self._stacked(group) for _, group in sorted(waiting.items()) if group)

    def _stacked(self, group: Sequence[tuple[int, Rows]]) -> Batch:
        local = self._local([rows for _, rows in group])
        stacked = {name: np.stack([rows[name] for rows in local]) for name in local[0]}
        return Batch([index for index, _ in group], stacked)

    def _local(self, batch: Sequence[Any]) -> list[Any]:
        """This process's part of a batch padded with its last item, so that one shape compiles."""
        local = self._size // jax.process_count()
        first = jax.process_index() * local
        return [batch[min(first + i, len(batch) - 1)] for i in range(local)]


def _on_host(indices: Sequence[int], features: Any) -> tuple[Sequence[int], Any]:
    return indices, jax.tree.map(lambda x: np.asarray(x)[: len(indices)], features)


class EvaluationEncoder:
    """Encoder of evaluation: images and texts to features, features to scores.

    images, texts: BatchEncoders.
    image_tokens, text_tokens: BatchEncoders of the towers alone, with all tokens but the class
      token in the shared embedding.
    score, score_options, patch_maps: functions of (variables, image, text).
    """

    def __init__(
        self,
        setup: Setup,
        before_batch: Callable[[], None] = lambda: None,
        call: Callable[[Callable[[], Any]], Any] = lambda work: work(),
        batch_size: int | None = None,
        cuts_texts: bool = False,
    ):
        """before_batch, call, batch_size: as in BatchEncoder.

        cuts_texts: cut padding if no feature depends on it (`takes_shorter_texts`).
        """
        self.transform = setup.evaluation.transform
        self._questions = partial(questions.of_images, setup.tokenizer, setup.evaluation.question)
        is_pooled = setup.model.head.reads_pooled[1]

        def encode_text(model: nn.Module, rows: Mapping[str, jax.Array]) -> TextFeatures:
            features = model.encode_text(rows["text"], rows.get("text_marks"))
            # without the mask, whose columns vary with the text length; such heads do not read it
            return TextFeatures(features.pooled) if is_pooled else features

        length = None
        if cuts_texts and takes_shorter_texts(setup):
            limit, end = setup.model.text.context_length, setup.model.text.eos_id
            length = partial(short_lengths, eos_id=end, lengths=text_lengths(limit))
        self.images = BatchEncoder(
            setup,
            lambda model, rows: model.encode_image(
                setup.normalise(rows["image"]), rows.get("question")
            ),
            self._pixels,
            before_batch,
            call,
            batch_size,
        )
        self.texts = BatchEncoder(
            setup,
            encode_text,
            partial(tokenize, setup.tokenizer),
            before_batch,
            call,
            batch_size,
            length,
        )
        self.image_tokens, self.text_tokens = self._token_encoders(
            setup, before_batch, call, batch_size
        )
        self.score = compiled(setup, lambda m, image, text: m.score(image, text))
        self.score_options = compiled(setup, lambda m, image, text: m.score_options(image, text))
        self.patch_maps = compiled(setup, lambda m, image, text: m.patch_maps(image, text))

    def _token_encoders(
        self,
        setup: Setup,
        before_batch: Callable[[], None],
        call: Callable[[Callable[[], Any]], Any],
        batch_size: int | None,
    ) -> tuple[BatchEncoder, BatchEncoder | None]:
        towers = setup._replace(model=setup.model.with_tokens)
        first = int(setup.model.image.pooling == "cls")  # index behind the class token

        def encode_image(model: nn.Module, rows: Mapping[str, jax.Array]) -> ImageFeatures:
            features = model.encode_image(setup.normalise(rows["image"]))
            return features._replace(tokens=features.tokens[:, first:])

        def encode_text(model: nn.Module, rows: Mapping[str, jax.Array]) -> TextFeatures:
            return model.encode_text(rows["text"])

        images = BatchEncoder(towers, encode_image, self._pixels, before_batch, call, batch_size)
        if setup.tokenizer.width:
            return images, None
        load = partial(tokenize, setup.tokenizer)
        return images, BatchEncoder(towers, encode_text, load, before_batch, call, batch_size)

    def scorer(self, variables: Any) -> Scorer:
        """The model with these variables, for the evaluators."""

        def score(image: ImageFeatures, text: TextFeatures) -> np.ndarray:
            return np.asarray(self.score(variables, image, text))

        def score_options(image: ImageFeatures, text: TextFeatures) -> np.ndarray:
            return np.asarray(self.score_options(variables, image, text))

        return Scorer(
            lambda images: self.images(variables, images),
            lambda texts: self.texts(variables, texts),
            score,
            score_options,
            *self.token_functions(variables),
        )

    def token_functions(self, variables: Any) -> tuple[Callable | None, Callable | None]:
        """`image_tokens` and `text_tokens` of a Scorer."""
        encoders = (self.image_tokens, self.text_tokens)
        return tuple(encode and partial(encode, variables) for encode in encoders)

    def _pixels(self, images: Sequence[ImageLike]) -> Rows:
        with ThreadPoolExecutor(max_workers=THREADS) as pool:
            pixels = pool.map(lambda image: self.transform(image, None), images)
            return {"image": np.stack(list(pixels))} | self._questions(images)


def takes_shorter_texts(setup: Setup) -> bool:
    """True if the features of a text do not depend on the padding behind its end token.

    In a causal tower no token attends to later ones, so that features pooled at the end token read
    no padding. A bidirectional tower (SigLIP) attends to padding, and heads that read tokens may
    read padding tokens (DCSM reads all columns).
    """
    model = setup.model
    return model.text.takes_shorter and model.head.requests[1].tokens == "none"


def text_lengths(context_length: int) -> tuple[int, ...]:
    """The lengths to which texts are cut, up to `context_length`.

    Each length compiles a program: they are few, and each saves at least a quarter of the columns.
    """
    return (*(n for n in (16, 32, 48) if 4 * n <= 3 * context_length), context_length)


def short_lengths(rows: Rows, eos_id: int, lengths: Sequence[int]) -> list[int]:
    """For each text the smallest of `lengths` that reaches its first end token.

    It depends on the text alone: another length sums in another order, and features must not
    depend on the other texts of an evaluation.
    """
    is_end = rows["text"] == eos_id
    needed = np.where(is_end.any(axis=1), is_end.argmax(axis=1) + 1, lengths[-1])
    return [lengths[i] for i in np.searchsorted(lengths, needed)]
