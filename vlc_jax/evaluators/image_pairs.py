"""Geometry of image pairs: cosines between the embeddings of a case's two images.

Erroneous agreements (Tong et al., "Eyes Wide Shut?", 2024): pairs with a CLIP cosine above .95
whose features by another model (DINOv2) have a cosine below .6. "On Erroneous Agreements of CLIP
Image Embeddings" (2024) shows that CLIP's scores can still separate such pairs, so agreement is
reported together with its correlation to the margin of the scores.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from vlc_jax.errors import UsageError
from vlc_jax.evaluators import groups, stats
from vlc_jax.evaluators.cases import chunked
from vlc_jax.evaluators.scorer import Scorer
from vlc_jax.evaluators.vectors import cosine
from vlc_jax.input_pipeline.case import Benchmark, image_file
from vlc_jax.input_pipeline.record import DataError

# Names of images, "CASE_0.png" and "CASE_1.png" -> float32 features, (images, width); raises
# DataError for an image without features. `case.image_file` makes the names.
StoredFeatures = Callable[[Sequence[str]], np.ndarray]
# cosine above which two images count as alike
AGREEMENT = 0.95
# cosine of the other model's features below which they differ
DIFFERENCE = 0.6


def metrics(
    pooled: Float[np.ndarray, "images embed"],
    scores: Float[np.ndarray, "cases 2 2"] | None,
    other: Float[np.ndarray, "images width"] | None,
    benchmark: Benchmark,
) -> tuple[dict[str, stats.Estimate], Float[np.ndarray, " cases"]]:
    """Metrics of the two images of each case, and their cosines.

    image_cosine          mean cosine of the two images; chance: of images of different cases
    agreement             share of pairs with a cosine above .95; chance: as above
    other_cosine          image_cosine of the features `other`
    erroneous_agreement   share of pairs that agree and differ in `other`; chance: as above
    margin_correlation    Spearman's correlation of the cosine with the margin of `scores`, (s00 -
                          s01 + s11 - s10) / 2; chance 0. Omitted if either is constant

    All but the last also per group, as `metric/group`.
    """
    near, far = _cosines(pooled)
    estimates = _means("image_cosine", near, far, benchmark)
    estimates |= _shares("agreement", near > AGREEMENT, far > AGREEMENT, benchmark)
    if other is not None:
        near_other, far_other = _cosines(other)
        estimates |= _means("other_cosine", near_other, far_other, benchmark)
        estimates |= _shares(
            "erroneous_agreement",
            (near > AGREEMENT) & (near_other < DIFFERENCE),
            (far > AGREEMENT) & (far_other < DIFFERENCE),
            benchmark,
        )
    if scores is not None:
        (s00, s01), (s10, s11) = scores.astype(np.float64).transpose(1, 2, 0)
        if correlation := stats.spearman(near, (s00 - s01 + s11 - s10) / 2):
            estimates["margin_correlation"] = correlation
    return estimates, near


def choice_metrics(benchmark: Benchmark, scorer: Scorer, chunk: int) -> dict[str, stats.Estimate]:
    """Metrics of the images of two cases that are a pair, as What'sUp's left and right.

    Raises UsageError for a benchmark without such pairs.
    """
    cases, labels = benchmark.cases, [groups.labels_of(case.group) for case in benchmark.cases]
    pairs = [
        dataclasses.replace(
            cases[unit[0]],
            images=tuple(cases[row].images[0] for row in unit),
            group=groups.shared_labels([labels[row] for row in unit]),
        )
        for unit in groups.rows_by(labels, ("pair",)).values()
        if len(unit) == 2
    ]
    if not pairs:
        raise UsageError(
            "geometry of the choice protocol compares the images of two cases of a pair, as "
            f"What'sUp has them; {benchmark.name!r} has no pairs: leave the option out"
        )
    images = [image for pair in pairs for image in pair.images]
    pooled = np.concatenate([scorer.embed_images(part).pooled for part in chunked(images, chunk)])
    stats.require_finite(pooled, benchmark.name)
    return metrics(pooled, None, None, dataclasses.replace(benchmark, cases=pairs))[0]


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
    """Cosines of the two images of each case, and of its first with the next case's second."""
    first, second = features[::2], features[1::2]
    # the next case's second image: as many pairs by chance as there are cases
    return cosine(first, second), cosine(first, np.roll(second, -1, axis=0))


def _means(
    name: str, near: np.ndarray, far: np.ndarray, benchmark: Benchmark
) -> dict[str, stats.Estimate]:
    estimates = groups.mean_scores(name, near, [c.group for c in benchmark.cases], benchmark)
    chance = float(far.mean()) if len(far) > 1 else None
    return {each: estimate._replace(chance=chance) for each, estimate in estimates.items()}


def _shares(
    name: str, near: np.ndarray, far: np.ndarray, benchmark: Benchmark
) -> dict[str, stats.Estimate]:
    labels = [case.group for case in benchmark.cases]
    chance = np.full(len(near), far.mean())
    decisions = groups.Decisions(labels, near, chance, np.zeros(len(near), bool))
    estimates = groups.metrics(name, decisions, benchmark)
    return {each: estimate._replace(ties=None) for each, estimate in estimates.items()}
