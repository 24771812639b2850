"""Zero-shot classification of images that show several classes: mean average precision.

The scores of a class rank all images; average precision is the mean, over the images of the class,
of the share of its images among those down to there. CLIP_benchmark's `average_precision_per_class`
is the same, but counts a class without images as 0. The 11-point form of PASCAL VOC 2007 is the
mean, over the recalls 0, .1, ..., 1, of the best precision at this recall or a higher one.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Num

from vlc_jax.evaluators import stats, ties, zeroshot
from vlc_jax.evaluators.cases import WRONG_PER_ROW, check_cases, chunked, row
from vlc_jax.evaluators.scorer import Scorer
from vlc_jax.evaluators.stats import RESAMPLES, RESAMPLES_AT_ONCE, SEED, Estimate
from vlc_jax.input_pipeline.case import Benchmark, distinct_names
from vlc_jax.input_pipeline.record import DataError


def evaluate(
    benchmark: Benchmark, scorer: Scorer, *, tie: str = "strict", chunk: int = 512
) -> stats.EvalResult:
    """Mean average precision over the classes, its 11-point form, and the former of every class.

    `correct` of a row: one of the image's classes has its highest score. tie, among images of equal
    score: strict counts no precision for one that an image without the class ties with; half the
    expected precision in a random order; first_index and last_index take the cases in order.
    Intervals are percentile bootstraps over images. Classes without an image have no metric.

    Raises:
      UsageError: an unknown tie policy.
      DataError: no cases, invalid classes or templates, a case without exactly one image or with
        labels that are no classes, no case with a label.
    """
    ties.check(tie)
    number = len(benchmark.classes)
    rule = f"a multi-label case has one image and meta['labels'], of 0 ... {number - 1}"
    check_cases(
        benchmark,
        rule,
        lambda case: len(case.images) == 1 and _fits(case.meta.get("labels"), number),
    )
    zeroshot.check_prompts(benchmark)
    score = zeroshot.class_scorer(benchmark, scorer)
    parts = chunked(benchmark.cases, chunk)
    scored = [score(scorer.embed_images([case.images[0] for case in part])) for part in parts]
    scores = stats.require_finite(np.concatenate(scored), benchmark.name)
    truth = np.zeros(scores.shape, bool)
    for n, case in enumerate(benchmark.cases):
        truth[n, list(case.meta["labels"])] = True
    classes = distinct_names(benchmark.classes)
    occurring = [k for k in range(number) if truth[:, k].any()]
    if not occurring:
        raise DataError(f"no case of {benchmark.name!r} has a label")
    rankings = {classes[k]: rank(scores[:, k], truth[:, k], tie) for k in occurring}
    rows = [_row(benchmark, n, classes, scores[n], truth[n]) for n in range(len(scores))]
    left_out = [name for name in classes if name not in rankings]
    details = {
        "tie": tie,
        "classes": number,
        "classes_without_images": left_out,
        "templates": len(benchmark.templates or ("{}",)),
    }
    return stats.EvalResult(_metrics(rankings), rows, details)


class Ranking(NamedTuple):
    """Images by the scores of a class, the best first.

    order: their cases.   truth: which show the class.   precision: of each of these, down to its
    place, by the tie policy.   tied: share of these with whose score an image without the class
    ties.
    """

    order: Int[np.ndarray, " images"]
    truth: Bool[np.ndarray, " images"]
    precision: Float[np.ndarray, " positives"]
    tied: float

    def resampled(self, weights: Float[np.ndarray, "samples images"]) -> np.ndarray:
        """Average precision and its 11-point form, (samples, 2), of samples with these counts of
        each case; for a sample without the class that of all cases. Ties are in the order of the
        images."""
        counts = weights[:, self.order]
        hits = np.cumsum(counts * self.truth, axis=1)[:, self.truth]
        places = np.cumsum(counts, axis=1)[:, self.truth]
        counts = counts[:, self.truth]
        # of the middle one of equal images; that of the last alone would be too high
        precision = (hits - (counts - 1) / 2) / (places - (counts - 1) / 2)
        number = counts.sum(axis=1)
        average = (counts * precision).sum(axis=1) / np.maximum(number, 1)
        # an image that was not drawn has the precision of a place that the sample lacks
        precision[counts == 0] = 0
        points = [eleven_points(*row) for row in zip(precision, hits, strict=True)]
        whole = self.precision.mean(), eleven_points(self.precision, np.arange(len(hits[0])) + 1)
        return np.where(number[:, None] > 0, np.stack([average, points], axis=1), whole)


def eleven_points(
    precision: Float[np.ndarray, " positives"], hits: Num[np.ndarray, " positives"]
) -> float:
    """11-point average precision (Everingham et al. 2010, section 4.2).

    precision: of each image of the class, in ranked order.   hits: images of the class down to it.
    """
    best = np.maximum.accumulate(precision[::-1])[::-1]
    # multiplied: .3 * 10 is 3.0000000000000004 in floating point
    first = np.searchsorted(10 * hits, np.arange(11) * hits[-1])
    return float(best[first].mean())


def rank(
    scores: Float[np.ndarray, " images"], truth: Bool[np.ndarray, " images"], tie: str
) -> Ranking:
    """Ranking of the images by the scores of one class, which at least one of them shows."""
    order = np.argsort(-scores, kind="stable")
    if tie == "last_index":
        order = len(scores) - 1 - np.argsort(-scores[::-1], kind="stable")
    ranked, right = scores[order], truth[order]
    position = np.arange(1, len(scores) + 1)
    precision = np.cumsum(right) / position
    starts = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    sizes = np.diff([*starts, len(scores)])
    hits = np.add.reduceat(right.astype(int), starts)
    is_tied = np.repeat(hits < sizes, sizes)[right]
    if tie == "strict":
        precision = np.where(np.repeat(hits < sizes, sizes), 0.0, precision)
    elif tie == "half":
        # of an image with the class at position j of its tied ones: those before all ties, itself,
        # and its share of the others
        before = np.repeat(np.cumsum(hits) - hits, sizes)
        others = np.repeat((hits - 1) / np.maximum(sizes - 1, 1), sizes)
        expected = (before + 1 + (position - 1 - np.repeat(starts, sizes)) * others) / position
        precision = np.repeat(np.add.reduceat(expected, starts) / sizes, sizes)
    return Ranking(order, right, precision[right], float(is_tied.mean()))


def _metrics(rankings: dict[str, Ranking]) -> dict[str, Estimate]:
    each, rng = [*rankings.values()], np.random.default_rng(SEED)
    images = len(each[0].truth)
    samples = list[np.ndarray]()
    for _ in range(RESAMPLES // RESAMPLES_AT_ONCE):
        weights = rng.multinomial(images, np.full(images, 1 / images), RESAMPLES_AT_ONCE)
        samples.append(np.stack([one.resampled(weights.astype(float)) for one in each]))
    drawn = np.concatenate(samples, axis=1)
    chances = [rank(np.zeros(images), one.truth, "half").precision.mean() for one in each]
    averages = [float(one.precision.mean()) for one in each]
    points = [eleven_points(one.precision, np.arange(1, one.truth.sum() + 1)) for one in each]
    ties_of = [one.tied for one in each]

    def estimate(values: list[float], chance: float | None, resampled: np.ndarray, tied: float):
        value = float(np.mean(values))
        low, high = np.percentile(resampled, (2.5, 97.5))
        # resamples break ties by the order of the cases, the value by the policy
        low, high = min(float(low), value), max(float(high), value)
        return Estimate(value, images, chance, low, high, tied)

    means, tied = np.mean(drawn, axis=0), float(np.mean(ties_of))
    metrics = {
        "mean_average_precision": estimate(averages, float(np.mean(chances)), means[:, 0], tied),
        "mean_average_precision_11_points": estimate(points, None, means[:, 1], tied),
    }
    for n, name in enumerate(rankings):
        metrics[f"average_precision/{name}"] = estimate(
            [averages[n]], float(chances[n]), drawn[n, :, 0], ties_of[n]
        )
    return metrics


def _fits(labels: object, number: int) -> bool:
    if not isinstance(labels, list | tuple):
        return False
    return all(isinstance(each, int | np.integer) and 0 <= each < number for each in labels)


def _row(
    benchmark: Benchmark,
    n: int,
    classes: tuple[str, ...],
    scores: Float[np.ndarray, " classes"],
    truth: Bool[np.ndarray, " classes"],
) -> dict[str, object]:
    """Per-example row: the image's classes, then the best of the others."""
    order = np.argsort(-scores, kind="stable")
    wrong = order[~truth[order]]
    columns = [*order[truth[order]], *wrong[:WRONG_PER_ROW]]
    best = scores[truth].max(initial=-np.inf), scores[~truth].max(initial=-np.inf)
    names = [classes[k] for k in columns]
    correct, tie = best[0] > best[1], best[0] == best[1]
    return row(benchmark.cases[n], names, scores[columns].tolist(), correct, tie)
