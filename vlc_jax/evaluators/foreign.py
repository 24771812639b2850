"""Scorers of models of other libraries: a function of images and texts, or an encoder.

Their features are not the model's tokens: an image or text of a score function is represented by
its number, and `pooled` has width 0.
"""

import hashlib
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float64, Int

from vlc_jax.errors import UsageError
from vlc_jax.evaluators.cases import chunked
from vlc_jax.evaluators.scorer import Scorer
from vlc_jax.evaluators.vectors import unit
from vlc_jax.input_pipeline.images import image_key, image_ops
from vlc_jax.input_pipeline.record import Caption, ImageLike
from vlc_jax.types import ImageFeatures, TextFeatures

# Texts per call of a score function: retrieval has thousands.
TEXTS = 256
# Images or texts per call of an encoder.
ITEMS = 64

Memo = MutableMapping[str, np.ndarray]


def scorer(
    model: Any,
    memo: Memo,
    batch_size: int | None = None,
    advance: Callable[[int], object] = lambda images: None,
) -> Scorer:
    """The Scorer of a model, whatever its library.

    model: a Scorer, returned unchanged; an object with methods `embed_images(images)` and
      `embed_texts(texts)`, an encoder, whose score is the cosine of two embeddings; or a function
      score(images, texts) -> (images, texts). Images are upright RGB pictures of Pillow, results
      arrays of any library.
    memo: results of calls, by a key of their images and texts: no call is made twice.
    batch_size: images per call. Default: 64 for an encoder, 1 for a function, which is asked for
      the scores of all images of a call with the texts of all.
    advance: is told the number of images that a call was the first to have.

    Raises UsageError for anything else. The Scorer's functions raise UsageError for results of
    another shape, with NaN or infinity, or that are no numbers.
    """
    if batch_size is not None and not (isinstance(batch_size, int) and batch_size >= 1):
        raise UsageError(f"batch_size is a number of at least 1; got {batch_size!r}")
    if isinstance(model, Scorer):
        return model
    calls = _Calls(memo, advance)
    if callable(getattr(model, "embed_images", None)) and callable(
        getattr(model, "embed_texts", None)
    ):
        return _Encoder(model, calls, batch_size or ITEMS).scorer()
    if callable(model):
        return _Function(model, calls, batch_size or 1).scorer()
    raise UsageError(
        "a model is one of vlc_jax.load, a Scorer, a function score(images, texts), or an object "
        f"with the methods embed_images and embed_texts; got {type(model).__name__}"
    )


class _Calls:
    """Calls of a foreign model: pictures in, checked float64 arrays out, each call made once."""

    def __init__(self, memo: Memo, advance: Callable[[int], object]):
        self._memo, self._advance = memo, advance
        self._seen: set[bytes] = set()
        self.key = image_key.ImageKeys()

    def __call__(
        self,
        function: Callable[..., Any],
        images: Sequence[ImageLike],
        texts: Sequence[str],
        check: Callable[[Any], np.ndarray],
    ) -> np.ndarray:
        """The checked result of `function(images, texts)`, without an argument that is empty."""
        keys = [self.key(image) for image in images]
        parts = [*keys, *(text.encode("utf-8", "surrogatepass") for text in texts)]
        digest = hashlib.sha256(repr((len(images), [len(part) for part in parts])).encode())
        for part in parts:
            digest.update(part)
        key = digest.hexdigest()[:32]
        if key not in self._memo:
            given = ([image_ops.open_rgb(image) for image in images], list(texts))
            self._memo[key] = check(function(*filter(None, given)))
        self._advance(len({*keys} - self._seen))
        self._seen |= {*keys}
        return self._memo[key]


class _Function:
    """A score function as a Scorer; its features are numbers of images and texts."""

    def __init__(self, score: Callable[..., Any], calls: _Calls, batch_size: int):
        self._score, self._calls, self._batch_size = score, calls, batch_size
        self._images, self._texts = list[ImageLike](), list[str]()
        self._numbers: dict[bytes | str, int] = {}  # key of an image, or text -> its place above

    def scorer(self) -> Scorer:
        return Scorer(self._embed_images, self._embed_texts, self._all, self._options, embeds=False)

    def _embed_images(self, images: Sequence[ImageLike]) -> ImageFeatures:
        # by content: cases that share an image are scored in one call
        numbers = self._number([self._calls.key(image) for image in images], images, self._images)
        return ImageFeatures(_no_embedding(images), tokens=numbers)

    def _embed_texts(self, texts: Sequence[Caption]) -> TextFeatures:
        texts = _strings(texts)
        numbers = self._number(texts, texts, self._texts)
        return TextFeatures(_no_embedding(texts), ids=numbers)

    def _number(
        self, keys: Sequence[bytes | str], items: Sequence[Any], listed: list
    ) -> Int[np.ndarray, " items"]:
        """Numbers of items in `listed`, to which those with a new key are appended."""
        for key, item in zip(keys, items, strict=True):
            if key not in self._numbers:
                self._numbers[key] = len(listed)
                listed.append(item)
        return np.array([self._numbers[key] for key in keys], np.int64)

    def _all(self, images: ImageFeatures, texts: TextFeatures) -> np.ndarray:
        parts = chunked(images.tokens, self._batch_size)
        return np.concatenate([self._matrix(part, texts.ids) for part in parts])

    def _options(self, images: ImageFeatures, texts: TextFeatures) -> np.ndarray:
        numbers = images.tokens
        options = texts.ids.reshape(len(numbers), -1)
        scores = np.zeros(options.shape)
        for called in chunked(_distinct(numbers), self._batch_size):
            rows = np.flatnonzero(np.isin(numbers, called))
            asked = _distinct(options[rows])
            matrix = self._matrix(called, asked)
            row = {number: n for n, number in enumerate(called.tolist())}
            column = {number: n for n, number in enumerate(asked.tolist())}
            for n in rows:
                columns = [column[text] for text in options[n].tolist()]
                scores[n] = matrix[row[int(numbers[n])], columns]
        return scores

    def _matrix(
        self, images: Int[np.ndarray, " images"], texts: Int[np.ndarray, " texts"]
    ) -> Float64[np.ndarray, "images texts"]:
        """Scores of all images with all texts, at most TEXTS texts in a call."""
        rows, parts = [self._images[number] for number in images], []
        for part in chunked(texts, TEXTS):
            columns = [self._texts[number] for number in part]
            shape = (len(rows), len(columns))
            check = partial(_checked, shape=shape, name="score(images, texts)")
            parts.append(self._calls(self._score, rows, columns, check))
        return np.concatenate(parts, axis=1)


class _Encoder:
    """An encoder of another library as a Scorer: the score is the cosine of two embeddings."""

    def __init__(self, model: Any, calls: _Calls, batch_size: int):
        self._model, self._calls, self._batch_size = model, calls, batch_size
        self._width: int | None = None
        self._rows: dict[bytes | str, np.ndarray] = {}  # item -> its embedding

    def scorer(self) -> Scorer:
        functions = self._embed_images, self._embed_texts, _cosines, _own_cosines
        return Scorer(*functions, is_cosine=True)

    def _embed_images(self, images: Sequence[ImageLike]) -> ImageFeatures:
        by_key = {self._calls.key(image): image for image in images}
        for part in self._parts(by_key):
            sources = [by_key[key] for key in part]
            check = self._check("embed_images(images)", len(part))
            rows = self._calls(self._model.embed_images, sources, (), check)
            self._rows |= zip(part, rows, strict=True)
        keys = [self._calls.key(image) for image in images]
        return ImageFeatures(np.stack([self._rows[key] for key in keys]))

    def _embed_texts(self, texts: Sequence[Caption]) -> TextFeatures:
        texts = _strings(texts)
        for part in self._parts(dict.fromkeys(texts)):
            check = self._check("embed_texts(texts)", len(part))
            rows = self._calls(self._model.embed_texts, (), part, check)
            self._rows |= zip(part, rows, strict=True)
        return TextFeatures(np.stack([self._rows[text] for text in texts]))

    def _parts(self, keys: Iterable[Any]) -> list[list]:
        """Keys without an embedding, `batch_size` at a time."""
        return chunked([key for key in keys if key not in self._rows], self._batch_size)

    def _check(self, name: str, count: int) -> Callable[[Any], np.ndarray]:
        def check(result: Any) -> np.ndarray:
            rows = _checked(result, (count, self._width), name)
            self._width = rows.shape[1]
            return unit(rows).astype(np.float32)

        return check


def _distinct(numbers: Int[np.ndarray, "*shape"]) -> Int[np.ndarray, " distinct"]:
    """Each number once, in the order of first appearance."""
    return np.array(list(dict.fromkeys(numbers.ravel().tolist())), np.int64)


def _cosines(images: ImageFeatures, texts: TextFeatures) -> np.ndarray:
    return images.pooled @ texts.pooled.T


def _own_cosines(images: ImageFeatures, texts: TextFeatures) -> np.ndarray:
    own = texts.pooled.reshape(len(images.pooled), -1, texts.pooled.shape[1])
    # not a matrix product, whose rounding may differ between rows
    return (images.pooled[:, None] * own).sum(axis=2)


def _checked(result: Any, shape: tuple[int, int | None], name: str) -> np.ndarray:
    """The result of a foreign function as float64; an axis of any length is None in `shape`.

    Raises UsageError, with the rule and the value found, for any other array.
    """
    expected = f"({', '.join('width' if n is None else str(n) for n in shape)})"
    kind = type(result).__name__
    if hasattr(result, "detach"):
        # a tensor of torch, on a device, with a gradient, or in bfloat16, which numpy refuses
        result = result.detach().cpu().double()
    try:
        array = np.asarray(result)
        numbers = array.astype(np.float64) if array.dtype.kind in "fiubV" else None
    except (TypeError, ValueError, RuntimeError):
        numbers = None
    if numbers is None:
        raise UsageError(
            f"{name} returns an array of numbers of shape {expected}; got {kind} {result!r:.80}"
        )
    is_fit = numbers.ndim == 2 and numbers.shape[0] == shape[0] and numbers.shape[1] > 0
    if not is_fit or shape[1] not in (None, numbers.shape[1]):
        raise UsageError(f"{name} returns an array of shape {expected}; got shape {numbers.shape}")
    if bad := int(numbers.size - np.isfinite(numbers).sum()):
        raise UsageError(
            f"{name} returns finite numbers; {bad} of {numbers.size} are NaN or infinite"
        )
    return numbers


def _strings(texts: Sequence[Caption]) -> list[str]:
    for text in texts:
        if not isinstance(text, str):
            raise UsageError(
                f"a model of another library reads texts, not conversations; got {text!s:.80}"
            )
    return list(texts)


def _no_embedding(items: Sequence[Any]) -> np.ndarray:
    return np.zeros((len(items), 0), np.float32)
