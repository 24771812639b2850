"""Attribute binding: linear probe of image features against the image-caption cosine.

"a red circle and a blue square" against "a blue circle and a red square": separates "not in the
embedding" from "not in the cosine" (linear decodability in the proof of "Is CLIP ideal?", ICCV
2025).
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from vlc_jax.evaluators import linear_probe, stats, ties
from vlc_jax.evaluators.cases import chunked, row
from vlc_jax.evaluators.choice import score_cases
from vlc_jax.evaluators.scorer import Scorer
from vlc_jax.input_pipeline.case import Benchmark
from vlc_jax.input_pipeline.record import DataError


def evaluate(
    benchmark: Benchmark, scorer: Scorer, *, tie: str = "strict", chunk: int = 512
) -> stats.EvalResult:
    """Accuracy of one probe per group on held-out renderings, and of the scores.

    probe_accuracy   accuracy of a logistic regression between the two labels of each group (a pair
                     of objects), fitted as in `linear_probe`; chance 1/2
    score_accuracy   share of the same images with a higher score for the first caption; chance 1/2
    gain             probe_accuracy - score_accuracy, in [-1, 1]; chance 0

    Intervals are over groups: renderings of the same objects are not independent. tie: see `ties`.

    Raises:
      UsageError: an unknown tie policy. DataError: a group without both labels in training.
    """
    ties.check(tie)
    cases = benchmark.cases
    names = [[str(case.group) for case in part] for part in _parts(benchmark)]
    features = [linear_probe.features(part, scorer, chunk) for part in _parts(benchmark)]
    stats.require_finite(np.concatenate([x for x, _ in features]), benchmark.name)
    right, log_odds = _probe(names, features, benchmark.name)
    scores = np.concatenate([score_cases(part, scorer) for part in chunked(cases, chunk)])
    stats.require_finite(scores, benchmark.name)
    # 0: the first caption of a case is the correct one
    standing = ties.standing(scores, np.zeros(len(cases), int))
    by_score, tied = standing.among_best(1, tie), standing.tied(1)
    clusters = np.array(names[2])
    differences = [
        float((right - by_score)[clusters == name].mean()) for name in dict.fromkeys(names[2])
    ]
    metrics = {
        "probe_accuracy": stats.proportion(right, 1 / 2, None, clusters),
        "score_accuracy": stats.proportion(by_score, 1 / 2, tied, clusters),
        "gain": stats.bootstrapped(np.array(differences), "mean", 0.0),
    }
    rows = [
        row(
            case,
            case.captions,
            scores[n].tolist(),
            by_score[n] == 1,
            tied[n],
            probe_correct=bool(right[n]),
            probe_log_odds=float(log_odds[n]),
        )
        for n, case in enumerate(cases)
    ]
    return stats.EvalResult(metrics, rows, {"tie": tie, "groups": len(differences)})


def _probe(
    names: Sequence[Sequence[str]],
    features: Sequence[tuple[np.ndarray, np.ndarray]],
    benchmark: str,
) -> tuple[Float[np.ndarray, " cases"], Float[np.ndarray, " cases"]]:
    """(1 where the probe of a case's group is right, log odds of the true label) of each case.

    names, features: groups and (features, labels) of training, validation and cases.
    """
    right, log_odds = np.zeros(len(names[2])), np.zeros(len(names[2]))
    for name in dict.fromkeys(names[2]):
        chosen = [np.array([each == name for each in part], bool) for part in names]
        (x, y), (x_val, y_val), (x_test, y_test) = (
            (x[rows], y[rows]) for (x, y), rows in zip(features, chosen, strict=True)
        )
        if set(y) != {0, 1} or not len(y_val):
            raise DataError(
                f"group {name!r} of {benchmark!r} needs both labels in training and some "
                f"validation; it has the labels {sorted(set(y.tolist()))} and {len(y_val)} cases"
            )
        # C is chosen on validation renderings: the cases stay unseen until the end
        probe = linear_probe.fit_best(x, y, x_val, y_val)[0]
        # times 2 y - 1: log odds of the true label, above 0 where the probe is right
        log_odds[chosen[2]] = probe.decision_function(x_test) * (2 * y_test - 1)
        right[chosen[2]] = probe.predict(x_test) == y_test
    return right, log_odds


def _parts(benchmark: Benchmark) -> tuple:
    # the cases last: `evaluate` and `_probe` take part 2 for them
    parts = (benchmark.training, benchmark.validation, benchmark.cases)
    if not all(parts):
        raise DataError(f"a probe needs training, validation, cases; {benchmark.name!r} lacks some")
    return parts
