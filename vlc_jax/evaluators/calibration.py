"""Calibration: the probability that a text matches an image, from the score of the pair.

Figures are of held-out folds, and no image is in two folds. Intervals are at 95 %, by drawing
images and not pairs, since the pairs of an image are not independent.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from vlc_jax.errors import UsageError, known
from vlc_jax.evaluators import stats

METHODS = ("platt", "isotonic", "temperature")
# images with a matching text, and images with another; below FEW the intervals are wide
LEAST, FEW = 20, 200
FOLDS, BINS = 5, 15
# a set is shifted below this p-value: one of a hundred sets that are not is called so, too
SHIFTED = 0.01
WANTED = (("precision", 0.9), ("precision", 0.95), ("false alarms", 0.05), ("false alarms", 0.01))
_AT_ONCE = 50  # resamples
_ONE, _TWO = Float[np.ndarray, " pairs"], Float[np.ndarray, "pairs columns"]


class Pairs(NamedTuple):
    """Scored pairs of an image and a text.

    matches: whether the text is of the image.   images: number of the image, counted from 0.
    terms: name -> columns that a calibration may read besides the score (`text_terms`).
    """

    scores: _ONE
    matches: Bool[np.ndarray, " pairs"]
    images: Int[np.ndarray, " pairs"]
    terms: Mapping[str, _TWO]

    def rows(self, mask: np.ndarray) -> "Pairs":
        """Some of the pairs."""
        terms = {name: columns[mask] for name, columns in self.terms.items()}
        return Pairs(self.scores[mask], self.matches[mask], self.images[mask], terms)


class Curve(NamedTuple):
    """Score -> probability: sigmoid(slope * score + bias + terms @ weights).

    weights: of the terms that it reads.   knots: scores and probabilities of method isotonic, which
    is linear between them.
    """

    method: str
    slope: float = 0.0
    bias: float = 0.0
    weights: Mapping[str, Sequence[float]] = {}
    knots: tuple[Sequence[float], Sequence[float]] = ((), ())

    def __call__(self, scores: _ONE, terms: Mapping[str, _TWO]) -> _ONE:
        """The probability of each pair, float64."""
        from scipy.special import expit

        if self.method == "isotonic":
            return np.interp(scores, *self.knots)
        logits = self.slope * np.asarray(scores, np.float64) + self.bias
        return expit(logits + sum(terms[name] @ np.array(w) for name, w in self.weights.items()))


def text_terms(texts: Sequence[str], templates: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Terms of texts: "length", the logarithm of the number of words, and with two templates or
    more ("a photo of a {}") "template", whether a text is of each but the first."""
    words = [max(1, len(text.split())) for text in texts]
    terms = {"length": np.log(np.array(words, np.float64))[:, None]}
    if len(templates) > 1:
        parts = [template.partition("{}")[::2] for template in templates]
        fits = np.array([[t.startswith(a) and t.endswith(b) for a, b in parts] for t in texts])
        fits = fits.reshape(-1, len(templates))
        # "{}" fits every text: the longest one counts
        lengths = np.array([[len(template) for template in templates]])
        best = np.where(fits, lengths, -1).argmax(axis=1)
        terms["template"] = np.eye(len(templates))[best][:, 1:] * fits.any(axis=1)[:, None]
    return terms


def check_method(method: str, logits: tuple[float, float] | None) -> None:
    """Raises UsageError for an unknown method, and for temperature without a model's logits."""
    if known("method", method, METHODS) == "temperature" and logits is None:
        raise UsageError(
            "temperature divides logits, whose zero is a probability of one half: of a model with "
            "a logit_bias (SigLIP); take method platt"
        )


def check_numbers(matches: Bool[np.ndarray, " pairs"], images: Int[np.ndarray, " pairs"]) -> int:
    """The number of images with a matching text, or with another, whichever is smaller.

    Raises UsageError below LEAST, and if all pairs match or none does.
    """
    if matches.all() or not matches.any():
        kind, other = ("match", "do not") if matches.any() else ("do not match", "do")
        raise UsageError(f"all {len(matches)} pairs {kind}: add pairs that {other}")
    yes, no = (len(np.unique(images[matches == kind])) for kind in (True, False))
    if min(yes, no) < LEAST:
        raise UsageError(
            f"probabilities need {LEAST} images with a matching text and {LEAST} with one that "
            f"does not match, better {FEW}; got {yes} and {no}"
        )
    return min(yes, no)


def check(pairs: Pairs) -> list[str]:
    """Warnings about the pairs. Raises UsageError as `check_numbers` and for equal scores,
    DivergedError for scores that are not finite."""
    stats.require_finite(pairs.scores)
    number = check_numbers(pairs.matches, pairs.images)
    if np.ptp(pairs.scores) == 0:
        raise UsageError(f"all {len(pairs.scores)} pairs have the score {pairs.scores[0]:g}")
    notes, right, wrong = [], pairs.scores[pairs.matches], pairs.scores[~pairs.matches]
    if number < FEW:
        notes.append(f"{number} images of a kind are few, below {FEW} intervals are wide")
    if right.mean() <= wrong.mean():
        notes.append(
            "pairs that match score no higher than others: the column of matches is the other way "
            "round, or the model is at chance"
        )
    if right.min() > wrong.max() or wrong.min() > right.max():
        notes.append(
            "a threshold separates all pairs, so the slope is as steep as the smoothing of the "
            "targets allows: add harder pairs that do not match"
        )
    return notes


def fit(
    pairs: Pairs,
    method: str = "platt",
    names: Sequence[str] = (),
    logits: tuple[float, float] | None = None,
) -> Curve:
    """The curve of all pairs.

    platt: Newton's method on Platt's smoothed targets (Platt, Probabilistic outputs for support
      vector machines, 1999), in the stable form of Lin, Lin and Weng (Machine Learning 68, 2007).
    isotonic: scikit-learn's, between these targets.
    temperature: sigmoid(logit / T) of the model's own logits, scale * score + bias.
    names: of terms, for platt.   logits: the model's scale and bias, for temperature.
    """
    check_method(method, logits)
    scores, targets = pairs.scores.astype(np.float64), _smoothed(pairs.matches)
    if method == "isotonic":
        from sklearn.isotonic import IsotonicRegression

        ends = {"y_min": targets.min(), "y_max": targets.max()}
        found = IsotonicRegression(**ends).fit(scores, pairs.matches)
        return Curve(method, knots=(found.X_thresholds_.tolist(), found.y_thresholds_.tolist()))
    if method == "temperature":
        (inverse,) = _logistic((logits[0] * scores + logits[1])[:, None], targets)
        return Curve(method, float(inverse * logits[0]), float(inverse * logits[1]))
    columns = np.concatenate([scores[:, None], *(pairs.terms[name] for name in names)], axis=1)
    mean, scale = columns.mean(axis=0), columns.std(axis=0)
    # a constant column has no weight
    scale = np.where(scale > 1e-9 * np.abs(mean), scale, np.inf)
    one = np.ones((len(scores), 1))
    bias, *weights = _logistic(np.concatenate([one, (columns - mean) / scale], axis=1), targets)
    slope, *others = (weights / scale).tolist()
    stops = np.cumsum([pairs.terms[name].shape[1] for name in names])
    parts = [part.tolist() for part in np.split(others, stops[:-1])] if names else []
    bias -= float(mean @ (weights / scale))
    return Curve(method, slope, float(bias), dict(zip(names, parts, strict=True)))


def calibrate(
    pairs: Pairs,
    method: str = "platt",
    logits: tuple[float, float] | None = None,
    wanted: Sequence[tuple[str, float]] = (),
) -> tuple[Curve, dict[str, Any]]:
    """The curve of all pairs, and its figures on held-out folds, ready for JSON.

    With platt a term of `pairs.terms` is used if it lowers the held-out log loss and the paired
    interval is above zero.   wanted: rates, each of which gets its threshold.
    """
    notes, chosen, gains = check(pairs), (), {}
    found = held_out(pairs, method, (), logits)
    for name in pairs.terms if method == "platt" else ():
        other = held_out(pairs, method, (*chosen, name))
        gain = _mean(_losses(found, pairs) - _losses(other, pairs), pairs)
        gains[name] = {"gain": gain, "is_used": gain[1] > 0}
        if gain[1] > 0:
            chosen, found = (*chosen, name), other
    thresholds = [threshold(found, pairs, *each) for each in wanted]
    facts = figures(found, pairs) | {"terms": gains, "thresholds": thresholds, "notes": notes}
    return fit(pairs, method, chosen, logits), facts


def held_out(
    pairs: Pairs, method: str, names: Sequence[str], logits: tuple[float, float] | None = None
) -> _ONE:
    """The probability of each pair by the pairs of other images."""
    rng, count = np.random.default_rng(stats.SEED), pairs.images.max() + 1
    fold, found = (rng.permutation(count) % FOLDS)[pairs.images], np.zeros(len(pairs.scores))
    for k in range(FOLDS):
        here = pairs.rows(fold == k)
        curve = fit(pairs.rows(fold != k), method, names, logits)
        found[fold == k] = curve(here.scores, here.terms)
    return found


def figures(probability: _ONE, pairs: Pairs) -> dict[str, Any]:
    """Accuracy, losses, calibration error and curve; estimates are [value, low, high]."""
    matches, share = pairs.matches, pairs.matches.mean()
    is_right = (probability >= 0.5) == matches
    accuracy = stats.proportion(is_right, None, clusters=pairs.images)
    theta, covariance = recalibration(probability, pairs)
    return {
        "pairs": len(matches),
        "images": int(pairs.images.max() + 1),
        "matches": int(matches.sum()),
        "accuracy": [accuracy.value, accuracy.low, accuracy.high],
        "log_loss": _mean(_losses(probability, pairs), pairs),
        "log_loss_of_share": float(-share * np.log(share) - (1 - share) * np.log1p(-share)),
        "brier": _mean((probability - matches) ** 2, pairs),
        "calibration_error": calibration_error(probability, pairs),
        "bins": reliability(probability, pairs),
        "recalibration": {"offset_slope": theta.tolist(), "covariance": covariance.tolist()},
    }


def shift(probability: _ONE, pairs: Pairs, fitted: Mapping[str, Any]) -> dict[str, Any]:
    """Test whether probabilities of a calibration hold on other pairs.

    fitted: figures of the calibration. Wald's test that offset and slope of `recalibration` are 0
    and 1, with the variance of these pairs and that of the calibration (2 degrees of freedom).
    """
    facts = {"notes": check(pairs)} | figures(probability, pairs)
    found = facts["recalibration"]
    covariance = np.array(found["covariance"]) + fitted["recalibration"]["covariance"]
    difference = np.array(found["offset_slope"]) - (0, 1)
    p_value = float(np.exp(-0.5 * difference @ np.linalg.pinv(covariance) @ difference))
    half = stats.Z * np.sqrt(np.diag(covariance))
    for k, name in enumerate(("offset", "slope")):
        value = found["offset_slope"][k]
        facts[name] = [value, value - float(half[k]), value + float(half[k])]
    return facts | {"p_value": p_value, "is_shifted": p_value < SHIFTED}


def recalibration(probability: _ONE, pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """(offset, slope) of logit(match) = offset + slope * logit(probability), 0 and 1 if the
    probabilities hold (Cox, Biometrika 1958), and their covariance, clustered by image."""
    from scipy.special import expit, logit

    x = np.stack([np.ones(len(probability)), logit(np.clip(probability, 1e-12, 1 - 1e-12))], axis=1)
    theta = _logistic(x, _smoothed(pairs.matches))
    fitted = expit(x @ theta)
    bread = np.linalg.pinv((x * (fitted * (1 - fitted))[:, None]).T @ x)
    sums = _by_image(x * (pairs.matches - fitted)[:, None], pairs.images)
    meat = sums.T @ sums * len(sums) / (len(sums) - 1)
    return theta, bread @ meat @ bread


def calibration_error(probability: _ONE, pairs: Pairs) -> dict[str, float]:
    """Mean distance of probability and share of matches over bins of equally many pairs (ECE).

    It is above zero by chance alone: `expected` and `limit` are its mean and 95th percentile if the
    probabilities hold (the residuals of each image keep their values and get a common random sign).
    excess, low, high: the error less `expected`, with the interval of drawing images.
    """
    bins, number = _bins(probability), len(probability)
    is_in = np.eye(bins.max() + 1)[bins]
    sums = _by_image(is_in * (pairs.matches - probability)[:, None], pairs.images)
    counts, rng = _by_image(is_in, pairs.images), np.random.default_rng(stats.SEED)
    error = np.abs(sums.sum(axis=0)).sum() / number
    signed = _resampled(sums, lambda size: 2 * rng.integers(0, 2, size) - 1)
    chance = np.abs(signed).sum(axis=1) / number
    drawn = _resampled(np.concatenate([sums, counts], axis=1), lambda size: rng.poisson(1, size))
    gaps, drawn_counts = np.split(drawn, 2, axis=1)
    errors = np.abs(gaps).sum(axis=1) / drawn_counts.sum(axis=1)
    excess = error - chance.mean()
    high, low = excess - np.quantile(errors - errors.mean(), (0.025, 0.975))
    values = (error, chance.mean(), np.quantile(chance, 0.95), excess, low, high)
    names = ("value", "expected", "limit", "excess", "low", "high")
    return dict(zip(names, map(float, values), strict=True))


def reliability(probability: _ONE, pairs: Pairs) -> list[dict[str, float]]:
    """Mean probability, share of matches with its interval and number of pairs of each bin."""
    rows, bins = [], _bins(probability)
    for k in range(bins.max() + 1):
        here = bins == k
        share = stats.proportion(pairs.matches[here], None, clusters=pairs.images[here])
        row = {"probability": float(probability[here].mean()), "share": share.value}
        rows.append(row | {"low": share.low, "high": share.high, "count": int(here.sum())})
    return rows


def threshold(probability: _ONE, pairs: Pairs, kind: str, wanted: float) -> dict[str, Any]:
    """The lowest probability from which on pairs have the wanted precision, or at most the wanted
    rate of false alarms, with Clopper and Pearson's intervals, which take pairs as independent.

    threshold: None if there is none.   none: share of images without a text from it on.
    """
    levels, place = np.unique(-probability, return_inverse=True)
    right = np.bincount(place, weights=pairs.matches).cumsum()
    wrong = np.bincount(place, weights=~pairs.matches).cumsum()
    matches, others = right[-1], wrong[-1]
    rates = {"precision": right / (right + wrong), "false alarms": wrong / others}
    reached = rates[kind] >= wanted if kind == "precision" else rates[kind] <= wanted
    row: dict[str, Any] = {"kind": kind, "wanted": wanted, "threshold": None}
    if not reached.any():
        return row
    k = int(np.flatnonzero(reached)[-1])
    row["threshold"] = float(-levels[k])
    best = np.zeros(pairs.images.max() + 1)
    np.maximum.at(best, pairs.images, probability)
    return row | {
        "precision": clopper_pearson(right[k], right[k] + wrong[k]),
        "false_alarms": clopper_pearson(wrong[k], others),
        "found": clopper_pearson(right[k], matches),
        "none": clopper_pearson((best < -levels[k]).sum(), len(best)),
    }


def clopper_pearson(successes: float | np.integer, count: float | int) -> list[float]:
    """A proportion and its exact interval at 95 %."""
    from scipy.special import betaincinv

    failures = count - successes
    low = betaincinv(successes, failures + 1, 0.025) if successes else 0.0
    high = betaincinv(successes + 1, failures, 0.975) if failures else 1.0
    return [float(successes / count), float(low), float(high)]


def _smoothed(matches: np.ndarray) -> np.ndarray:
    """Platt's targets: (N+ + 1) / (N+ + 2) for matches, 1 / (N- + 2) for others."""
    yes = matches.sum()
    return np.where(matches, (yes + 1) / (yes + 2), 1 / (len(matches) - yes + 2))


def _logistic(x: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Weights of the smallest cross entropy of sigmoid(x @ weights), by Newton's method."""
    from scipy.special import expit

    def loss(weights: np.ndarray) -> float:
        z = x @ weights
        return float((np.logaddexp(0, z) - targets * z).sum())

    weights = np.zeros(x.shape[1])
    for _ in range(100):
        p = expit(x @ weights)
        slope = x.T @ (p - targets)
        if np.abs(slope).max() <= 1e-9 * len(x):
            break
        step = np.linalg.pinv((x * (p * (1 - p))[:, None]).T @ x) @ slope
        # far from the minimum a whole step may climb
        sizes = (step / 2**k for k in range(30))
        before = loss(weights)
        weights = next((weights - s for s in sizes if loss(weights - s) <= before), weights)
    return weights


def _losses(probability: np.ndarray, pairs: Pairs) -> np.ndarray:
    """Log loss of each pair."""
    return -np.log(np.maximum(np.where(pairs.matches, probability, 1 - probability), 1e-300))


def _mean(values: np.ndarray, pairs: Pairs) -> list[float]:
    """Mean of the pairs and its interval, by drawing images."""
    parts = _by_image(np.stack([values, np.ones(len(values))], axis=1), pairs.images)
    rng = np.random.default_rng(stats.SEED)
    total, count = _resampled(parts, lambda size: rng.poisson(1, size)).T
    low, high = np.quantile(total / count, (0.025, 0.975))
    return [float(values.mean()), float(low), float(high)]


def _bins(probability: np.ndarray) -> np.ndarray:
    """Bin of each pair; bins have about equally many, and equal probabilities share one."""
    edges = np.unique(np.quantile(probability, np.arange(1, BINS) / BINS))
    return np.unique(np.searchsorted(edges, probability, side="right"), return_inverse=True)[1]


def _by_image(rows: np.ndarray, images: np.ndarray) -> np.ndarray:
    """Sums of the rows of each image, (images, columns)."""
    return np.stack([np.bincount(images, weights=column) for column in rows.T], axis=1)


def _resampled(sums: np.ndarray, weights: Any) -> np.ndarray:
    """Totals of the sums of images with random weights, (resamples, columns)."""
    parts = stats.RESAMPLES // _AT_ONCE
    return np.concatenate([weights((_AT_ONCE, len(sums))) @ sums for _ in range(parts)])
