"""Scores by segments of texts: phrases found by rules, each with its best part of the image."""

import numpy as np
import pytest

from vlc_jax import evaluators
from vlc_jax.encode import segments
from vlc_jax.errors import UsageError
from vlc_jax.evaluators import scorer as scorers
from vlc_jax.evaluators.scorer import Scorer
from vlc_jax.input_pipeline.benchmarks import Benchmark, Case
from vlc_jax.input_pipeline.hard_texts import bindings
from vlc_jax.types import ImageFeatures, TextFeatures

WORDS = ("red", "blue", "dog", "cat", "grass")
TEXTS = ["a red dog and a blue cat", "grass", "there", "a red dog on the grass and a cat", "there"]


def words(texts, known=WORDS):
    """A bag of words: a text is the sum of the axes of the known ones."""
    counts = [[text.split().count(word) for word in known] for text in texts]
    rows = np.array(counts, np.float32) + 0.1
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def of_pixels(images):
    """A bag of colours: the mean of the pixels, whose three channels are the first three axes."""
    rows = np.stack([np.append(image.mean(axis=(0, 1)) / 255, [0.2, 0.1]) for image in images])
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def model(of_image, patches=None, of_text=words):
    def own(images, texts):
        grouped = texts.pooled.reshape(len(images.pooled), -1, images.pooled.shape[1])
        return (images.pooled[:, None] * grouped).sum(axis=2)

    plain = Scorer(
        lambda images: ImageFeatures(of_image(images)),
        lambda texts: TextFeatures(of_text(texts)),
        lambda images, texts: images.pooled @ texts.pooled.T,
        own,
        image_tokens=patches,
        is_cosine=True,
    )
    return plain._replace(by_segments=lambda how: segments.scoring(plain, how))


@pytest.fixture
def bag():
    """Images are captions as bytes; patches are their parts between ";"."""

    def patches(images):
        parts = [words(image.decode().split(";")) for image in images]
        return ImageFeatures(np.zeros((len(parts), 1)), np.stack(parts))

    return model(lambda images: words([im.decode().replace(";", " ") for im in images]), patches)


@pytest.mark.parametrize(
    ("text", "phrases", "relations"),
    [
        (
            "a photo of a big red square to the left of a blue circle",
            ["a big red square", "a blue circle"],
            ["a big red square to the left of a blue circle"],
        ),
        ("a red dog and a cat", ["a red dog", "a cat"], []),
        (
            "A dog sits next to a man in a red hat.",
            ["A dog", "a man", "a red hat"],
            ["A dog sits next to a man", "a man in a red hat"],
        ),
        ("a dog and a dog", ["a dog"], []),
        ("here they are", [], []),
    ],
)
def test_segments_are_noun_phrases_and_two_with_a_relation(text, phrases, relations):
    tagged = bindings.make_tagger("words")(text)
    assert segments.find(text, tagged, relations=False) == phrases
    assert segments.find(text, tagged, relations=True) == phrases + relations
    how = scorers.segments({"relations": True})
    assert segments.texts([text, text], how) == phrases + relations


def oracle(whole, parts, of_text, how):
    """The formula of vlc_jax/encode/segments.py for one pair."""
    if not of_text:
        return whole
    top = [np.mean(sorted(part @ words([s])[0] for part in parts)[-how.best :]) for s in of_text]
    return (1 - how.weight) * whole + how.weight * np.mean(top)


@pytest.mark.parametrize(
    "value", [True, {"weight": 0.3, "best": 2, "relations": True}, {"best": 9}]
)
def test_patches_give_the_formulas_scores(bag, value):
    images = [b"red dog;blue cat;grass", b"blue;red;dog cat", b"cat;cat;dog"]
    how = scorers.segments(value)
    found = evaluators.in_segments(bag, how)
    image, text = found.embed_images(images), found.embed_texts(TEXTS)
    plain = bag.score(bag.embed_images(images), bag.embed_texts(TEXTS))
    of_texts = [segments.texts([each], how) for each in TEXTS]
    parts = bag.image_tokens(images).tokens
    expected = [
        [oracle(plain[i, j], parts[i], own, how) for j, own in enumerate(of_texts)]
        for i in range(3)
    ]
    scores = found.score(image, text)
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    # a text without segments keeps its score to the last bit, and equal texts tie
    np.testing.assert_array_equal(scores[:, 2], plain[:, 2])
    np.testing.assert_array_equal(scores[:, 2], scores[:, 4])
    options = found.embed_texts(TEXTS[:3] + TEXTS[3:] + TEXTS[:1])
    own = np.take_along_axis(np.array(scores)[:, [0, 1, 2, 3, 4, 0]], np.arange(6).reshape(3, 2), 1)
    np.testing.assert_allclose(found.score_options(image, options), own, atol=1e-6)


def test_a_bag_of_words_binds_attributes_by_its_patches(bag):
    caption, wrong = "a red dog and a blue cat", "a blue dog and a red cat"
    cases = [Case("0", (b"red dog;blue cat",), (caption, wrong))]
    benchmark = Benchmark("b", cases, "v")
    for value, expected in ((False, 0.0), (True, 1.0), ({"weight": 0.0}, 0.0)):
        result = evaluators.evaluate("choice", benchmark, bag, segments=value)
        assert result.metrics["accuracy"].value == expected


def test_a_bag_of_colours_binds_by_crops():
    picture = np.zeros((24, 36, 3), np.uint8)
    picture[:12, :18], picture[12:, 18:] = [255, 0, 255], [0, 255, 0]  # "red dog", "blue"
    bag = model(of_pixels)
    crops = [*segments.crops(picture, (1, 2, 3))]
    assert [crop.shape[:2] for crop in crops] == [(24, 36)] + 4 * [(16, 24)] + 9 * [(12, 18)]
    np.testing.assert_array_equal(crops[0], picture)
    np.testing.assert_array_equal(crops[5], picture[:12, :18])
    np.testing.assert_array_equal(crops[4], picture[8:, 12:])
    assert [crop.shape[:2] for crop in segments.crops(picture[:1, :2], (2,))] == 4 * [(1, 1)]

    how = scorers.segments("crops")
    assert (how.weight, how.relations) == (1.0, True)
    found = evaluators.in_segments(bag, how)
    image = found.embed_images([picture, picture[:, ::-1]])
    assert image.tokens.shape == (2, 14, len(WORDS))
    texts = found.embed_texts(["a red dog and a blue cat"])
    parts = [of_pixels(segments.crops(each, how.grids)) for each in (picture, picture[:, ::-1])]
    own = segments.texts(["a red dog and a blue cat"], how)
    expected = [[oracle(0.0, each, own, how)] for each in parts]
    np.testing.assert_allclose(found.score(image, texts), expected, atol=1e-6)


def test_what_has_no_segments_is_refused(bag):
    benchmark = Benchmark("b", [Case("0", (b"dog",), ("a dog", "a cat"))], "v")
    for other, message in (
        (bag._replace(is_cosine=False), "no dot product of two embeddings: .*segments out"),
        (bag._replace(by_segments=None), "only functions of whole images and texts"),
    ):
        with pytest.raises(UsageError, match=message):
            evaluators.evaluate("choice", benchmark, other, segments=True)
    with pytest.raises(UsageError, match=r"unknown tagger 'wrods'; did you mean 'words'"):
        evaluators.evaluate("choice", benchmark, bag, segments={"tagger": "wrods"})
    for options, message in (
        ({"segments": "boxes"}, "unknown regions of segments 'boxes'"),
        ({"segments": {"wieght": 1}}, "unknown option of segments 'wieght'"),
        ({"segments": {"regions": ["crops"]}}, "unknown regions of segments"),
        ({"segments": {"weight": 2}}, "segments.weight is from 0 to 1; got 2"),
        ({"segments": {"weight": "a"}}, "segments.weight is from 0 to 1; got 'a'"),
        ({"segments": {"best": 0}}, "is a list of such; got 0"),
        ({"segments": {"best": 1.5}}, r"is a list of such; got 1\.5"),
        ({"segments": {"regions": "crops", "grids": ()}}, r"list of such; got 1 and \(\)"),
        ({"segments": {"regions": "crops", "grids": 3}}, "is a list of such; got 1 and 3"),
        ({"segments": {"relations": "no"}}, "segments.relations is a bool; got 'no'"),
        ({"segments": {"tagger": 5}}, "segments.tagger is a str; got 5"),
        ({"segments": 3}, "segments is True, patches, crops or a dict"),
        ({"segments": True, "negation": True}, "change the same scores: leave one out"),
        ({"segments": True, "protocol": "keywords"}, "compares no embeddings: no segments"),
    ):
        with pytest.raises(UsageError, match=message):
            evaluators.check("choice", options)
