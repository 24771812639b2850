"""Scorer: functions from images and strings, which evaluators get instead of a model."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float

from input_pipeline.record import ImageLike
from vlc_jax.types import ImageFeatures, TextFeatures

Features = TypeVar("Features", ImageFeatures, TextFeatures)


class Scorer(NamedTuple):
    """Functions of a model; features and scores are numpy arrays on the host.

    embed_images   n pictures -> ImageFeatures of n rows
    embed_texts    n strings -> TextFeatures of n rows
    score          ImageFeatures n, TextFeatures m -> (n, m), every image with every text
    score_options  ImageFeatures n, TextFeatures n * k -> (n, k): image i with texts
                   i * k ... i * k + k - 1
    image_tokens   n pictures -> ImageFeatures of the tower, with projected tokens of its patches
    text_tokens    n strings -> TextFeatures of the tower, with projected tokens and `mask`; None of
                   a model whose texts are vectors
    """

    embed_images: Callable[[Sequence[ImageLike]], ImageFeatures]
    embed_texts: Callable[[Sequence[str]], TextFeatures]
    score: Callable[[ImageFeatures, TextFeatures], Float[np.ndarray, "images texts"]]
    score_options: Callable[[ImageFeatures, TextFeatures], Float[np.ndarray, "images options"]]
    image_tokens: Callable[[Sequence[ImageLike]], ImageFeatures] | None = None
    text_tokens: Callable[[Sequence[str]], TextFeatures] | None = None


def take(features: Features, rows: np.ndarray | slice) -> Features:
    """Selects rows of every array of an ImageFeatures or TextFeatures."""
    return type(features)(*(None if array is None else array[rows] for array in features))


def embed_texts_once(scorer: Scorer, texts: Sequence[str]) -> TextFeatures:
    """Features of all texts, in order, each different string embedded once."""
    # Not only for speed: in another batch or row a string may be rounded otherwise, and equal
    # captions must tie.
    row = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    features = scorer.embed_texts(list(row))
    return take(features, np.array([row[text] for text in texts], np.int64))
