"""Multiple choice: accuracy of ranking the correct one of k options first.

Options are captions of one image (the protocol of ARO, SugarCrepe, CREPE, VL-CheckList, COCO-Order,
What'sUp, NegBench), or images of one caption (SVO-Probes, ImageCoDe; one half of SPEC).
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from vlc_jax.evaluators import groups, image_pairs, stats, ties, token_scores
from vlc_jax.evaluators.cases import check_cases, chunked, image_name, row
from vlc_jax.evaluators.scorer import Scorer, embed_texts_once
from vlc_jax.input_pipeline.case import Benchmark, Case

# K of the recalls, as in CREPE
KS = (3, 5, 10)
# with more options than these, recalls and ranks are reported, too
MANY = 5


def evaluate(
    benchmark: Benchmark,
    scorer: Scorer,
    *,
    tie: str = "strict",
    chunk: int = 512,
    tokens: bool = False,
    geometry: bool = False,
) -> stats.EvalResult:
    """Accuracy over all cases, per group, as means over groups, and of groups as units.

    accuracy        option 0 has the highest score; chance is the mean of 1/k
    recall_at_K     with more than five options: option 0 is among the K best
    mean_rank       with more than five options; the best rank is 1. Also median_rank
    KIND_accuracy   all cases of a group of that kind are right (`Benchmark.together`)

    Cases may have different numbers of options, and share an image (`stats.images_of`). `chunk`
    cases are embedded at a time; the result does not depend on it.

    tokens: also the accuracy of cosines between unpooled tokens (`token_scores`).
    geometry: also cosines of the images of two cases that are a pair (`image_pairs`).

    Raises:
      UsageError: an unknown tie policy, `tokens` with a model without any, or `geometry` without
        pairs. DataError: a case without an image and two captions, or a caption and two images.
    """
    ties.check(tie)
    check_cases(
        benchmark,
        "the choice protocol needs one image and at least two captions per case, or one caption "
        "and at least two images",
        lambda case: min(_numbers(case)) == 1 < max(_numbers(case)),
    )
    if tokens:
        token_scores.check(benchmark, scorer)
    cases, counts = benchmark.cases, np.array([_options(case) for case in benchmark.cases])
    mask = np.arange(counts.max()) < counts[:, None]
    parts = [score_cases(part, scorer, counts.max()) for part in chunked(cases, chunk)]
    scores = np.concatenate(parts)
    stats.require_finite(scores[mask], benchmark.name)
    # The correct option is the first; padding is below all others.
    standing = ties.standing(np.where(mask, scores, -np.inf), np.zeros(len(cases), int))
    right, tied = standing.among_best(1, tie), standing.tied(1)
    labels = [case.group for case in cases]
    decisions = groups.Decisions(labels, right, 1 / counts, tied, stats.images_of(cases))
    metrics = groups.metrics("accuracy", decisions, benchmark)
    metrics |= groups.together(decisions, benchmark)
    if counts.max() > MANY:
        metrics |= _ranks(benchmark, standing, counts, tie)
    if tokens:
        metrics |= token_scores.metrics(benchmark, scorer, tie)
    if geometry:
        metrics |= image_pairs.choice_metrics(benchmark, scorer, chunk)
    rows = [
        _row(case, scores[n, : counts[n]].tolist(), right[n] == 1, tied[n])
        for n, case in enumerate(cases)
    ]
    details = {"tie": tie, "options": _span(counts)}
    return stats.EvalResult(metrics, rows, details, {"accuracy": decisions})


def _ranks(
    benchmark: Benchmark, standing: ties.Standing, counts: Int[np.ndarray, " cases"], tie: str
) -> dict[str, stats.Estimate]:
    """Recalls and ranks of the correct option among `counts` options."""
    labels, clusters = [case.group for case in benchmark.cases], stats.images_of(benchmark.cases)
    metrics: dict[str, stats.Estimate] = {}
    for k in KS:
        if k < counts.max():
            earned, chance = standing.among_best(k, tie), np.minimum(k / counts, 1)
            recalls = groups.Decisions(labels, earned, chance, standing.tied(k), clusters)
            metrics |= groups.metrics(f"recall_at_{k}", recalls, benchmark)
    ranks, chance = standing.rank(tie), float((1 + counts).mean() / 2)
    metrics["mean_rank"] = stats.bootstrapped(ranks, "mean", chance, unit="rank")
    metrics["median_rank"] = stats.bootstrapped(ranks, "median", unit="rank")
    return metrics


def score_cases(
    cases: Sequence[Case], scorer: Scorer, options: int | np.integer = 0
) -> Float[np.ndarray, "cases options"]:
    """Scores of each image with its captions, or of each caption with its images.

    options: columns, if no case has more options. Those after a case's last one are padding without
      meaning.
    """
    scores = np.zeros((len(cases), max([options, *map(_options, cases)])))
    for score, has_many in ((_score_captions, False), (_score_images, True)):
        rows = [n for n, case in enumerate(cases) if (len(case.images) > 1) == has_many]
        if rows:
            part = score([cases[n] for n in rows], scorer)
            scores[rows, : part.shape[1]] = part
    return scores


def _score_captions(cases: Sequence[Case], scorer: Scorer) -> np.ndarray:
    options = max(len(case.captions) for case in cases)
    # padded with the case's first caption, which is embedded anyway
    padded = [
        (*case.captions, *[case.captions[0]] * (options - len(case.captions))) for case in cases
    ]
    images = scorer.embed_images([case.images[0] for case in cases])
    texts = embed_texts_once(scorer, [caption for row in padded for caption in row])
    scores = np.array(scorer.score_options(images, texts))
    # A caption that occurs twice must tie with itself, whatever the rounding of its two rows.
    first = np.array([[row.index(caption) for caption in row] for row in padded])
    return np.take_along_axis(scores, first, axis=1)


def _score_images(cases: Sequence[Case], scorer: Scorer) -> np.ndarray:
    counts = [len(case.images) for case in cases]
    images = scorer.embed_images([image for case in cases for image in case.images])
    captions = [case.captions[0] for case in cases for _ in case.images]
    flat = np.array(scorer.score_options(images, embed_texts_once(scorer, captions)))[:, 0]
    scores = np.zeros((len(cases), max(counts)))
    scores[np.arange(max(counts)) < np.array(counts)[:, None]] = flat
    return scores


def _row(case: Case, scores: list[float], correct: object, tie: object) -> dict[str, object]:
    # with several images one list of one score per image
    by_image = [[score] for score in scores] if len(case.images) > 1 else scores
    return row(case, case.captions, by_image, correct, tie, image=image_name(case))


def _numbers(case: Case) -> tuple[int, int]:
    return len(case.images), len(case.captions)


def _options(case: Case) -> int:
    return max(_numbers(case))


def _span(counts: np.ndarray) -> str:
    """Number of options per case: "2", or "2-5" where it differs."""
    low, high = int(counts.min()), int(counts.max())
    return str(low) if low == high else f"{low}-{high}"
