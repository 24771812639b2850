"""Pairs: two images and two captions, each caption correct for one image.

Winoground-style sets (text, image and group score: Thrush et al. 2022), What'sUp's two-way
protocol (individual and pair accuracy), MMVP-VLM (image score), the relaxed pairs of "On Erroneous
Agreements of CLIP Image Embeddings" (2024, section 5.2) and GroupMatch of Test-Time Matching (ICLR
2026).
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Float

from vlc_jax.evaluators import groups, image_pairs, stats, ties
from vlc_jax.evaluators.cases import check_cases, chunked, image_name, row
from vlc_jax.evaluators.scorer import Scorer, embed_texts_once, take
from vlc_jax.input_pipeline.case import Benchmark, Case

# Indices of the four scores in the order (image 0, caption 0), (0, 1), (1, 0), (1, 1).
COMPARISONS: dict[str, tuple[tuple[int, int], ...]] = {  # metric -> (above, below), all must hold
    "pair_accuracy": ((0, 1), (3, 2)),
    "image_score": ((0, 2), (3, 1)),
    "group_score": ((0, 1), (3, 2), (0, 2), (3, 1)),
}
CHANCE = {"pair_accuracy": 1 / 4, "image_score": 1 / 4, "group_score": 1 / 6}
INDIVIDUAL = {  # metric -> the comparison of each of the two queries
    "individual_accuracy": ((0, 1), (3, 2)),
    "image_individual_accuracy": ((0, 2), (3, 1)),
}


def evaluate(
    benchmark: Benchmark,
    scorer: Scorer,
    *,
    tie: str = "strict",
    chunk: int = 256,
    geometry: bool = False,
    second_features: image_pairs.StoredFeatures | None = None,
) -> stats.EvalResult:
    """Individual, pair, text, image and group accuracy, of all cases, per group and as means.

    individual_accuracy        an image prefers its caption; two decisions per case, chance 1/2
    pair_accuracy              both images do (What'sUp); chance 1/4
    text_score                 pair_accuracy under its Winoground name
    image_individual_accuracy  a caption prefers its image; chance 1/2
    image_score                both captions do; chance 1/4
    group_score                text_score and image_score; chance 1/6 (4 of the 24 orders of four
                               scores)
    group_match                s00 + s11 > s01 + s10; chance 1/2. Also the additive form of the
                               relaxed pair
    relaxed_pair               s00 / (s00 + s01) > s10 / (s10 + s11); chance 1/2. Omitted if any row
                               of scores has a sum of 0 or less

    geometry: also cosines of the two images of each case, their effect (`image_pairs`), and
      agreeing_accuracy, pair_accuracy of the pairs whose images have a cosine above .95.
    second_features: another model's features of the images, for erroneous agreements; in configs
      the path of a file X.npy, with the names of the rows' images beside it in X.jsonl, as
      `vlc_jax.tools.embed` writes them from the images that an evaluation keeps.

    tie: see `ties`. MMVP's code resolves a tie in favour of the second image: "last_index".

    Raises:
      UsageError: an unknown tie policy. DataError: a case without exactly two images and two
        captions, or an image without stored features.
    """
    ties.check(tie)
    check_cases(
        benchmark,
        "the pairs protocol needs two images and two captions per case",
        lambda case: len(case.images) == len(case.captions) == 2,
    )
    other = image_pairs.other_features(second_features, benchmark) if second_features else None
    scored = [embed_and_score(part, scorer) for part in chunked(benchmark.cases, chunk)]
    scores = stats.require_finite(np.concatenate([part[1] for part in scored]), benchmark.name)
    decisions = _decisions(scores, benchmark, tie)
    metrics, rows = dict[str, stats.Estimate](), _rows(benchmark, scores)
    for name, decided in decisions.items():
        metrics |= groups.metrics(name, decided, benchmark)
    metrics["text_score"] = metrics["pair_accuracy"]
    details: dict[str, object] = {"tie": tie}
    if geometry or second_features:
        pooled = np.concatenate([part[0] for part in scored])
        stats.require_finite(pooled, benchmark.name)
        pair_metrics, cosines = image_pairs.metrics(pooled, scores, other, benchmark)
        metrics |= pair_metrics
        if alike := [*map(int, np.flatnonzero(cosines > image_pairs.AGREEMENT))]:
            metrics["agreeing_accuracy"] = decisions["pair_accuracy"].take(alike).proportion()
        rows = [row | {"image_cosine": float(c)} for row, c in zip(rows, cosines, strict=True)]
        details |= {"agreement": image_pairs.AGREEMENT, "difference": image_pairs.DIFFERENCE}
    return stats.EvalResult(metrics, rows, details, decisions)


def _decisions(
    scores: Float[np.ndarray, "cases 2 2"], benchmark: Benchmark, tie: str
) -> dict[str, groups.Decisions]:
    flat, labels = scores.reshape(-1, 4).astype(np.float64), [c.group for c in benchmark.cases]
    clusters, decisions = stats.images_of(benchmark.cases), dict[str, groups.Decisions]()
    for name, comparisons in COMPARISONS.items():
        credit = ties.credit(flat, _rule(comparisons), tie)
        chance = np.full(len(flat), CHANCE[name])
        tied = _tied(flat, comparisons)
        decisions[name] = groups.Decisions(labels, credit, chance, tied, clusters)
    twice, cases = [g for g in labels for _ in (0, 1)], np.repeat(clusters, 2)
    for name, comparisons in INDIVIDUAL.items():
        # each query alone: ties among the other scores do not matter; in the order of the indices,
        # in which the second query's correct option comes second
        query_credits = [
            ties.credit(
                flat[:, sorted(pair)], _rule(((0, 1) if pair[0] < pair[1] else (1, 0),)), tie
            )
            for pair in comparisons
        ]
        tied = np.stack([_tied(flat, (pair,)) for pair in comparisons], axis=1)
        credit, chance = np.stack(query_credits, axis=1), np.full(2 * len(flat), 1 / 2)
        decisions[name] = groups.Decisions(twice, credit.ravel(), chance, tied.ravel(), cases)
    for name, sides in _relaxed(flat).items():
        credit = ties.credit(sides, _rule(((0, 1),)), tie)
        chance, tied = np.full(len(flat), 1 / 2), sides[:, 0] == sides[:, 1]
        decisions[name] = groups.Decisions(labels, credit, chance, tied, clusters)
    return decisions


def _rule(comparisons: Sequence[tuple[int, int]]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda s: np.all([s[:, above] > s[:, below] for above, below in comparisons], axis=0)


def _tied(
    flat: Float[np.ndarray, "cases 4"], comparisons: Sequence[tuple[int, int]]
) -> Bool[np.ndarray, " cases"]:
    return np.any([flat[:, above] == flat[:, below] for above, below in comparisons], axis=0)


def _relaxed(flat: Float[np.ndarray, "cases 4"]) -> dict[str, Float[np.ndarray, "cases 2"]]:
    """Both sides of the relaxed comparisons; a case is right if the first is larger."""
    s00, s01, s10, s11 = flat.T
    sides = {"group_match": np.stack([s00 + s11, s01 + s10], axis=1)}
    first, second = s00 + s01, s10 + s11
    if (first > 0).all() and (second > 0).all():
        sides["relaxed_pair"] = np.stack([s00 / first, s10 / second], axis=1)
    return sides


def _rows(benchmark: Benchmark, scores: Float[np.ndarray, "cases 2 2"]) -> list[dict[str, object]]:
    flat = scores.reshape(-1, 4)
    met = {name: _rule(comparisons)(flat) for name, comparisons in COMPARISONS.items()}
    ties_anywhere = _tied(flat, COMPARISONS["group_score"])
    return [
        row(
            case,
            case.captions,
            scores[n].tolist(),  # one row per image
            met["pair_accuracy"][n],
            ties_anywhere[n],
            image=image_name(case),
            individual=[bool(flat[n, 0] > flat[n, 1]), bool(flat[n, 3] > flat[n, 2])],
            image_score=bool(met["image_score"][n]),
        )
        for n, case in enumerate(benchmark.cases)
    ]


def embed_and_score(
    cases: Sequence[Case], scorer: Scorer
) -> tuple[Float[np.ndarray, "images embed"], Float[np.ndarray, "cases 2 2"]]:
    """Pooled features of all images; scores of both images with both captions."""
    images = scorer.embed_images([image for case in cases for image in case.images])
    texts = embed_texts_once(scorer, [caption for case in cases for caption in case.captions])
    # images 2n and 2n + 1 are both scored with captions 2n and 2n + 1
    rows = np.arange(2 * len(cases)).reshape(-1, 1, 2).repeat(2, axis=1).ravel()
    scores = np.array(scorer.score_options(images, take(texts, rows))).reshape(-1, 2, 2)
    same = np.array([case.captions[0] == case.captions[1] for case in cases])
    # equal strings must tie despite rounding
    scores[same, :, 1] = scores[same, :, 0]
    return images.pooled, scores
