"""Zero-shot classification: the class whose prompts score highest against the image.

Every class name is put into every template. Models with pooled text embeddings only (CLIP,
SigLIP) get one embedding per class: each prompt's embedding normalised, averaged, normalised
again (Radford et al. 2021, section 3.1.4). A model that also gives text tokens may compute its
score from them, and tokens of different prompts cannot be averaged: there the scores of a class's
prompts are averaged instead.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

from input_pipeline.benchmarks import Benchmark
from input_pipeline.record import DataError
from vlc_jax.evaluators import stats
from vlc_jax.evaluators.scorer import Scorer
from vlc_jax.types import ImageFeatures, TextFeatures

SHOWN = 5  # wrong classes kept per example, best first


def rank_of_label(
    scores: Float[np.ndarray, "images classes"], labels: Int[np.ndarray, "images"]
) -> Int[np.ndarray, "images"]:
    """Rank of the correct class, 1 is best; a wrong class with the same score goes before it."""
    correct = np.take_along_axis(scores, labels[:, None], axis=1)
    return (scores >= correct).sum(axis=1)  # counts the correct class itself: the 1 of rank 1


def evaluate(benchmark: Benchmark, scorer: Scorer, *, chunk: int = 512) -> stats.EvalResult:
    """Top-1 accuracy, top-5 accuracy (with more than five classes) and mean per-class recall.

    Ties are strict. Recall is given per class too, as `recall/<class>`.

    Raises:
      DataError: no classes, a template without "{}", a label that is no class, a case without
        one image.
    """
    labels = _labels(benchmark)
    score = class_scorer(benchmark, scorer)
    parts = [
        score(scorer.embed_images([case.images[0] for case in benchmark.cases[i : i + chunk]]))
        for i in range(0, len(benchmark.cases), chunk)
    ]
    scores = stats.require_finite(np.concatenate(parts), benchmark.name)
    rank, number = rank_of_label(scores, labels), len(benchmark.classes)
    correct = np.take_along_axis(scores, labels[:, None], axis=1)
    tied = (correct[:, 0] == scores.max(axis=1)) & ((scores == correct).sum(axis=1) > 1)
    names = [benchmark.classes[label] for label in labels]
    recall = stats.per_group("recall", names, rank == 1, np.full(len(rank), 1 / number), tied)
    metrics = {"accuracy": stats.proportion(rank == 1, 1 / number, tied)}
    if number > 5:
        metrics["accuracy_top5"] = stats.proportion(rank <= 5, 5 / number, tied)
    metrics["mean_per_class_recall"] = recall.pop("recall_macro")
    outcomes = zip(labels.tolist(), rank.tolist(), tied.tolist(), strict=True)
    rows = [_row(benchmark, n, scores[n], *outcome) for n, outcome in enumerate(outcomes)]
    details = {"classes": number, "templates": len(benchmark.templates or ("{}",))}
    return stats.EvalResult(metrics | recall, rows, details)


def class_scorer(
    benchmark: Benchmark, scorer: Scorer
) -> Callable[[ImageFeatures], Float[np.ndarray, "images classes"]]:
    """Zero-shot classifier: image features -> one score per class, prompts already embedded."""
    templates = benchmark.templates or ("{}",)
    texts = scorer.embed_texts(benchmark.prompts)
    if texts.tokens is None:
        # float32: an average of normalised bfloat16 embeddings would lose digits before the score.
        pooled = _l2_normalize(np.asarray(texts.pooled, np.float32))
        mean = pooled.reshape(len(benchmark.classes), len(templates), -1).mean(axis=1)
        ensemble = TextFeatures(pooled=_l2_normalize(mean))
        return lambda images: np.asarray(scorer.score(images, ensemble))

    def mean_of_scores(images: ImageFeatures) -> np.ndarray:
        scores = np.asarray(scorer.score(images, texts))
        return scores.reshape(len(scores), -1, len(templates)).mean(axis=2)

    return mean_of_scores


def _l2_normalize(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


def _labels(benchmark: Benchmark) -> np.ndarray:
    """Labels of all cases. Raises DataError for cases that do not fit."""
    where = f"of benchmark {benchmark.name!r}"
    if not benchmark.cases or len(benchmark.classes) < 2:
        raise DataError(
            f"zero-shot classification needs cases and at least two classes; {where} there are "
            f"{len(benchmark.cases)} and {len(benchmark.classes)}"
        )
    for template in benchmark.templates:
        if "{}" not in template:
            raise DataError(f"a template has {{}} in the place of the class; {where}: {template!r}")
    for case in benchmark.cases:
        label = case.meta.get("label")
        known = isinstance(label, int | np.integer) and 0 <= label < len(benchmark.classes)
        if len(case.images) != 1 or not known:
            raise DataError(
                f"a zero-shot case has one image and meta['label'] in 0 ... "
                f"{len(benchmark.classes) - 1}; case {case.id!r} {where} has "
                f"{len(case.images)} images and label {label!r}"
            )
    return np.array([case.meta["label"] for case in benchmark.cases], np.int64)


def _row(
    benchmark: Benchmark, n: int, scores: np.ndarray, label: int, rank: int, tied: bool
) -> dict[str, object]:
    """Per-example row: the correct class first, then the best wrong ones."""
    case, order = benchmark.cases[n], np.argsort(-scores, kind="stable")
    shown = [label, *order[order != label][:SHOWN]]
    return {
        "id": case.id,
        "group": benchmark.classes[label] if case.group is None else case.group,
        "captions": [benchmark.classes[c] for c in shown],
        "scores": [float(scores[c]) for c in shown],
        "correct": rank == 1,
        "rank": rank,
        "tie": tied,
    }
