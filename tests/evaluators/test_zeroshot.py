import numpy as np
import pytest

from vlc_jax.evaluators import zeroshot
from vlc_jax.evaluators.scorer import Scorer
from vlc_jax.input_pipeline.benchmarks import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.types import ImageFeatures, TextFeatures

CLASSES = ("cat", "dog", "cow", "hen", "pig", "elk", "bee")


def benchmark(labels, classes=CLASSES, templates=("a photo of a {}.",)):
    cases = [
        Case(str(n), (b"%d" % label,), (), meta={"label": label}) for n, label in enumerate(labels)
    ]
    return Benchmark("b", cases, "1", classes, templates)


def vector_scorer(image_vectors, text_vectors, tokens=False):
    """A dot product of the vectors that the names stand for."""

    def embed_texts(texts):
        pooled = np.stack([text_vectors(text) for text in texts])
        return TextFeatures(pooled, pooled[:, None] if tokens else None)

    def embed_images(images):
        return ImageFeatures(np.stack([image_vectors(image) for image in images]))

    def score(images, texts):
        assert tokens == (texts.tokens is not None)
        return images.pooled @ texts.pooled.T

    return Scorer(embed_images, embed_texts, score, score_options=None)


def eye_scorer(mistake=None):
    """Image n shows class n; `mistake` maps a class shown to the class seen."""
    seen = mistake or {}
    image = lambda name: np.eye(7, dtype=np.float32)[seen.get(int(name), int(name))]  # noqa: E731
    text = lambda prompt: np.eye(7, dtype=np.float32)[CLASSES.index(prompt[-4:-1])]  # noqa: E731
    return vector_scorer(image, text)


def test_accuracy_and_mean_per_class_recall_differ_when_classes_do():
    result = zeroshot.evaluate(benchmark([0, 0, 0, 1]), eye_scorer({1: 2}))
    assert result.metrics["accuracy"].value == 3 / 4
    assert result.metrics["mean_per_class_recall"].value == 1 / 2
    assert result.metrics["recall/cat"].value == 1.0
    assert result.metrics["recall/dog"].value == 0.0
    assert result.metrics["accuracy"].chance == 1 / 7
    assert result.metrics["accuracy_top5"].chance == 5 / 7
    np.testing.assert_allclose(result.metrics["mean_per_class_recall"].chance, 1 / 7)
    assert result.per_example[3]["captions"][0] == "dog"
    assert result.per_example[3]["captions"][1] == "cow"
    assert not result.per_example[3]["correct"]


def test_of_classes_with_one_name_the_first_counts_as_in_an_argmax():
    classes = ("cat", "dog", "cat", "cow", "cat", "pig")
    image = lambda name: np.eye(3, dtype=np.float32)[0 if int(name) in (0, 2, 4) else 1]  # noqa: E731
    text = lambda prompt: np.array(["cat" in prompt, "dog" in prompt, 0], np.float32)  # noqa: E731
    scorer = vector_scorer(image, text)
    result = zeroshot.evaluate(benchmark([0, 2, 4, 1], classes), scorer)
    assert [row["correct"] for row in result.per_example] == [True, False, False, True]
    assert result.metrics["accuracy_top5"].value == 1
    assert result.metrics["recall/cat (0)"].value == 1
    assert result.metrics["recall/cat (2)"].value == 0
    assert result.metrics["mean_per_class_recall"].value == 1 / 2
    half = zeroshot.evaluate(benchmark([0, 2, 4, 1], classes), scorer, tie="half")
    assert half.metrics["accuracy"].value == pytest.approx((3 * 1 / 3 + 1) / 4)


def test_top5_needs_more_than_five_classes():
    result = zeroshot.evaluate(benchmark([0], CLASSES[:5]), eye_scorer())
    assert "accuracy_top5" not in result.metrics


def test_prompts_are_averaged_as_unit_vectors():
    # Template 1 gives long vectors; unnormalised they would decide alone.
    vectors = {
        "cat 1": [100, 0], "cat 2": [0, 1], "dog 1": [0, 100], "dog 2": [0, 1],
    }  # fmt: skip
    text = lambda prompt: np.array(vectors[prompt], np.float32)  # noqa: E731
    image = lambda name: np.array([1, 1.1], np.float32)  # noqa: E731
    two = benchmark([0], ("cat", "dog"), ("{} 1", "{} 2"))
    result = zeroshot.evaluate(two, vector_scorer(image, text))
    scores = result.per_example[0]["scores"]
    np.testing.assert_allclose(scores, [2.1 / np.sqrt(2), 1.1], rtol=1e-6)
    assert result.details["templates"] == 2


def test_models_with_text_tokens_average_scores_of_prompts():
    vectors = {"cat 1": [1, 0], "cat 2": [0, 1], "dog 1": [-1, 0], "dog 2": [0, 1]}
    text = lambda prompt: np.array(vectors[prompt], np.float32)  # noqa: E731
    image = lambda name: np.array([0.6, 0.8], np.float32)  # noqa: E731
    two = benchmark([0], ("cat", "dog"), ("{} 1", "{} 2"))
    result = zeroshot.evaluate(two, vector_scorer(image, text, tokens=True))
    np.testing.assert_allclose(result.per_example[0]["scores"], [0.7, 0.1], rtol=1e-6)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (benchmark([9]), "case '0' of 'b' has 1 images"),
        (benchmark([0], CLASSES[:1]), "at least two classes"),
        (benchmark([0], templates=("a photo",)), "'a photo'"),
        (Benchmark("b", [Case("c", (b"0",), ())], "1", CLASSES), "case 'c' of 'b'"),
    ],
)
def test_unusable_benchmarks_are_refused_by_name(bad, message):
    with pytest.raises(DataError, match=message):
        zeroshot.evaluate(bad, eye_scorer())
