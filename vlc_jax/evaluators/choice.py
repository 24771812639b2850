"""Multiple choice: accuracy at giving the correct one of an image's k captions the highest score.

The protocol of ARO, REPLACE, SWAP, SugarCrepe, CREPE and COCO-Order; today's readers are their
miniatures in the embedded world.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from input_pipeline.benchmarks import Benchmark, Case
from input_pipeline.record import DataError
from vlc_jax import errors
from vlc_jax.evaluators import stats
from vlc_jax.evaluators.scorer import Scorer, embed_texts_once

TIES = ("strict", "first_index", "half")


def credit(
    scores: Float[np.ndarray, "cases options"],
    mask: Bool[np.ndarray, "cases options"],
    tie: str = "strict",
) -> tuple[Float[np.ndarray, "cases"], Bool[np.ndarray, "cases"]]:
    """Credit per case for option 0, and whether it shares the highest score with a wrong option.

    `mask` is False on padding. Ties: "strict" gives nothing (the correct caption must beat every
    other), "first_index" gives 1 as an argmax over captions in this order does (a constant scorer
    then reaches 100 %: for comparison with published numbers only), "half" shares the credit
    evenly among the tied options, so that a constant scorer lands on chance.
    """
    wrong = np.where(mask[:, 1:], scores[:, 1:], -np.inf)
    best = wrong.max(axis=1)
    won, tied = scores[:, 0] > best, scores[:, 0] == best
    if tie == "first_index":
        return (won | tied).astype(np.float64), tied
    if tie == "half":
        num_tied = 1 + (wrong == scores[:, :1]).sum(axis=1)
        return won + tied / num_tied, tied
    return won.astype(np.float64), tied


def evaluate(
    benchmark: Benchmark, scorer: Scorer, *, tie: str = "strict", chunk: int = 512
) -> stats.EvalResult:
    """Accuracy over all cases, per group and as the mean over groups; chance is the mean of 1/k.

    Cases may have different numbers of captions, and share an image (`stats.images_of`). `chunk`
    cases are embedded at a time; the result does not depend on it.

    Raises:
      UsageError: an unknown tie policy. DataError: a case without an image and two captions.
    """
    if tie not in TIES:
        raise errors.UsageError(f"tie must be one of {TIES}; got {tie!r}")
    _check(benchmark)
    rows, counts = [], np.array([len(case.captions) for case in benchmark.cases])
    right, tied = np.zeros(len(counts)), np.zeros(len(counts), bool)
    for start in range(0, len(counts), chunk):
        cases = benchmark.cases[start : start + chunk]
        scores, mask = score_cases(cases, scorer)
        stats.require_finite(scores[mask], benchmark.name)
        part = slice(start, start + len(cases))
        right[part], tied[part] = credit(scores, mask, tie)
        rows += [
            {
                "id": case.id,
                "group": case.group,
                "captions": list(case.captions),
                "scores": [float(score) for score in scores[i, mask[i]]],
                "correct": bool(right[start + i] == 1),
                "tie": bool(tied[start + i]),
            }
            for i, case in enumerate(cases)
        ]
    chance, clusters = 1 / counts, stats.images_of(benchmark.cases)
    groups = [case.group for case in benchmark.cases]
    overall = stats.proportion(right, float(chance.mean()), tied, clusters)
    by_group = stats.per_group("accuracy", groups, right, chance, tied, clusters)
    metrics = {"accuracy": overall, **by_group}
    return stats.EvalResult(metrics, rows, {"tie": tie, "options": _span(counts)})


def score_cases(cases: Sequence[Case], scorer: Scorer) -> tuple[np.ndarray, np.ndarray]:
    """Scores (cases, options) of each image with its own captions, and the mask of real options."""
    options = max(len(case.captions) for case in cases)
    mask = np.array([[k < len(case.captions) for k in range(options)] for case in cases])
    # Padded with the case's first caption, which is embedded anyway.
    padded = [
        (*case.captions, *[case.captions[0]] * (options - len(case.captions))) for case in cases
    ]
    images = scorer.embed_images([case.images[0] for case in cases])
    texts = embed_texts_once(scorer, [caption for row in padded for caption in row])
    scores = np.array(scorer.score_options(images, texts))
    # A caption that occurs twice must tie with itself, whatever the order of a sum did to it.
    first = np.array([[row.index(caption) for caption in row] for row in padded])
    return np.take_along_axis(scores, first, axis=1), mask


def _check(benchmark: Benchmark) -> None:
    if not benchmark.cases:
        raise DataError(f"benchmark {benchmark.name!r} has no cases")
    for case in benchmark.cases:
        if len(case.images) != 1 or len(case.captions) < 2:
            raise DataError(
                f"the choice protocol needs one image and at least two captions per case; case "
                f"{case.id!r} of {benchmark.name!r} has {len(case.images)} and {len(case.captions)}"
            )


def _span(counts: np.ndarray) -> str:
    """Number of captions per case: "2", or "2-5" where it differs."""
    low, high = int(counts.min()), int(counts.max())
    return str(low) if low == high else f"{low}-{high}"
