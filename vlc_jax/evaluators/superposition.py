"""Superposition: is the embedding of two objects the sum of the embeddings of each alone?

The steps of the proof of "Is CLIP ideal? No. Can we fix it? Yes!" (ICCV 2025) as measurements: the
cone of the embeddings, the superposition of objects and its coefficients, and the collapse of
attribute binding. Two renderings of one scene give the noise level.
"""

import numpy as np
from jaxtyping import Float

from vlc_jax.evaluators import stats, ties
from vlc_jax.evaluators.cases import check_cases, chunked, row
from vlc_jax.evaluators.conditions import FLOOR
from vlc_jax.evaluators.scorer import Scorer, embed_texts_once
from vlc_jax.evaluators.vectors import cosine, unit
from vlc_jax.input_pipeline.case import Benchmark

SUMS = ("the sum of the two alone", "the sum with a third object")  # captions of rows
TEXTS = 3  # per case, if any: first, second, third
IMAGES = 6  # per case: both, first, second, third, both again, both with colours exchanged


def evaluate(
    benchmark: Benchmark, scorer: Scorer, *, tie: str = "strict", chunk: int = 256
) -> stats.EvalResult:
    """Statistics of L2-normalised pooled features of images: two objects (xy), each alone (x, y), a
    third object (z), another rendering (xy'), and both with exchanged colours.

    superposition         share of cases with xy nearer to x + y than to x + z; chance 1/2
    binding_visible       share with 1 - cos(xy, exchanged) above the 95th percentile of
                          1 - cos(xy, xy'): binding has not collapsed; chance .05
    cone                  length of the mean of all x and y; chance: random directions
    sum_cosine            cos(xy, x + y)
    sum_residual          share of |xy|^2 outside the span of x and y
    rendering_residual    share of |xy|^2 outside the span of xy': noise
    first_coefficient     coefficient of x in the least squares fit of xy by x and y
    second_coefficient    coefficient of y
    exchanged_cosine      cos(xy, exchanged); chance is cos(xy, xy'): noise

    If cases have the texts of x, y and z, xy is also fitted by those of x and y (equation 9 of the
    paper: an image is a sum of the text vectors p and q of its objects):

    text_first_coefficient   coefficient of p
    text_second_coefficient  coefficient of q
    text_residual            share of |xy|^2 outside the span of p and q

    All but the first three are also given as NAME_centred, after subtracting the mean of all x and
    y, and from texts that of all p and q. Chance of sum_cosine, sum_residual and text_residual is
    their value with z instead of y.

    tie: see `ties`; for `superposition`.

    Raises UsageError for an unknown tie policy, DataError for a case without six images or with
    another number of texts than none or three.
    """
    ties.check(tie)
    texts = _check(benchmark)
    features = _features(benchmark, scorer, chunk)
    mean = features[:, 1:3].reshape(-1, features.shape[-1]).mean(axis=0)
    both, first, second, third = (features[:, k] for k in range(4))
    nearness = [cosine(both, unit(first) + unit(other)) for other in (second, third)]
    right = ties.credit(np.stack(nearness, axis=1), lambda s: s[:, 0] > s[:, 1], tie)
    tied = nearness[0] == nearness[1]
    exchanged, noise = (1 - cosine(both, features[:, k]) for k in (5, 4))
    floor = float(np.quantile(noise, FLOOR))
    metrics = {
        "superposition": stats.proportion(right, 1 / 2, tied),
        "binding_visible": stats.proportion(exchanged > floor, 1 - FLOOR),
        "cone": _cone(features[:, 1:3], mean),
    }
    # centred: without the cone's direction, which all images share
    metrics |= _statistics(features, "") | _statistics(unit(features - mean), "_centred")
    if texts:
        vectors = _text_vectors(benchmark, scorer)
        metrics |= _by_texts(both, vectors, "")
        centred = unit(vectors - vectors[:, :2].mean(axis=(0, 1)))
        metrics |= _by_texts(unit(both - mean), centred, "_centred")
    rows = [
        row(case, SUMS, [float(near[n]) for near in nearness], right[n] == 1, tied[n])
        for n, case in enumerate(benchmark.cases)
    ]
    return stats.EvalResult(metrics, rows, {"tie": tie, "noise_floor": floor, "quantile": FLOOR})


def _check(benchmark: Benchmark) -> int:
    """Number of texts of each case. Raises DataError for other numbers of images or texts."""
    rule = f"superposition needs {IMAGES} images per case, and {TEXTS} texts or none in any"
    texts = len(benchmark.cases[0].captions) if benchmark.cases else 0
    check_cases(
        benchmark,
        rule,
        lambda case: len(case.images) == IMAGES and len(case.captions) == texts in (0, TEXTS),
    )
    return texts


def _cone(
    alone: Float[np.ndarray, "cases two embed"], mean: Float[np.ndarray, " embed"]
) -> stats.Estimate:
    """Length of the mean of all vectors."""
    # it is the mean projection on its direction, which has an interval over scenes
    direction = mean / max(float(np.linalg.norm(mean)), 1e-12)
    length = stats.mean(alone.mean(axis=1) @ direction, "score")
    return length._replace(chance=float((2 * len(alone)) ** -0.5))


def _features(
    benchmark: Benchmark, scorer: Scorer, chunk: int
) -> Float[np.ndarray, "cases images embed"]:
    """Pooled features of unit length, of `chunk` cases at a time."""
    pooled = np.concatenate(
        [
            scorer.embed_images([image for case in part for image in case.images]).pooled
            for part in chunked(benchmark.cases, chunk)
        ]
    )
    stats.require_finite(pooled, benchmark.name)
    return unit(pooled).reshape(len(benchmark.cases), IMAGES, -1)


def _text_vectors(benchmark: Benchmark, scorer: Scorer) -> Float[np.ndarray, "cases texts embed"]:
    """Pooled vectors of the texts, of unit length."""
    written = embed_texts_once(scorer, [text for c in benchmark.cases for text in c.captions])
    stats.require_finite(written.pooled, benchmark.name)
    return unit(written.pooled).reshape(len(benchmark.cases), TEXTS, -1)


def _statistics(
    features: Float[np.ndarray, "cases images embed"], suffix: str
) -> dict[str, stats.Estimate]:
    both, first, second, third, again, exchanged = np.moveaxis(features, 1, 0)
    coefficients, residual = fit(both, first, second)
    statistics = {
        "sum_cosine": (cosine(both, first + second), cosine(both, first + third)),
        "sum_residual": (residual, fit(both, first, third)[1]),
        "rendering_residual": (1 - cosine(both, again) ** 2, None),
        "first_coefficient": (coefficients[:, 0], None),
        "second_coefficient": (coefficients[:, 1], None),
        "exchanged_cosine": (cosine(both, exchanged), cosine(both, again)),
    }
    return {
        f"{name}{suffix}": stats.mean(values, "score")._replace(
            chance=None if other is None else float(other.mean())
        )
        for name, (values, other) in statistics.items()
    }


def _by_texts(
    both: Float[np.ndarray, "cases embed"],
    vectors: Float[np.ndarray, "cases texts embed"],
    suffix: str,
) -> dict[str, stats.Estimate]:
    """Statistics of the fit of images by texts of their objects."""
    first, second, third = np.moveaxis(vectors, 1, 0)
    coefficients, residual = fit(both, first, second)
    chance = float(fit(both, first, third)[1].mean())
    return {
        f"text_first_coefficient{suffix}": stats.mean(coefficients[:, 0], "score"),
        f"text_second_coefficient{suffix}": stats.mean(coefficients[:, 1], "score"),
        f"text_residual{suffix}": stats.mean(residual, "score")._replace(chance=chance),
    }


def fit(
    target: Float[np.ndarray, "cases embed"],
    first: Float[np.ndarray, "cases embed"],
    second: Float[np.ndarray, "cases embed"],
) -> tuple[Float[np.ndarray, "cases 2"], Float[np.ndarray, " cases"]]:
    """(a, b) of the least squares fit target = a first + b second; residual as a share of
    |target|^2."""
    basis = np.stack([first, second], axis=-1)
    coefficients = (np.linalg.pinv(basis) @ target[..., None])[..., 0]
    left = target - (basis @ coefficients[..., None])[..., 0]
    return coefficients, np.sum(left**2, axis=-1) / np.sum(target**2, axis=-1)
