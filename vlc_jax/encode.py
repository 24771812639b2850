"""Towers and scores of a model, compiled: numpy in, numpy out, in batches of one size."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import numpy as np
from flax import linen as nn

from input_pipeline import tokenize
from input_pipeline.record import ImageLike
from vlc_jax import sharding
from vlc_jax.evaluators import Scorer
from vlc_jax.evaluators.scorer import take
from vlc_jax.setup import Setup
from vlc_jax.types import ImageFeatures, TextFeatures

Batch = dict[str, np.ndarray]

THREADS = 8  # that decode images; decoding releases the GIL


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


class BatchEncoder:
    """A method of the model, applied to any number of items in batches of one size.

    Args:
      setup: of the model.
      method: (model, batch of rows) -> features, a tree of arrays with as many rows.
      load: items -> name -> their rows, as numpy; each process loads its own rows of every batch.
      before_batch: called before each batch, for example to stop between two of them.
      call: calls what it is given, for example until a signal arrives; `load` is called by it.
    """

    def __init__(
        self,
        setup: Setup,
        method: Callable[..., Any],
        load: Callable[[Sequence[Any]], Batch],
        before_batch: Callable[[], None] = lambda: None,
        call: Callable[[Callable[[], Batch]], Batch] = lambda work: work(),
    ):
        size, devices = setup.evaluation.batch_size, setup.mesh.size
        self._batch_size = -(-size // devices) * devices  # up to a multiple of devices
        self._encode, self._mesh = compiled(setup, method), setup.mesh
        self._load, self._before_batch, self._call = load, before_batch, call

    def __call__(self, variables: Any, items: Sequence[Any]) -> Any:
        """Features of all items, as numpy."""
        size = self._batch_size
        local = size // jax.process_count()
        features = []
        for start in range(0, len(items), size):
            self._before_batch()
            count = min(size, len(items) - start)
            first = start + jax.process_index() * local
            # the last batch is filled with its last item: one shape, one compilation
            own = [items[min(first + i, len(items) - 1)] for i in range(local)]
            rows = self._call(partial(self._load, own))
            encoded = self._encode(variables, sharding.put_batch(self._mesh, rows))
            features.append(jax.tree.map(lambda x, n=count: np.asarray(x)[:n], encoded))
        return jax.tree.map(lambda *parts: np.concatenate(parts), *features)


class EvaluationEncoder:
    """A model as evaluation sees it: images and texts to features, features to scores."""

    def __init__(
        self,
        setup: Setup,
        before_batch: Callable[[], None] = lambda: None,
        call: Callable[[Callable[[], Batch]], Batch] = lambda work: work(),
    ):
        """before_batch, call: as in BatchEncoder, the latter around the reading of images."""
        self.transform = setup.evaluation.transform
        self._images = BatchEncoder(
            setup,
            lambda model, rows: model.encode_image(setup.normalise(rows["image"])),
            self._pixels,
            before_batch,
            call,
        )
        self._texts = BatchEncoder(
            setup,
            lambda model, rows: model.encode_text(rows["text"], rows.get("text_marks")),
            partial(tokenize, setup.tokenizer),
            before_batch,
        )
        self._score = compiled(setup, lambda m, image, text: m.score(image, text))
        self._score_options = compiled(setup, lambda m, image, text: m.score_options(image, text))
        self.patch_maps = compiled(setup, lambda m, image, text: m.patch_maps(image, text))

    def scorer(self, variables: Any) -> Scorer:
        """The model with these variables, for the evaluators."""

        def score(image: ImageFeatures, text: TextFeatures) -> np.ndarray:
            return np.asarray(self._score(variables, image, text))

        def score_options(image: ImageFeatures, text: TextFeatures) -> np.ndarray:
            return np.asarray(self._score_options(variables, image, text))

        return Scorer(
            lambda images: self._images(variables, images),
            lambda texts: self._texts(variables, texts),
            score,
            score_options,
        )

    def _pixels(self, images: Sequence[ImageLike]) -> Batch:
        with ThreadPoolExecutor(max_workers=THREADS) as pool:
            pixels = pool.map(lambda image: self.transform(image, None), images)
            return {"image": np.stack(list(pixels))}


def score_in_blocks(
    score: Callable[[ImageFeatures, TextFeatures], np.ndarray],
    image: ImageFeatures,
    text: TextFeatures,
    height: int,
    width: int,
) -> np.ndarray:
    """`score` of every image with every text, float32 (images, texts), in blocks of one shape.

    height, width: rows of images and of texts that `score` gets at a time. The last ones are filled
    up with copies of the last row, so that only this shape is compiled.
    """
    images, texts = len(image.pooled), len(text.pooled)
    scores = np.zeros((images, texts), np.float32)
    for top in range(0, images, height):
        rows = take(image, np.minimum(np.arange(top, top + height), images - 1))
        for left in range(0, texts, width):
            columns = take(text, np.minimum(np.arange(left, left + width), texts - 1))
            part = scores[top : top + height, left : left + width]
            part[:] = score(rows, columns)[: len(part), : part.shape[1]]
    return scores
