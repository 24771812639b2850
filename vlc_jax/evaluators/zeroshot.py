"""Zero-shot classification: the class whose prompts have the highest score for the image.

Every class name is put into every template. Models with only pooled text embeddings (CLIP, SigLIP)
get one embedding per class: the prompts' embeddings are normalised, averaged, and normalised again
(Radford et al. 2021, section 3.1.4). A model with text tokens may score by them, and tokens of
different prompts cannot be averaged: the scores of a class's prompts are averaged instead.
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from vlc_jax.evaluators import groups, stats, ties
from vlc_jax.evaluators.cases import WRONG_PER_ROW, check_cases, chunked, row
from vlc_jax.evaluators.scorer import Scorer
from vlc_jax.evaluators.vectors import unit
from vlc_jax.input_pipeline.case import Benchmark, Case, distinct_names
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.types import ImageFeatures, TextFeatures


def evaluate(
    benchmark: Benchmark, scorer: Scorer, *, tie: str = "strict", chunk: int = 512
) -> stats.EvalResult:
    """Top-1 accuracy, top-5 accuracy (with more than five classes) and mean per-class recall.

    `recall/<class>` is the recall of a class. tie: see `ties`. Among classes of equal names, whose
    prompts tie for every model, the first wins, as with argmax ("half" shares the credit). In
    open_clip and CLIP_benchmark the one wins that torch.topk happens to list first.

    Raises:
      UsageError: an unknown tie policy.
      DataError: no classes, a template without "{}", a label out of range, a case without exactly
        one image.
    """
    ties.check(tie)
    labels = _labels(benchmark)
    score = class_scorer(benchmark, scorer)
    scored = [
        score(scorer.embed_images([case.images[0] for case in part]))
        for part in chunked(benchmark.cases, chunk)
    ]
    scores = stats.require_finite(np.concatenate(scored), benchmark.name)
    ranked = scores if tie == "half" else _first_of_equal(scores, benchmark.classes)
    standing, number = ties.standing(ranked, labels), len(benchmark.classes)
    classes = distinct_names(benchmark.classes)
    names = [classes[label] for label in labels]
    right, chance = standing.among_best(1, tie), np.full(len(labels), 1 / number)
    per_class = groups.Decisions(names, right, chance, standing.tied(1))
    recall = groups.metrics("recall", per_class, benchmark)
    metrics = {"accuracy": recall.pop("recall")}
    if number > 5:
        metrics["accuracy_top5"] = stats.proportion(
            standing.among_best(5, tie), 5 / number, standing.tied(5)
        )
    metrics["mean_per_class_recall"] = recall.pop("recall_macro")
    rank, tied = standing.rank("strict").astype(int), standing.tied(1)
    outcomes = zip(labels.tolist(), rank.tolist(), tied.tolist(), strict=True)
    rows = [
        _row(benchmark.cases[n], classes, scores[n], *outcome) for n, outcome in enumerate(outcomes)
    ]
    details = {"tie": tie, "classes": number, "templates": len(benchmark.templates or ("{}",))}
    return stats.EvalResult(metrics | recall, rows, details)


def class_scorer(
    benchmark: Benchmark, scorer: Scorer
) -> Callable[[ImageFeatures], Float[np.ndarray, "images classes"]]:
    """Zero-shot classifier with embedded prompts: image features -> one score per class."""
    templates = benchmark.templates or ("{}",)
    texts = scorer.embed_texts(benchmark.prompts)
    # tokens or ids: the head scores by them, and those of different prompts cannot be averaged
    if texts.tokens is None and texts.ids is None:
        # float64: the mean of normalised bfloat16 embeddings would lose digits
        each = unit(texts.pooled).reshape(len(benchmark.classes), len(templates), -1)
        ensemble = TextFeatures(pooled=unit(each.mean(axis=1)).astype(np.float32))
        return lambda images: np.asarray(scorer.score(images, ensemble))

    def mean_of_scores(images: ImageFeatures) -> np.ndarray:
        scores = np.asarray(scorer.score(images, texts))
        return scores.reshape(len(scores), -1, len(templates)).mean(axis=2)

    return mean_of_scores


def _first_of_equal(scores: np.ndarray, classes: Sequence[str]) -> np.ndarray:
    """Scores in which a class comes just behind the classes before it that have its name."""
    if len({*classes}) == len(classes):
        return scores
    ranked, seen = scores.copy(), Counter[str]()
    for label, name in enumerate(classes):
        for _ in range(seen[name]):
            ranked[:, label] = np.nextafter(ranked[:, label], -np.inf)
        seen[name] += 1
    return ranked


def check_prompts(benchmark: Benchmark) -> None:
    """Raises DataError without cases or two classes, and for a template without {}."""
    where = f"of benchmark {benchmark.name!r}"
    if not benchmark.cases or len(benchmark.classes) < 2:
        raise DataError(
            f"zero-shot classification needs cases and at least two classes; {where} there are "
            f"{len(benchmark.cases)} and {len(benchmark.classes)}"
        )
    for template in benchmark.templates:
        if "{}" not in template:
            raise DataError(f"a template has {{}} in the place of the class; {where}: {template!r}")


def _labels(benchmark: Benchmark) -> np.ndarray:
    """Labels of all cases. Raises DataError for invalid cases, classes or templates."""
    check_prompts(benchmark)
    number = len(benchmark.classes)

    def fits(case: Case) -> bool:
        label = case.meta.get("label")
        is_known = isinstance(label, int | np.integer) and 0 <= label < number
        return is_known and len(case.images) == 1

    rule = f"a zero-shot case has one image and meta['label'] in 0 ... {number - 1}"
    check_cases(benchmark, rule, fits)
    return np.array([case.meta["label"] for case in benchmark.cases], np.int64)


def _row(
    case: Case, classes: Sequence[str], scores: np.ndarray, label: int, rank: int, tied: bool
) -> dict[str, object]:
    """Per-example row: the correct class first, then the best wrong ones."""
    order = np.argsort(-scores, kind="stable")
    columns = [label, *order[order != label][:WRONG_PER_ROW]]
    names = [classes[c] for c in columns]
    group = names[0] if case.group is None else case.group
    return row(case, names, scores[columns].tolist(), rank == 1, tied, group=group, rank=rank)
