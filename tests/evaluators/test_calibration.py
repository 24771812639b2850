"""Probabilities from scores, against scikit-learn, scipy and pairs of known probability."""

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from scipy.special import expit
from sklearn.calibration import _SigmoidCalibration
from sklearn.isotonic import IsotonicRegression

from vlc_jax.errors import DivergedError, UsageError
from vlc_jax.evaluators import calibration


def made(images=300, texts=4, seed=0, offset=0.0, fade=0.0, slope=30.0, terms=None):
    """Pairs that match with probability sigmoid(slope * score - 8 + offset) before scores fade."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(0.25, 0.06, images * texts)
    matches = rng.random(len(scores)) < expit(slope * scores - 8 + offset)
    scores = (1 - fade) * scores + fade * rng.normal(0.2, 0.06, len(scores))
    return calibration.Pairs(scores, matches, np.repeat(np.arange(images), texts), terms or {})


def test_platt_is_that_of_scikit_learn():
    pairs = made()
    theirs = _SigmoidCalibration().fit(pairs.scores, pairs.matches.astype(float))
    curve = calibration.fit(pairs)
    assert (curve.slope, curve.bias) == pytest.approx((-theirs.a_, -theirs.b_), rel=1e-4)
    assert curve.slope == pytest.approx(30, rel=0.2)  # that the matches were drawn with
    moved = pairs._replace(scores=1e4 + pairs.scores)  # far from zero Newton's steps stay stable
    found = calibration.fit(moved)(moved.scores, {})
    np.testing.assert_allclose(found, curve(pairs.scores, {}), atol=1e-6)


def test_isotonic_is_that_of_scikit_learn_between_platts_targets():
    pairs = made()
    yes, no = pairs.matches.sum(), (~pairs.matches).sum()
    ends = {"y_min": 1 / (no + 2), "y_max": (yes + 1) / (yes + 2)}
    theirs = IsotonicRegression(**ends, out_of_bounds="clip").fit(pairs.scores, pairs.matches)
    asked = np.linspace(-1, 1, 999)
    found = calibration.fit(pairs, "isotonic")(asked, {})
    np.testing.assert_allclose(found, theirs.predict(asked), atol=1e-12)
    assert 0 < found.min() < found.max() < 1


def test_temperature_divides_the_logits_of_the_model():
    pairs = made()
    yes, no = pairs.matches.sum(), (~pairs.matches).sum()
    targets = np.where(pairs.matches, (yes + 1) / (yes + 2), 1 / (no + 2))

    def loss(inverse):
        z = inverse * (100 * pairs.scores - 26)
        return (np.logaddexp(0, z) - targets * z).sum()

    inverse = scipy.optimize.minimize_scalar(loss, (0.1, 1)).x
    curve = calibration.fit(pairs, "temperature", logits=(100.0, -26.0))
    assert (curve.slope, curve.bias) == pytest.approx((100 * inverse, -26 * inverse), rel=1e-5)
    with pytest.raises(UsageError, match="of a model with a logit_bias"):
        calibration.fit(pairs, "temperature")


@pytest.mark.parametrize("method", ["platt", "isotonic"])
def test_probabilities_hold_and_a_shifted_set_is_caught(method):
    curve, figures = calibration.calibrate(made(600), method)
    error = figures["calibration_error"]
    assert error["low"] < 0 < error["high"]
    assert 0 < error["expected"] < error["limit"]
    assert figures["log_loss"][2] < figures["log_loss_of_share"]

    def checked(**options):
        pairs = made(400, seed=1, **options)
        return calibration.shift(curve(pairs.scores, {}), pairs, figures)

    assert not checked()["is_shifted"]
    # another share of matches, and scores of corrupted images
    rarer, faded = checked(offset=-1.0), checked(fade=0.5)
    assert rarer["is_shifted"]
    assert faded["is_shifted"]
    assert rarer["offset"][2] < 0
    assert faded["slope"][2] < 1
    assert rarer["calibration_error"]["value"] > rarer["calibration_error"]["limit"]


def test_one_pair_of_an_image_with_copies_is_no_more_evidence():
    one = made(300, texts=1)
    many = one.rows(np.repeat(np.arange(300), 10))
    (value, low, high), copied = (
        calibration.figures(np.full(len(x.scores), 0.4), x)["brier"] for x in (one, many)
    )
    assert copied == pytest.approx([value, low, high], abs=1e-9)


def test_a_term_is_used_only_if_it_pays():
    rng = np.random.default_rng(0)
    noise = {"length": rng.normal(size=(1200, 1))}
    assert not calibration.calibrate(made(terms=noise))[1]["terms"]["length"]["is_used"]
    pairs = made(terms={"template": rng.integers(0, 2, (1200, 1)).astype(float)})
    scores = pairs.scores + 0.1 * pairs.terms["template"][:, 0]  # these prompts score higher
    curve, figures = calibration.calibrate(pairs._replace(scores=scores))
    assert figures["terms"]["template"]["is_used"]
    assert curve.weights["template"] == pytest.approx([-0.1 * curve.slope], rel=0.3)


def test_terms_are_read_from_texts():
    templates = ["{}", "a photo of a {}", "a {} in snow"]
    texts = ["a photo of a cat", "cat", "a cat in snow"]
    terms = calibration.text_terms(texts, templates)
    np.testing.assert_array_equal(terms["template"], [[1, 0], [0, 0], [0, 1]])
    np.testing.assert_allclose(terms["length"][:, 0], np.log([5, 1, 4]))
    assert [*calibration.text_terms(texts)] == ["length"]


def test_a_threshold_is_the_lowest_that_reaches_the_rate():
    p = np.array([0.9, 0.8, 0.8, 0.6, 0.5, 0.2])
    matches = np.array([1, 1, 0, 1, 0, 0], bool)
    pairs = calibration.Pairs(p, matches, np.array([0, 0, 1, 1, 2, 2]), {})
    found = calibration.threshold(p, pairs, "precision", 0.7)
    assert (found["threshold"], found["precision"][0], found["found"][0]) == (0.6, 0.75, 1)
    assert found["none"][0] == pytest.approx(1 / 3)  # the last image has no text from .6 on
    exact = scipy.stats.binomtest(3, 4).proportion_ci(method="exact")
    assert found["precision"][1:] == pytest.approx([exact.low, exact.high])
    found = calibration.threshold(p, pairs, "false alarms", 0.1)
    assert (found["threshold"], found["false_alarms"][0]) == (0.9, 0)
    assert calibration.threshold(1 - p, pairs, "precision", 0.9)["threshold"] is None


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (made(19), "20 images with a matching text and 20 with one .* got 17 and 19"),
        (made()._replace(matches=np.ones(1200, bool)), "all 1200 pairs match: add pairs that do"),
        (made()._replace(scores=np.ones(1200)), "all 1200 pairs have the score 1"),
    ],
)
def test_pairs_without_a_contrast_are_refused(pairs, message):
    with pytest.raises(UsageError, match=message):
        calibration.calibrate(pairs)


def test_scores_that_are_no_numbers_are_refused():
    with pytest.raises(DivergedError, match="1 of 1200"):
        calibration.calibrate(made()._replace(scores=np.r_[np.nan, made().scores[1:]]))


def test_warnings_name_what_is_odd():
    def notes(pairs):
        return " ".join(calibration.check(pairs))

    pairs = made()
    assert not notes(pairs)
    assert "the other way round" in notes(pairs._replace(matches=~pairs.matches))
    assert "are few" in notes(made(60))
    separable = pairs._replace(scores=pairs.matches + 0.1 * pairs.scores)
    assert "separates all pairs" in notes(separable)
    curve, _ = calibration.calibrate(separable)
    assert np.isfinite(curve.slope)
    assert 0 < curve(np.zeros(1), {})[0] < 0.01
