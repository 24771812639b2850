"""Pairs: matching two images with two captions, each caption correct for one image.

Winoground and its kind (text, image and group score) and What'sUp's two-way protocol (individual
and pair accuracy); all comparisons strict, so a tie is a mistake.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from input_pipeline.benchmarks import Benchmark, Case
from input_pipeline.record import DataError
from vlc_jax.evaluators import stats
from vlc_jax.evaluators.scorer import Scorer, embed_texts_once, take


def decisions(
    scores: Float[np.ndarray, "cases 2 2"],
) -> tuple[Bool[np.ndarray, "cases 2"], Bool[np.ndarray, "cases 2"]]:
    """Correctness of each image's choice of caption and of each caption's choice of image.

    `scores[n, k, l]` is image k with caption l of case n; k = l is right.
    """
    correct = np.stack([scores[:, 0, 0], scores[:, 1, 1]], axis=1)
    other_caption = np.stack([scores[:, 0, 1], scores[:, 1, 0]], axis=1)
    return correct > other_caption, correct > other_caption[:, ::-1]


def evaluate(benchmark: Benchmark, scorer: Scorer, *, chunk: int = 256) -> stats.EvalResult:
    """Individual, pair, text, image and group accuracy.

    individual_accuracy  an image prefers its own caption; two decisions a case, chance 1/2
    pair_accuracy        both images do (What'sUp); chance 1/4
    text_score           the same under its Winoground name
    image_score          both captions prefer their own image; chance 1/4
    group_score          both of the above; chance 1/6 (4 of the 24 orders of four scores)

    Individual and pair accuracy are also given per group and as the mean over groups.

    Raises:
      DataError: a case without exactly two images and two captions.
    """
    _check(benchmark)
    parts = [
        score_cases(benchmark.cases[start : start + chunk], scorer)
        for start in range(0, len(benchmark.cases), chunk)
    ]
    scores = stats.require_finite(np.concatenate(parts), benchmark.name)
    text, image = decisions(scores)
    text_tie = np.stack([scores[:, k, 0] == scores[:, k, 1] for k in (0, 1)], axis=1)
    image_tie = np.stack([scores[:, 0, c] == scores[:, 1, c] for c in (0, 1)], axis=1)
    pair, pair_tie = text.all(axis=1), text_tie.any(axis=1)
    both, both_tie = pair & image.all(axis=1), pair_tie | image_tie.any(axis=1)
    groups = [case.group for case in benchmark.cases]
    twice, cases = [g for g in groups for _ in (0, 1)], np.repeat(np.arange(len(groups)), 2)
    half, quarter = np.full(2 * len(groups), 1 / 2), np.full(len(groups), 1 / 4)
    pair_accuracy = stats.proportion(pair, 1 / 4, pair_tie)
    metrics = {
        "pair_accuracy": pair_accuracy,
        "individual_accuracy": stats.proportion(text.ravel(), 1 / 2, text_tie.ravel(), cases),
        "text_score": pair_accuracy,
        "image_score": stats.proportion(image.all(axis=1), 1 / 4, image_tie.any(axis=1)),
        "group_score": stats.proportion(both, 1 / 6, both_tie),
        **stats.per_group("pair_accuracy", groups, pair, quarter, pair_tie),
        **stats.per_group(
            "individual_accuracy", twice, text.ravel(), half, text_tie.ravel(), cases
        ),
    }
    rows = [
        {
            "id": case.id,
            "group": case.group,
            "captions": list(case.captions),
            "scores": scores[n].tolist(),  # one row per image
            "correct": bool(pair[n]),
            "individual": text[n].tolist(),
            "image_score": bool(image[n].all()),
            "tie": bool(both_tie[n]),
        }
        for n, case in enumerate(benchmark.cases)
    ]
    return stats.EvalResult(metrics, rows)


def score_cases(cases: Sequence[Case], scorer: Scorer) -> Float[np.ndarray, "cases 2 2"]:
    """Scores of both images with both captions of each case."""
    images = scorer.embed_images([image for case in cases for image in case.images])
    texts = embed_texts_once(scorer, [caption for case in cases for caption in case.captions])
    # Image 2n and image 2n + 1 both meet the captions 2n and 2n + 1.
    rows = np.arange(2 * len(cases)).reshape(-1, 1, 2).repeat(2, axis=1).ravel()
    scores = np.array(scorer.score_options(images, take(texts, rows))).reshape(-1, 2, 2)
    same = np.array([case.captions[0] == case.captions[1] for case in cases])
    scores[same, :, 1] = scores[same, :, 0]  # equal strings tie, whatever rounding says
    return scores


def _check(benchmark: Benchmark) -> None:
    if not benchmark.cases:
        raise DataError(f"benchmark {benchmark.name!r} has no cases")
    for case in benchmark.cases:
        if len(case.images) != 2 or len(case.captions) != 2:
            raise DataError(
                f"the pairs protocol needs two images and two captions per case; case {case.id!r} "
                f"of {benchmark.name!r} has {len(case.images)} and {len(case.captions)}"
            )
