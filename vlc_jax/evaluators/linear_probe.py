"""Linear probe of frozen image features.

L2-normalised pooled features and multinomial logistic regression (scikit-learn, L-BFGS). C is
chosen by accuracy on validation cases; the probe is then refitted on training and validation cases.
CLIP (Radford et al. 2021, appendix A.3) searches C in 96 steps of a larger range for features that
are not normalised; CLIP_benchmark trains its linear layer by AdamW and searches the weight decay:
their numbers are close, not equal.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from vlc_jax.evaluators import groups, stats, ties
from vlc_jax.evaluators.cases import WRONG_PER_ROW, chunked, row
from vlc_jax.evaluators.scorer import Scorer
from vlc_jax.evaluators.vectors import unit
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

# scikit-learn's C, inverse regularisation
CS = tuple(10.0**exponent for exponent in range(-2, 5))
# limit of L-BFGS; enough for features of unit length at the largest C
STEPS = 1000
# largest entry of the gradient of the mean loss at which L-BFGS stops, divided by C above 1:
# scikit-learn's, at which a probe of C = 1,000 is far from the minimum
TOLERANCE = 1e-4


def evaluate(
    benchmark: Benchmark, scorer: Scorer, *, tie: str = "strict", chunk: int = 512
) -> stats.EvalResult:
    """Accuracy and mean per-class recall of the probe on `Benchmark.cases`; chance is 1/classes.

    `recall/<class>` is the recall of a class. details: the chosen C, and the validation accuracy of
    every C. tie: see `ties`; `chunk` images are embedded at a time.

    Raises:
      UsageError: an unknown tie policy. DataError: no cases for training or validation, or a class
        that has no training case.
    """
    ties.check(tie)
    _check(benchmark)
    (x, y), (x_val, y_val), (x_test, y_test) = (
        features(cases, scorer, chunk)
        for cases in (benchmark.training, benchmark.validation, benchmark.cases)
    )
    stats.require_finite(np.concatenate([x, x_val, x_test]), benchmark.name)
    probe, best, accuracy = fit_best(x, y, x_val, y_val)
    scores = np.full((len(x_test), len(benchmark.classes)), -np.inf)
    scores[:, probe.classes_] = probe.predict_log_proba(x_test)
    standing, number = ties.standing(scores, y_test), len(benchmark.classes)
    right, tied = standing.among_best(1, tie), standing.tied(1)
    names = [benchmark.classes[label] for label in y_test]
    decisions = groups.Decisions(names, right, np.full(len(y_test), 1 / number), tied)
    recall = groups.metrics("recall", decisions, benchmark)
    metrics = {"accuracy": recall.pop("recall")}
    metrics["mean_per_class_recall"] = recall.pop("recall_macro")
    rows = [_row(benchmark, n, scores[n], right[n] == 1) for n in range(len(scores))]
    details = {
        "tie": tie,
        "classes": number,
        "training": len(y) + len(y_val),
        "C": best,
        "validation": {f"{c:g}": value for c, value in accuracy.items()},
    }
    return stats.EvalResult(metrics | recall, rows, details)


def features(
    cases: Sequence[Case], scorer: Scorer, chunk: int
) -> tuple[Float[np.ndarray, "cases embed"], Int[np.ndarray, " cases"]]:
    """L2-normalised pooled features and label of each case's image."""
    pooled = [
        scorer.embed_images([case.images[0] for case in part]).pooled
        for part in chunked(cases, chunk)
    ]
    labels = np.array([case.meta["label"] for case in cases])
    return unit(np.concatenate(pooled)), labels


def fit_best(
    x: Float[np.ndarray, "cases embed"],
    y: Int[np.ndarray, " cases"],
    x_val: Float[np.ndarray, "examples embed"],
    y_val: Int[np.ndarray, " examples"],
) -> tuple[Any, float, dict[float, float]]:
    """Logistic regression refitted on training and validation cases, its C, and the validation
    accuracy of every C."""
    accuracy = {c: float((_fit(x, y, c).predict(x_val) == y_val).mean()) for c in CS}
    # the smallest of equal ones
    best = max(CS, key=lambda c: accuracy[c])
    return _fit(np.concatenate([x, x_val]), np.concatenate([y, y_val]), best), best, accuracy


def _fit(x: np.ndarray, y: np.ndarray, c: float) -> Any:
    # here, because its import is slow
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    classes = len(np.unique(y))
    # The gradient of the mean loss is smaller with more classes: at 1e-4 a probe of ImageNet would
    # end before its first step.
    tolerance = min(TOLERANCE, 10 * TOLERANCE / classes) / max(1.0, c)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # validation decides
        return LogisticRegression(C=c, max_iter=STEPS, tol=tolerance).fit(x, y)


def _check(benchmark: Benchmark) -> None:
    for name in ("training", "validation", "cases"):
        if not getattr(benchmark, name):
            raise DataError(f"a linear probe needs {name}; {benchmark.name!r} has none")
    known = {case.meta["label"] for case in benchmark.training}
    for case in benchmark.cases:
        if case.meta["label"] not in known:
            raise DataError(
                f"case {case.id!r} of {benchmark.name!r} is of class "
                f"{benchmark.classes[case.meta['label']]!r}, which training lacks"
            )


def _row(benchmark: Benchmark, n: int, scores: np.ndarray, right: object) -> dict[str, object]:
    """Per-example row: log probabilities of the correct class, then of the best wrong ones."""
    case = benchmark.cases[n]
    label, order = case.meta["label"], np.argsort(-scores, kind="stable")
    columns = [label, *order[order != label][:WRONG_PER_ROW]]
    # a class without training cases has no probability
    columns = [c for c in columns if np.isfinite(scores[c])]
    names, tied = [benchmark.classes[c] for c in columns], (scores == scores[label]).sum() > 1
    return row(case, names, scores[columns].tolist(), right, tied, group=names[0])
