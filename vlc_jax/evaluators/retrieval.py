"""Image-text retrieval among all cases, in both directions: recall at K and ranks.

Recall at K is the share of queries with a correct candidate among the K best. With several captions
per image, any of them is correct for the image, and each caption is a query. By default ties are
strict: a wrong candidate with the same score is ranked before the correct one.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from vlc_jax import errors
from vlc_jax.evaluators import stats, ties
from vlc_jax.evaluators.cases import WRONG_PER_ROW, check_cases, row
from vlc_jax.evaluators.scorer import Scorer, take
from vlc_jax.input_pipeline.case import Benchmark
from vlc_jax.input_pipeline.record import DataError

DUPLICATES = ("wrong", "correct")
KS = (1, 5, 10)
# scores in memory at a time: 16 MB in float32
CELLS = 2**22


class Direction(NamedTuple):
    """One direction of retrieval.

    standing: of the best correct candidate of each query.   correct: number of correct candidates.
    """

    standing: ties.Standing
    correct: Int[np.ndarray, " queries"]


class Ranking(NamedTuple):
    """Both directions; per image its best correct and best wrong captions, as (text, score)."""

    image_to_text: Direction
    text_to_image: Direction
    best_texts: list[list[tuple[int, float]]]


Block = tuple[slice, Float[np.ndarray, "rows texts"], Bool[np.ndarray, "rows texts"]]


def rank(blocks: Callable[[], Iterator[Block]], images: int, texts: int) -> Ranking:
    """Ranking from blocks of score rows (slice of images, scores, mask of correct texts).

    The blocks are read twice and must be identical both times: the score of a text's correct image,
    which may be in any block, must be known before the images that beat it can be counted.
    """
    standings = []
    number, best = np.zeros(texts, int), np.full(texts, -np.inf)
    first, last = np.zeros(texts, int), np.zeros(texts, int)  # correct images with that score
    best_texts = []
    for rows, scores, correct in blocks():
        right, wrong = np.where(correct, scores, -np.inf), np.where(correct, -np.inf, scores)
        standings.append((*_standing(right, wrong), correct.sum(axis=1)))
        number += correct.sum(axis=0)
        highest = right.max(axis=0)
        better, as_good = highest > best, (highest >= best) & correct.any(axis=0)
        first[better] = rows.start + right.argmax(axis=0)[better]
        last[as_good] = rows.stop - 1 - right[::-1].argmax(axis=0)[as_good]
        best = np.maximum(best, highest)
        best_texts += [_best_texts(*pair) for pair in zip(right, wrong, strict=True)]
    above, equal, before, after, tied = (np.zeros(texts, int) for _ in range(5))
    for rows, scores, correct in blocks():
        above += (~correct & (scores > best)).sum(axis=0)
        ties_with = ~correct & (scores == best)
        equal += ties_with.sum(axis=0)
        index = np.arange(rows.start, rows.stop)[:, None]
        before += (ties_with & (index < first)).sum(axis=0)
        after += (ties_with & (index > last)).sum(axis=0)
        tied += (correct & (scores == best)).sum(axis=0)
    *standing, correct = (np.concatenate(parts) for parts in zip(*standings, strict=True))
    return Ranking(
        Direction(ties.Standing(*standing), correct),
        Direction(ties.Standing(above, equal, before, after, tied), number),
        best_texts,
    )


def _standing(right: np.ndarray, wrong: np.ndarray) -> ties.Standing:
    """Standing of images, from scores of correct and of wrong texts; -inf elsewhere."""
    best = right.max(axis=1, keepdims=True)
    equal = wrong == best
    index, last = np.arange(right.shape[1]), right.shape[1] - 1
    before = equal & (index < right.argmax(axis=1)[:, None])
    after = equal & (index > last - right[:, ::-1].argmax(axis=1)[:, None])
    counts = (wrong > best, equal, before, after, right == best)
    return ties.Standing(*(each.sum(axis=1) for each in counts))


def recall_chance(
    correct: Int[np.ndarray, " queries"], candidates: int, k: int
) -> Float[np.ndarray, " queries"]:
    """Probability that a random order has one of `correct` candidates among its first k."""
    missed = np.ones(len(correct))
    for drawn in range(min(k, candidates)):
        # once 0, it stays 0
        missed *= (candidates - correct - drawn) / (candidates - drawn)
    return 1 - missed


def check(*, duplicates: str, tie: str, **others: Any) -> None:
    """Raises UsageError for invalid options of `evaluate`."""
    del others
    if duplicates not in DUPLICATES:
        raise errors.UsageError(f"duplicates must be one of {DUPLICATES}; got {duplicates!r}")
    ties.check(tie)


def evaluate(
    benchmark: Benchmark,
    scorer: Scorer,
    *,
    duplicates: str = "wrong",
    tie: str = "strict",
    cells: int = CELLS,
) -> stats.EvalResult:
    """R@1, R@5, R@10, mean and median rank, image to text and text to image.

    Recall at K needs more than K candidates and is omitted otherwise. Chance of the mean rank is
    that of the best of m in a random order of n, (n + 1) / (m + 1).

    Args:
      duplicates: "wrong" or "correct", for a caption of another image with exactly the same text.
        "wrong" follows the published protocols, where only the pairing counts (and under strict
        ties a shared caption never comes first); "correct" accepts the text. `details` has the
        share of captions that several images have.
      tie: see `ties`.
      cells: scores in memory at a time; the result does not depend on it. Several blocks are scored
        twice.

    Raises:
      UsageError: an unknown `duplicates` or tie policy. DataError: fewer than two cases, a case
        without one image and a caption.
    """
    check(duplicates=duplicates, tie=tie)
    _check(benchmark)
    captions = [caption for case in benchmark.cases for caption in case.captions]
    owner = np.repeat(np.arange(len(benchmark.cases)), [len(c.captions) for c in benchmark.cases])
    shared, correct_rows = _correctness(captions, owner, duplicates)
    images, texts = len(benchmark.cases), len(captions)
    ranking = rank(_blocks(benchmark, scorer, captions, correct_rows, cells), images, texts)
    metrics = {
        **_recalls("image_to_text", ranking.image_to_text, texts, tie, np.arange(images)),
        **_recalls("text_to_image", ranking.text_to_image, images, tie, owner),
        **_mean_ranks("image_to_text", ranking.image_to_text, texts, tie),
        **_mean_ranks("text_to_image", ranking.text_to_image, images, tie),
    }
    details = {
        "images": images,
        "texts": texts,
        "tie": tie,
        "duplicates": duplicates,
        "duplicate_captions": float(shared.mean()),
    }
    return stats.EvalResult(metrics, _rows(benchmark, captions, owner, ranking), details)


def _correctness(
    captions: list[str], owner: np.ndarray, duplicates: str
) -> tuple[np.ndarray, Callable[[slice], np.ndarray]]:
    """Mask of captions that several images share; function: rows of images -> correct texts."""
    text = _text_numbers(captions)
    owners = [set() for _ in range(text.max() + 1)]
    for t, image in zip(text, owner, strict=True):
        owners[t].add(image)
    shared = np.array([len(owners[t]) > 1 for t in text])
    number = int(owner[-1]) + 1

    def correct_rows(rows: slice) -> np.ndarray:
        images = np.arange(number)[rows]
        if duplicates == "wrong":
            return images[:, None] == owner[None, :]
        has = np.zeros((len(images), len(owners)), bool)
        # captions of these images only: the mask has a row per image of the block
        inside = (owner >= images[0]) & (owner <= images[-1])
        has[owner[inside] - images[0], text[inside]] = True
        return has[:, text]

    return shared, correct_rows


def _text_numbers(captions: list[str]) -> np.ndarray:
    """Index of each caption among the distinct ones, in order of first appearance."""
    numbers = {caption: number for number, caption in enumerate(dict.fromkeys(captions))}
    return np.array([numbers[caption] for caption in captions])


def _blocks(
    benchmark: Benchmark,
    scorer: Scorer,
    captions: list[str],
    correct_rows: Callable[[slice], np.ndarray],
    cells: int,
) -> Callable[[], Iterator[Block]]:
    """Score blocks of at most `cells` entries (at least one image); a single one is cached."""
    column, texts = _text_numbers(captions), scorer.embed_texts(list(dict.fromkeys(captions)))
    features = scorer.embed_images([case.images[0] for case in benchmark.cases])
    step, images = max(1, cells // len(captions)), len(benchmark.cases)
    slices = [slice(i, min(i + step, images)) for i in range(0, images, step)]

    def read() -> Iterator[Block]:
        for rows in slices:
            # each distinct text is scored once and copied, so that duplicates tie exactly
            scores = np.asarray(scorer.score(take(features, rows), texts), np.float32)[:, column]
            yield rows, stats.require_finite(scores, benchmark.name), correct_rows(rows)

    if len(slices) > 1:
        return read
    blocks = list(read())
    return lambda: iter(blocks)


def _recalls(
    name: str, direction: Direction, candidates: int, tie: str, clusters: np.ndarray
) -> dict[str, stats.Estimate]:
    metrics = {}
    for k in KS:
        if k < candidates:
            chance = float(recall_chance(direction.correct, candidates, k).mean())
            hits, tied = direction.standing.among_best(k, tie), direction.standing.tied(k)
            metrics[f"{name}_r{k}"] = stats.proportion(hits, chance, tied, clusters)
    return metrics


def _mean_ranks(
    name: str, direction: Direction, candidates: int, tie: str
) -> dict[str, stats.Estimate]:
    ranks = direction.standing.rank(tie)
    chance = float(np.mean((candidates + 1) / (direction.correct + 1)))
    return {
        f"{name}_mean_rank": stats.bootstrapped(ranks, "mean", chance, unit="rank"),
        f"{name}_median_rank": stats.bootstrapped(ranks, "median", unit="rank"),
    }


def _best_texts(right: np.ndarray, wrong: np.ndarray) -> list[tuple[int, float]]:
    """The best correct caption, then the best wrong ones, each as (text, score)."""
    best = int(right.argmax())
    number = min(WRONG_PER_ROW, int(np.isfinite(wrong).sum()))
    top = np.argpartition(-wrong, number - 1)[:number] if number else np.array([], np.int64)
    # argpartition does not sort: by score, equal scores by position
    top = top[np.lexsort((top, -wrong[top]))]
    return [(best, float(right[best])), *((int(t), float(wrong[t])) for t in top)]


def _rows(
    benchmark: Benchmark, captions: list[str], owner: np.ndarray, ranking: Ranking
) -> list[dict[str, object]]:
    by_image, by_text = ranking.image_to_text.standing, ranking.text_to_image.standing
    image_ranks, text_ranks = (each.rank("strict").astype(int) for each in (by_image, by_text))
    tied = by_image.tied(1)
    starts = np.searchsorted(owner, np.arange(len(benchmark.cases) + 1))
    return [
        row(
            case,
            [captions[text] for text, _ in ranking.best_texts[n]],
            [score for _, score in ranking.best_texts[n]],
            image_ranks[n] == 1,
            tied[n],
            rank=int(image_ranks[n]),
            text_ranks=text_ranks[starts[n] : starts[n + 1]].tolist(),
        )
        for n, case in enumerate(benchmark.cases)
    ]


def _check(benchmark: Benchmark) -> None:
    rule = "a retrieval case has one image and at least one caption"
    check_cases(benchmark, rule, lambda case: len(case.images) == 1 and case.captions)
    if len(benchmark.cases) < 2:
        raise DataError(f"retrieval needs at least two cases; {benchmark.name!r} has one")
