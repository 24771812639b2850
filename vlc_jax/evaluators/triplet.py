"""Hard-positive triplets: an image with a caption c, a hard negative n and a hard positive p.

Original and augmented accuracy and brittleness (Kamath et al., "The Hard Positive Truth about
Vision-Language Compositionality", ECCV 2024): a model may prefer c to n because it rejects any
change of c; then it rejects p, too. SugarCrepe++ (Dumpala et al., 2024) has the same metric, and
another one without the image.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from vlc_jax.evaluators import choice, groups, stats, ties
from vlc_jax.evaluators.cases import check_cases, chunked, image_name, row
from vlc_jax.evaluators.scorer import Scorer, embed_texts_once
from vlc_jax.evaluators.vectors import cosine
from vlc_jax.input_pipeline.case import Benchmark, Case

CHANCE = {
    "augmented_accuracy": 1 / 3,
    "original_accuracy": 1 / 2,
    "ordered_accuracy": 1 / 6,
    "brittleness": 1 / 3,
    "text_accuracy": 1 / 3,
}
ORDERS = (
    "both_above_negative",  # augmented accuracy
    "correct_above_negative_above_positive",  # brittle
    "positive_above_negative_above_correct",  # brittle
    "negative_above_both",
    "ties",  # the negative ties with another caption
)
# Rules for scores in the order c, p, n: an argmax with the tie policy first_index then prefers the
# correct captions.
RULES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "augmented_accuracy": lambda s: (s[:, 0] > s[:, 2]) & (s[:, 1] > s[:, 2]),
    "brittleness": lambda s: (
        ((s[:, 0] > s[:, 2]) & (s[:, 2] > s[:, 1])) | ((s[:, 1] > s[:, 2]) & (s[:, 2] > s[:, 0]))
    ),
    "ordered_accuracy": lambda s: (s[:, 1] > s[:, 0]) & (s[:, 0] > s[:, 2]),
}


def orders(scores: Float[np.ndarray, "cases 3"]) -> Bool[np.ndarray, "cases orders"]:
    """One-hot order of each case's scores of c, n, p, in the columns of ORDERS."""
    correct, negative, positive = scores.T
    tied = (correct == negative) | (positive == negative)
    c, p = correct > negative, positive > negative
    strict = [order & ~tied for order in (c & p, c & ~p, p & ~c, ~c & ~p)]
    return np.stack([*strict, tied], axis=1)


def evaluate(
    benchmark: Benchmark, scorer: Scorer, *, tie: str = "strict", chunk: int = 512
) -> stats.EvalResult:
    """Accuracies and brittleness over all cases, per group and as means over groups.

    original_accuracy   s(c) > s(n); chance 1/2
    augmented_accuracy  s(c) > s(n) and s(p) > s(n); chance 1/3 (SugarCrepe++'s ITT)
    ordered_accuracy    s(p) > s(c) > s(n); chance 1/6. For sets where p is more specific than c,
                        and n adds an error to c (half-truths: Kargi et al. 2026)
    brittleness         s(n) between the two others; chance 1/3; lower is better
    text_accuracy       without the image: the cosine of pooled text embeddings of c and p exceeds
                        those of c and n and of p and n; chance 1/3 (SugarCrepe++'s TOT)
    mean_score_*        mean of s(c), s(n) and s(p), with a normal interval; also per group and as
                        means over groups

    Without text_accuracy for a model that has only scores (`Scorer.embeds`).

    `details` counts the cases of each of ORDERS. `chunk` cases are embedded at a time; tie: see
    `ties`.

    Raises:
      UsageError: an unknown tie policy.
      DataError: a case without one image, two captions and a caption in meta["positive"].
    """
    ties.check(tie)
    check_cases(
        benchmark,
        "the triplet protocol needs one image, two captions and a hard positive, meta['positive'], "
        "per case",
        lambda case: (
            len(case.images) == 1
            and len(case.captions) == 2
            and isinstance(case.meta.get("positive"), str)
        ),
    )
    cases = [
        dataclasses.replace(case, captions=(*case.captions, case.meta["positive"]))
        for case in benchmark.cases
    ]
    scores = np.concatenate([choice.score_cases(part, scorer) for part in chunked(cases, chunk)])
    stats.require_finite(scores, benchmark.name)
    cosines = None
    if scorer.embeds:
        cosines = np.concatenate([_text_cosines(part, scorer) for part in chunked(cases, chunk)])
    labels = [case.group for case in cases]
    credits = _credits(scores, cosines, tie)
    metrics: dict[str, stats.Estimate] = {}
    decisions: dict[str, groups.Decisions] = {}
    for name, (credit, tied) in credits.items():
        chance = np.full(len(cases), CHANCE[name])
        decisions[name] = groups.Decisions(labels, credit, chance, tied, stats.images_of(cases))
        metrics |= groups.metrics(name, decisions[name], benchmark)
    for k, name in enumerate(("correct", "negative", "positive")):
        metrics |= groups.mean_scores(f"mean_score_{name}", scores[:, k], labels, benchmark)
    rows = _rows(cases, scores, credits["text_accuracy"][0] == 1 if scorer.embeds else None)
    counts = dict(zip(ORDERS, orders(scores).sum(axis=0).tolist(), strict=True))
    return stats.EvalResult(metrics, rows, {"tie": tie, "orders": counts}, decisions)


def _credits(
    scores: Float[np.ndarray, "cases 3"], cosines: Float[np.ndarray, "cases 3"] | None, tie: str
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Metric -> (credit, tie) of each case."""
    tied = orders(scores)[:, 4]
    by_metric = {
        name: (ties.credit(scores[:, [0, 2, 1]], rule, tie), tied) for name, rule in RULES.items()
    }
    ordered, _ = by_metric["ordered_accuracy"]
    by_metric["ordered_accuracy"] = (ordered, tied | (scores[:, 0] == scores[:, 2]))
    # c and n alone: a tie with p does not matter here
    pair = scores[:, [0, 1]]
    original = ties.credit(pair, lambda s: s[:, 0] > s[:, 1], tie)
    by_metric["original_accuracy"] = (original, pair[:, 0] == pair[:, 1])
    if cosines is not None:
        nearest = ties.credit(cosines, lambda s: (s[:, 0] > s[:, 1]) & (s[:, 0] > s[:, 2]), tie)
        by_metric["text_accuracy"] = (nearest, cosines[:, 0] == cosines[:, 1:].max(axis=1))
    return by_metric


def _rows(
    cases: Sequence[Case],
    scores: Float[np.ndarray, "cases 3"],
    is_nearest: Bool[np.ndarray, " cases"] | None,
) -> list[dict[str, Any]]:
    """Rows of the result; is_nearest: text_accuracy of each case."""
    order = orders(scores)
    return [
        row(
            case,
            case.captions,
            scores[n].tolist(),
            order[n, 0],
            order[n, 4],
            image=image_name(case),
            # indices of further correct captions
            positives=[2],
            original=bool(scores[n, 0] > scores[n, 1]),
            brittle=bool(order[n, 1] | order[n, 2]),
            **({} if is_nearest is None else {"text_only": bool(is_nearest[n])}),
        )
        for n, case in enumerate(cases)
    ]


def _text_cosines(cases: Sequence[Case], scorer: Scorer) -> Float[np.ndarray, "cases 3"]:
    """Cosines of c and p, c and n, p and n; exactly equal for equal texts."""
    captions = [caption for case in cases for caption in case.captions]
    pooled = embed_texts_once(scorer, captions).pooled
    c, n, p = pooled.reshape(len(cases), 3, -1).transpose(1, 0, 2)
    return np.stack([cosine(c, p), cosine(c, n), cosine(p, n)], axis=1)
