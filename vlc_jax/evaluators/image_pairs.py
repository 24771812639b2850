"""Geometry of image pairs: how near are the embeddings of two images that captions tell apart?

Erroneous agreements (Tong et al., "Eyes Wide Shut?", 2024): pairs that CLIP embeds alike, with a
cosine above .95, though they look different, with a cosine below .6 of another model's features
(DINOv2's). "On Erroneous Agreements of CLIP Image Embeddings" (2024) finds that such pairs are told
apart all the same, so agreement stands here beside the margin of the scores.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from vlc_jax.evaluators import groups, stats
from vlc_jax.evaluators.vectors import cosine
from vlc_jax.input_pipeline.case import Benchmark, image_file
from vlc_jax.input_pipeline.record import DataError

# Names of images, "CASE_0.png" and "CASE_1.png" -> float32 features, (images, width); raises
# DataError for an image without features. `case.image_file` makes the names.
StoredFeatures = Callable[[Sequence[str]], np.ndarray]
AGREEMENT = 0.95  # cosine above which two images count as alike
DIFFERENCE = 0.6  # cosine of the other features below which they do not


def metrics(
    pooled: Float[np.ndarray, "images embed"],
    scores: Float[np.ndarray, "cases 2 2"],
    other: Float[np.ndarray, "images width"] | None,
    benchmark: Benchmark,
) -> tuple[dict[str, stats.Estimate], Float[np.ndarray, " cases"]]:
    """Metrics of the two images of each case, and their cosines.

    image_cosine          mean cosine of the two images; chance: of images of different cases
    agreement             share of pairs with a cosine above .95; chance likewise
    other_cosine          image_cosine of the features `other`
    erroneous_agreement   share of pairs that agree, and do not by `other`; chance likewise
    margin_correlation    Spearman's correlation of the cosine with the margin (s00 - s01 + s11 -
                          s10) / 2; chance 0. Not there if either is constant

    All but the last per group, too, as `metric/group`.
    """
    near, far = _cosines(pooled)
    found = _means("image_cosine", near, far, benchmark)
    found |= _shares("agreement", near > AGREEMENT, far > AGREEMENT, benchmark)
    if other is not None:
        near_other, far_other = _cosines(other)
        found |= _means("other_cosine", near_other, far_other, benchmark)
        found |= _shares(
            "erroneous_agreement",
            (near > AGREEMENT) & (near_other < DIFFERENCE),
            (far > AGREEMENT) & (far_other < DIFFERENCE),
            benchmark,
        )
    flat = scores.astype(np.float64)
    margin = (flat[:, 0, 0] - flat[:, 0, 1] + flat[:, 1, 1] - flat[:, 1, 0]) / 2
    correlation = stats.spearman(near, margin)
    if correlation is not None:
        found["margin_correlation"] = correlation
    return found, near


def other_features(stored: StoredFeatures, benchmark: Benchmark) -> np.ndarray:
    """Stored features of the benchmark's images, in the order of cases.

    Raises DataError for an image without features.
    """
    names = [image_file(case.id, k) for case in benchmark.cases for k in (0, 1)]
    try:
        return stored(names)
    except DataError as error:
        raise DataError(
            f"second_features lacks features of some images of {benchmark.name!r}, such as "
            f"{names[0]!r}: config.eval.examples={len(benchmark.cases)} keeps all of them in the "
            "folder images/ of the benchmark, and features of that folder have the names"
        ) from error


def _cosines(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cosines of the two images of each case, and of the first with the second of the next one."""
    first, second = features[::2], features[1::2]
    return cosine(first, second), cosine(first, np.roll(second, -1, axis=0))


def _means(
    name: str, near: np.ndarray, far: np.ndarray, benchmark: Benchmark
) -> dict[str, stats.Estimate]:
    labels = [case.group for case in benchmark.cases]
    found = groups.mean_scores(name, near, labels, benchmark)
    chance = float(far.mean()) if len(far) > 1 else None
    return {each: estimate._replace(chance=chance) for each, estimate in found.items()}


def _shares(
    name: str, near: np.ndarray, far: np.ndarray, benchmark: Benchmark
) -> dict[str, stats.Estimate]:
    labels = [case.group for case in benchmark.cases]
    chance = np.full(len(near), far.mean())
    decisions = groups.Decisions(labels, near, chance, np.zeros(len(near), bool))
    found = groups.metrics(name, decisions, benchmark)
    return {each: estimate._replace(ties=None) for each, estimate in found.items()}
