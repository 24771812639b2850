"""Negation without training: phrases found by rules, and their part of an embedding taken out."""

import functools

import numpy as np
import pytest

from tests.encode import test_segments
from vlc_jax import evaluators
from vlc_jax.errors import UsageError
from vlc_jax.evaluators import negation
from vlc_jax.input_pipeline.benchmarks import Benchmark, Case

WORDS = ("dog", "cat", "hat", "neutral", "calm")
CASES = [Case("0", (b"dog",), ("a dog and no cat", "a cat and no dog"))]


@pytest.fixture
def bag():
    """A bag of words that does not know "no"."""
    embed = functools.partial(test_segments.words, known=WORDS)
    return test_segments.model(lambda images: embed(map(bytes.decode, images)), of_text=embed)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a red circle and no square", "square"),
        ("A photo of a cat but not flower", "flower"),
        ("No fork is present, but a baker works in the kitchen.", "fork"),
        ("This image does not include a chair.", "a chair"),
        ("A man cooks, but a chair is not present in this image", "a chair"),
        ("a man isn’t wearing a hat, but a tie", "wearing a hat"),
        ("a boy does n't have a shoe", "a shoe"),
        ("a dog is absent; a cat sleeps", "a dog"),
        ("a street without a car and a tree", "a car"),
        ("a man has no hat and wears a coat", "hat"),
        ("no dogs and no cats", "dogs and cats"),
        ("no dogs or cats on the street", "dogs or cats on the street"),
        ("There is no chair in sight.", "chair"),
        ("an empty road devoid of cars", "cars"),
        ("A dog can't be seen, but a cat", "a dog"),
        ("a dog couldn't be found", "a dog"),
        ("No dog can be seen in this image", "dog"),
        # nothing is negated
        ("a dog, not only a cat", ""),
        ("a man not without a hat", ""),
        ("plates with and without food", ""),
        ("a knot in a north canyon, a notable nobody", ""),
        ("No.", ""),
    ],
)
def test_the_negated_phrase(text, expected):
    assert negation.phrase(text) == expected


def test_the_correction_is_equation_2_of_the_paper():
    rng = np.random.default_rng(0)
    text, negated = rng.normal(size=(2, 4, 6)).astype(np.float32)
    anchor = rng.normal(size=6).astype(np.float32)
    found = negation.corrected(text, negated, anchor, 1.9)
    for row, e, n in zip(found, text, negated, strict=True):
        expected = e - 1.9 * (e.dot(n) / n.dot(n) * n - anchor)
        np.testing.assert_allclose(row, expected / np.linalg.norm(expected), rtol=1e-5)
    # without an anchor and at strength 1 nothing of the phrase is left
    left = negation.corrected(text, negated, 0 * anchor, 1.0)
    np.testing.assert_allclose(np.sum(left * negated, axis=1), 0, atol=1e-5)


def test_only_texts_that_negate_change(bag):
    corrects = negation.correcting(bag, negation.options({"anchor": ["neutral", "calm"]}))
    texts = ["a dog", "a dog and no cat", "a cat", "a hat and no cat"]
    plain, found = bag.embed_texts(texts).pooled, corrects.embed_texts(texts).pooled
    np.testing.assert_array_equal(found[[0, 2]], plain[[0, 2]])
    assert (found[[1, 3], 1] < 0).all()
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-6)
    # whatever the texts beside it
    np.testing.assert_array_equal(corrects.embed_texts(texts[3:]).pooled, found[3:])
    np.testing.assert_array_equal(corrects.embed_texts(texts[:1]).pooled, plain[:1])


def test_a_bag_of_words_gets_negation_right(bag):
    benchmark = Benchmark("b", CASES, "v")
    for value, expected in ((False, 0.0), (True, 1.0), ({"strength": 0, "anchor": ()}, 0.0)):
        result = evaluators.evaluate("choice", benchmark, bag, negation=value)
        assert result.metrics["accuracy"].value == expected


def test_what_cannot_be_corrected_is_refused(bag):
    benchmark = Benchmark("b", CASES, "v")
    for scorer in (bag._replace(is_cosine=False), bag._replace(is_cosine=False, embeds=False)):
        with pytest.raises(UsageError, match="no dot product of two embeddings: leave negation"):
            evaluators.evaluate("choice", benchmark, scorer, negation=True)
    with pytest.raises(UsageError, match="no dot product"):
        negation.correcting(bag._replace(is_cosine=False), negation.Negation())
    for value, message in (
        ("yes", "negation is True, or some of .*; got 'yes'"),
        ({"strenth": 1}, "unknown option of negation 'strenth'"),
        ({"strength": -1}, "strength is a number from 0 on; got -1"),
        ({"anchor": "neutral"}, "anchor is a list of words; got 'neutral'"),
        ({"phrase": "a cat"}, "has {} in the place of the phrase; got 'a cat'"),
    ):
        with pytest.raises(UsageError, match=message):
            evaluators.check("choice", {"negation": value})
    with pytest.raises(UsageError, match="protocol 'keywords' compares no embeddings"):
        evaluators.check("choice", {"protocol": "keywords", "negation": True})
