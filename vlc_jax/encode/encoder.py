"""Towers and scores of a model, compiled: numpy in, numpy out, in batches of one size (scores of
more than one batch: vlc_jax/encode/score_blocks.py)."""

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
from vlc_jax.input_pipeline.tokenizers.text_vectors import TextVectors
from vlc_jax.input_pipeline.tokenizers.tokenize import tokenize
from vlc_jax.types import ImageFeatures, TextFeatures
from vlc_jax.types.setup import Setup

Rows = dict[str, np.ndarray]

THREADS = 8  # that decode images; decoding releases the GIL
AHEAD = 2  # batches that are read before they are needed


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
    """Scores of image i of a batch with text i, (batch, 1), as a function of parameters and rows
    `image`, `text` and, where there are any, `question` and `text_marks`."""

    def score(model: nn.Module, rows: Mapping[str, jax.Array]) -> jax.Array:
        image = model.encode_image(setup.normalise(rows["image"]), rows.get("question"))
        text = model.encode_text(rows["text"], rows.get("text_marks"))
        return model.score_options(image, text)

    return lambda params, rows: nn.apply(score, setup.model)({"params": params}, rows)


class Batch(NamedTuple):
    """Rows of one forward pass.

    places: of its items among all of them; fewer than rows where the last item fills it up.
    rows: name -> rows of this process.
    """

    places: Sequence[int]
    rows: Rows


class BatchEncoder:
    """A method of the model, applied to any number of items in batches of one size.

    The next batches are read while one is computed.

    Args:
      setup: of the model.
      method: (model, batch of rows) -> features, a tree of arrays with as many rows.
      load: items -> name -> their rows, as numpy; each process loads its own rows of every batch.
      before_batch: called before each batch, for example to stop between two of them.
      call: calls what it is given, for example until a signal arrives; it waits for `load`.
      batch_size: rows over all devices, which is rounded up to a multiple of them; None: that of
        config.eval.
      length: of rows that `load` gives of every item -> columns that are needed of it. Items are
        then encoded with others of their length, and `load` reads those of other processes, too.
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
        self._size = -(-size // groups) * groups  # up to a multiple of them
        self._encode, self._mesh = compiled(setup, method), setup.mesh
        self._load, self._before_batch, self._call = load, before_batch, call
        self._read = self._in_order if length is None else partial(self._by_length, length)

    def __call__(self, variables: Any, items: Sequence[Any]) -> Any:
        """Features of all items, as numpy, in their order."""
        parts = list(self.batches(variables, items))
        features = jax.tree.map(lambda *x: np.concatenate(x), *(part for _, part in parts))
        order = np.argsort(np.concatenate([places for places, _ in parts]))
        if (order == np.arange(len(order))).all():  # no copy of a head's tokens
            return features
        return jax.tree.map(lambda x: x[order], features)

    def batches(self, variables: Any, items: Sequence[Any]) -> Iterator[tuple[Sequence[int], Any]]:
        """(places among the items, their features as numpy) of one batch after another."""
        reader, pool = self._read(items), ThreadPoolExecutor(max_workers=1)
        try:
            ahead = [pool.submit(next, reader, None) for _ in range(AHEAD)]
            computed = None
            while (batch := self._call(ahead.pop(0).result)) is not None:
                ahead.append(pool.submit(next, reader, None))
                self._before_batch()
                rows = sharding.put_batch(self._mesh, batch.rows)
                # read once the next batch is dispatched: the device does not wait for the host
                waiting, computed = computed, (batch.places, self._encode(variables, rows))
                if waiting:
                    yield _on_host(*waiting)
            if computed:
                yield _on_host(*computed)
        finally:
            # without waiting: storage may hang
            pool.shutdown(wait=False, cancel_futures=True)

    def _in_order(self, items: Sequence[Any]) -> Iterator[Batch]:
        for start in range(0, len(items), self._size):
            places = range(start, min(start + self._size, len(items)))
            yield Batch(places, self._load([items[place] for place in self._own(places)]))

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
        # never filled up with shorter ones: a text has the same length whatever the others are
        yield from (self._stacked(group) for _, group in sorted(waiting.items()) if group)

    def _stacked(self, group: Sequence[tuple[int, Rows]]) -> Batch:
        own = self._own([rows for _, rows in group])
        stacked = {name: np.stack([rows[name] for rows in own]) for name in own[0]}
        return Batch([place for place, _ in group], stacked)

    def _own(self, batch: Sequence[Any]) -> list[Any]:
        """This process's part of a batch, which is filled up with its last item: one shape, one
        compilation."""
        local = self._size // jax.process_count()
        first = jax.process_index() * local
        return [batch[min(first + i, len(batch) - 1)] for i in range(local)]


def _on_host(places: Sequence[int], features: Any) -> tuple[Sequence[int], Any]:
    return places, jax.tree.map(lambda x: np.asarray(x)[: len(places)], features)


class EvaluationEncoder:
    """A model as evaluation sees it: images and texts to features, features to scores.

    images, texts: BatchEncoders.   image_tokens, text_tokens: likewise, of the towers alone, with
    all tokens in the shared embedding but the class token.   score, score_options, patch_maps: of
    (variables, image, text).
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

        cuts_texts: leave out padding where no feature depends on it (`takes_shorter_texts`).
        """
        self.transform = setup.evaluation.transform
        self._asked = partial(questions.of_images, setup.tokenizer, setup.evaluation.question)
        is_pooled = setup.model.head.reads_pooled[1]

        def encode_text(model: nn.Module, rows: Mapping[str, jax.Array]) -> TextFeatures:
            features = model.encode_text(rows["text"], rows.get("text_marks"))
            # no such head reads the mask, which has the length of the texts
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
        first = int(setup.model.image.pooling == "cls")  # the class token is the pooled one

        def encode_image(model: nn.Module, rows: Mapping[str, jax.Array]) -> ImageFeatures:
            features = model.encode_image(setup.normalise(rows["image"]))
            return features._replace(tokens=features.tokens[:, first:])

        def encode_text(model: nn.Module, rows: Mapping[str, jax.Array]) -> TextFeatures:
            return model.encode_text(rows["text"])

        images = BatchEncoder(towers, encode_image, self._pixels, before_batch, call, batch_size)
        if isinstance(setup.tokenizer, TextVectors):
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
            return {"image": np.stack(list(pixels))} | self._asked(images)


def takes_shorter_texts(setup: Setup) -> bool:
    """True if the features of a text are the same without the padding behind its end token.

    In a causal tower no token sees those behind it; pooled at the end of text, its features read no
    padding. A bidirectional tower (SigLIP) attends to padding, and heads that read tokens may read
    those of padding (DCSM reads all columns).
    """
    model = setup.model
    return model.text.takes_shorter and model.head.requests[1].tokens == "none"


def text_lengths(context_length: int) -> tuple[int, ...]:
    """The lengths that texts are cut to: each is compiled on its own, hence few, and none that
    would save less than a quarter of the whole."""
    return (*(n for n in (16, 32, 48) if 4 * n <= 3 * context_length), context_length)


def short_lengths(rows: Rows, eos_id: int, lengths: Sequence[int]) -> list[int]:
    """The first of `lengths` that holds each text up to its first end token.

    Of the text alone and not of the others that are asked for: another length sums in another
    order, and features must not depend on what else is evaluated.
    """
    is_end = rows["text"] == eos_id
    needed = np.where(is_end.any(axis=1), is_end.argmax(axis=1) + 1, lengths[-1])
    return [lengths[i] for i in np.searchsorted(lengths, needed)]
