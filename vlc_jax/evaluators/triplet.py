"""Hard-positive triplets: an image with a caption c, a hard negative n and a hard positive p.

Original and augmented accuracy and brittleness (Kamath et al., "The Hard Positive Truth about
Vision-Language Compositionality", ECCV 2024): a model may tell c from n without knowing why, and
then p shows it. All comparisons are strict, so that equal scores earn nothing.
"""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float

from input_pipeline.benchmarks import Benchmark
from input_pipeline.record import DataError
from vlc_jax.evaluators import choice, stats
from vlc_jax.evaluators.scorer import Scorer

CHANCE = {"augmented_accuracy": 1 / 3, "original_accuracy": 1 / 2, "brittleness": 1 / 3}
ORDERS = (
    "both_above_negative",  # augmented accuracy
    "correct_above_negative_above_positive",  # brittle
    "positive_above_negative_above_correct",  # brittle
    "negative_above_both",
    "ties",  # the negative scores as one of the others does
)


def orders(scores: Float[np.ndarray, "cases 3"]) -> Bool[np.ndarray, "cases orders"]:
    """One-hot order of each case's scores of c, n, p, in the columns of ORDERS."""
    correct, negative, positive = scores.T
    tied = (correct == negative) | (positive == negative)
    c, p = correct > negative, positive > negative
    strict = [order & ~tied for order in (c & p, c & ~p, p & ~c, ~c & ~p)]
    return np.stack([*strict, tied], axis=1)


def evaluate(benchmark: Benchmark, scorer: Scorer, *, chunk: int = 512) -> stats.EvalResult:
    """Accuracies and brittleness over all cases, per group and as the mean over groups.

    original_accuracy   s(c) > s(n); chance 1/2
    augmented_accuracy  s(c) > s(n) and s(p) > s(n); chance 1/3
    brittleness         s(n) between the two others; chance 1/3, and less is better
    mean_score_*        the mean of s(c), s(n) and s(p), with a normal interval

    `details` counts the cases of each of ORDERS. `chunk` cases are embedded at a time.

    Raises:
      DataError: a case without one image, two captions and a caption in meta["positive"].
    """
    _check(benchmark)
    cases = [
        dataclasses.replace(case, captions=(*case.captions, case.meta["positive"]))
        for case in benchmark.cases
    ]
    parts = [
        choice.score_cases(cases[start : start + chunk], scorer)[0]
        for start in range(0, len(cases), chunk)
    ]
    scores = stats.require_finite(np.concatenate(parts), benchmark.name)
    order = orders(scores)
    augmented, brittle = order[:, 0], order[:, 1] | order[:, 2]
    original, original_tie = scores[:, 0] > scores[:, 1], scores[:, 0] == scores[:, 1]
    rows = [
        {
            "id": case.id,
            "group": case.group,
            "captions": list(case.captions),
            "positives": [2],  # indices of the captions that are correct beside the first
            "scores": scores[n].tolist(),
            "correct": bool(augmented[n]),
            "original": bool(original[n]),
            "brittle": bool(brittle[n]),
            "tie": bool(order[n, 4]),
        }
        for n, case in enumerate(cases)
    ]
    metrics, groups = {}, [case.group for case in cases]
    clusters = stats.images_of(cases)
    for name, credit, ties in (
        ("augmented_accuracy", augmented, order[:, 4]),
        ("original_accuracy", original, original_tie),
        ("brittleness", brittle, order[:, 4]),
    ):
        chance = np.full(len(cases), CHANCE[name])
        metrics[name] = stats.proportion(credit, CHANCE[name], ties, clusters)
        metrics |= stats.per_group(name, groups, credit, chance, ties, clusters)
    for k, name in enumerate(("correct", "negative", "positive")):
        metrics[f"mean_score_{name}"] = stats.mean(scores[:, k], unit="score")
    counts = dict(zip(ORDERS, order.sum(axis=0).tolist(), strict=True))
    return stats.EvalResult(metrics, rows, {"orders": counts})


def _check(benchmark: Benchmark) -> None:
    if not benchmark.cases:
        raise DataError(f"benchmark {benchmark.name!r} has no cases")
    for case in benchmark.cases:
        positive = case.meta.get("positive")
        if len(case.images) != 1 or len(case.captions) != 2 or not isinstance(positive, str):
            raise DataError(
                f"the triplet protocol needs one image, two captions and a hard positive, "
                f"meta['positive'], per case; case {case.id!r} of {benchmark.name!r} has "
                f"{len(case.images)}, {len(case.captions)} and {positive!r}"
            )
