"""A scorer that is a table: images and texts are names, scores are looked up."""

from collections.abc import Callable

import numpy as np
import pytest

from vlc_jax.evaluators.scorer import Scorer
from vlc_jax.types import ImageFeatures, TextFeatures


class TableScorer:
    """Scores by `look_up(image name, text)`; remembers the largest score matrix asked for."""

    def __init__(self, look_up: Callable[[bytes, str], float]):
        self.look_up = look_up
        self.images: list[bytes] = []
        self.texts: list[str] = []
        self.largest = 0

    def _embed(self, known: list, items) -> np.ndarray:
        known.extend(items)
        return np.arange(len(known) - len(items), len(known), dtype=np.float32)[:, None]

    def _score(self, image: np.ndarray, text: np.ndarray) -> float:
        return self.look_up(self.images[int(image[0])], self.texts[int(text[0])])

    def score(self, images: ImageFeatures, texts: TextFeatures) -> np.ndarray:
        self.largest = max(self.largest, len(images.pooled) * len(texts.pooled))
        rows = [[self._score(i, t) for t in texts.pooled] for i in images.pooled]
        return np.array(rows, np.float32)

    def score_options(self, images: ImageFeatures, texts: TextFeatures) -> np.ndarray:
        grouped = texts.pooled.reshape(len(images.pooled), -1, 1)
        rows = [
            [self._score(i, t) for t in ts] for i, ts in zip(images.pooled, grouped, strict=True)
        ]
        return np.array(rows, np.float32)

    def scorer(self) -> Scorer:
        return Scorer(
            embed_images=lambda images: ImageFeatures(self._embed(self.images, images)),
            embed_texts=lambda texts: TextFeatures(self._embed(self.texts, texts)),
            score=self.score,
            score_options=self.score_options,
        )


@pytest.fixture
def table_scorer():
    """look_up(image, text) -> TableScorer."""
    return TableScorer


@pytest.fixture
def constant_scorer():
    """A scorer for which everything is equally good."""
    return TableScorer(lambda image, text: 0.5).scorer()
