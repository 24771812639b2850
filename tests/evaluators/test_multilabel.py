import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from vlc_jax.evaluators import multilabel
from vlc_jax.evaluators.scorer import Scorer
from vlc_jax.input_pipeline.benchmarks import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.types import ImageFeatures, TextFeatures

CLASSES = ("cat", "dog", "cow", "hen")


def benchmark(labels, classes=CLASSES):
    cases = [Case(str(n), (b"%d" % n,), (), meta={"labels": each}) for n, each in enumerate(labels)]
    return Benchmark("b", cases, "1", classes, ("a {}",))


def evaluate(scores, labels, **options):
    """Texts are unit vectors of their class, images their rows of the scores."""
    eye = np.eye(len(CLASSES), dtype=np.float32)
    scorer = Scorer(
        lambda images: ImageFeatures(scores[[int(image) for image in images]].astype(np.float32)),
        lambda texts: TextFeatures(eye[[CLASSES.index(text[2:]) for text in texts]]),
        lambda images, texts: images.pooled @ texts.pooled.T,
        score_options=None,
    )
    return multilabel.evaluate(benchmark(labels), scorer, **options)


def drawn(seed=0, images=40):
    rng = np.random.default_rng(seed)
    truth = rng.random((images, 4)) < (0.3, 0.1, 0.6, 0.0)
    scores = rng.permutation(images * 4).reshape(images, 4) + 30.5 * truth
    return scores, truth, [tuple(np.flatnonzero(row).tolist()) for row in truth]


def tnt_average_precision(scores, truth):
    """As CLIP_benchmark and torchnet compute it."""
    right = truth[np.argsort(-scores)]
    precision = np.cumsum(right) / np.arange(1, len(right) + 1)
    return precision[right].sum() / right.sum()


def voc_eleven_points(scores, truth):
    """As VOC 2007's development kit computes it."""
    right = truth[np.argsort(-scores)]
    precision = np.cumsum(right) / np.arange(1, len(right) + 1)
    recall = np.cumsum(right) / right.sum()
    best = [max(precision[recall >= t - 1e-9], default=0) for t in np.arange(11) / 10]
    return np.mean(best)


def test_average_precisions_are_those_of_the_published_codes():
    scores, truth, labels = drawn()
    result = evaluate(scores, labels, chunk=7)
    shown = [0, 1, 2]  # no image has a hen
    expected = [tnt_average_precision(scores[:, k], truth[:, k]) for k in shown]
    sklearn = [average_precision_score(truth[:, k], scores[:, k]) for k in shown]
    np.testing.assert_allclose(expected, sklearn)
    for k, value in zip(shown, expected, strict=True):
        metric = result.metrics[f"average_precision/{CLASSES[k]}"]
        np.testing.assert_allclose(metric.value, value)
        assert metric.low <= value <= metric.high
    mean = result.metrics["mean_average_precision"]
    np.testing.assert_allclose(mean.value, np.mean(expected))
    assert (mean.count, mean.ties) == (40, 0)
    points = np.mean([voc_eleven_points(scores[:, k], truth[:, k]) for k in shown])
    eleven = result.metrics["mean_average_precision_11_points"]
    np.testing.assert_allclose(eleven.value, points)
    assert eleven.low < points < eleven.high
    assert result.details["classes_without_images"] == ["hen"]


@pytest.mark.parametrize("seed", [0, 1])
def test_ties_count_as_strict_or_as_the_mean_over_random_orders(seed):
    rng = np.random.default_rng(seed)
    scores, truth = rng.integers(0, 3, 9).astype(float), rng.random(9) < 0.5
    truth[0] = True
    orders = [scores + 1e-6 * rng.permutation(9) for _ in range(4000)]
    random = np.mean([tnt_average_precision(each, truth) for each in orders])
    half = multilabel.rank(scores, truth, "half").precision.mean()
    np.testing.assert_allclose(half, random, atol=0.01)
    first = tnt_average_precision(scores - 1e-6 * np.arange(9), truth)
    last = tnt_average_precision(scores + 1e-6 * np.arange(9), truth)
    assert multilabel.rank(scores, truth, "first_index").precision.mean() == pytest.approx(first)
    assert multilabel.rank(scores, truth, "last_index").precision.mean() == pytest.approx(last)
    strict = multilabel.rank(scores, truth, "strict").precision
    shared = np.isin(scores, scores[~truth])[truth]
    assert sorted(strict == 0) == sorted(shared)


def test_the_interval_is_that_of_resampled_images():
    scores, truth, labels = drawn(2)
    rng = np.random.default_rng(5)
    found = []
    for _ in range(1000):
        rows = rng.integers(0, 40, 40)
        tiny = 1e-9 * np.arange(40)
        each = [tnt_average_precision(scores[rows, k] - tiny, truth[rows, k]) for k in (0, 2)]
        found.append(np.mean(each))
    few = [tuple(label for label in labels_of if label != 1) for labels_of in labels]
    mean = evaluate(scores, few).metrics["mean_average_precision"]
    np.testing.assert_allclose((mean.low, mean.high), np.percentile(found, (2.5, 97.5)), atol=0.02)


def test_rows_have_the_classes_of_the_image_first():
    scores, _, labels = drawn()
    result = evaluate(scores, labels)
    n = next(n for n, each in enumerate(labels) if len(each) == 2)
    row = result.per_example[n]
    assert {CLASSES.index(name) for name in row["captions"][:2]} == {*labels[n]}
    assert row["scores"][0] > row["scores"][1]
    assert row["correct"] == (int(scores[n].argmax()) in labels[n])


@pytest.mark.parametrize("labels", [[(0, 4)], [3], [None], [], [(), ()]])
def test_unusable_cases_are_refused(labels, constant_scorer):
    rule = r"labels'\], of 0 \.\.\. 3; case '0' of 'b' has 1 images|'b' has no cases|has a label"
    with pytest.raises(DataError, match=rule):
        multilabel.evaluate(benchmark(labels), constant_scorer)
