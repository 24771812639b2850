"""Nulls of sets whose wrong images are made: how far images alone give the case away.

A classifier of stored features, fitted on other folds as that of texts (nulls.py), tells the two
images of a pair apart without a caption. That alone is no score of a pair: both captions would get
the same image. But where captions differ in kind as well, as edited from original ones, a model may
match the two differences and bind nothing.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from vlc_jax.input_pipeline.case import Benchmark, image_file
from vlc_jax.input_pipeline.record import DataError


class ImageNull(NamedTuple):
    """Shares from 0 to 1 of a set's cases, ties half.

    image: the first image is told from the others, by features alone; of several images for one
      caption this is blind accuracy.   matched: of pairs, image and caption are told apart in the
      same direction: the group score of a model that only matches the two differences; else None.
    """

    benchmark: str
    cases: int
    chance: float
    image: float
    matched: float | None


def image_null(benchmark: Benchmark, features: Callable[[Sequence[str]], np.ndarray]) -> ImageNull:
    """The null of a set's images.

    features: names of images (`case.image_file`) -> (images, width); raises DataError for an image
      without features. Raises DataError for a set of single images.
    """
    from vlc_jax.input_pipeline.hard_texts import blind  # scikit-learn takes a second

    cases = [case for case in benchmark.cases if len(case.images) > 1]
    if not cases:
        raise DataError(f"{benchmark.name} has one image per case: there is nothing to choose from")
    sizes = np.array([len(case.images) for case in cases])
    names = [image_file(case.id, index) for case in cases for index in range(len(case.images))]
    groups = [str(case.meta.get("record", case.id)) for case in cases]
    try:
        vectors = features(names)
    except DataError as error:
        raise DataError(
            f"some images of {benchmark.name} have no features, such as {names[0]}: names are "
            f"those of the images in evals/{benchmark.name}/images, which "
            "--config.eval.examples=100000 keeps"
        ) from error
    images = blind.vector_scores(vectors, sizes, groups)
    share, chance = float(blind.credit(images).mean()), float((1 / sizes).mean())
    if any(len(case.captions) != 2 or len(case.images) != 2 for case in cases):
        return ImageNull(benchmark.name, len(cases), chance, share, None)
    texts = blind.option_scores([case.captions for case in cases], groups)
    sides = [np.array([np.sign(s[0] - s[1]) for s in scores]) for scores in (images, texts)]
    matched = float((1 + sides[0] * sides[1]).mean() / 2)
    return ImageNull(benchmark.name, len(cases), chance, share, matched)
