"""CREPE-style negatives of our tables."""

import re

import numpy as np
import pytest

from tests.support import helpers
from tests.support.generators import every
from vlc_jax.input_pipeline.hard_texts import foils, word_tables
from vlc_jax.input_pipeline.hard_texts.generator import Token

FRUIT = {f"A {noun}" for noun in ("banana", "pear", "lemon", "strawberry")} | {"An orange"}


@pytest.mark.parametrize(
    ("generator", "caption", "texts"),
    [
        # a contradicting word for the longest phrase, in its number and case
        (foils.CrepeReplace(["relation"]), "a cat in front of a hat", {"a cat behind a hat"}),
        (foils.CrepeReplace(["relation"]), "a cat on top of a hat", {"a cat underneath a hat"}),
        (foils.CrepeReplace(["relation"]), "A cat in a hat.", {"A cat outside a hat."}),
        (foils.CrepeReplace(["object"]), "An apple", FRUIT),
        (foils.CrepeReplace(["object"]), "two knives", {"two forks", "two spoons"}),
        # no word that the caption has already
        (
            foils.CrepeReplace(["object"]),
            "a fork near a knife",
            {"a spoon near a knife", "a fork near a spoon"},
        ),
        (
            foils.CrepeSwap(),
            "a red car on a blue bus",
            {"a blue car on a red bus", "a red bus on a blue car"},
        ),
        (foils.CrepeSwap(), "a red car on two buses", set()),
        (
            foils.CrepeSwap(["color"]),
            "the black road and the white house",
            {"the white road and the black house"},
        ),
        # across a relation that tells the two sides apart
        (
            foils.CrepeSwap(),
            "a man and a woman on a horse",
            {"a horse and a woman on a man", "a man and a horse on a woman"},
        ),
    ],
)
def test_every_text_that_a_caption_has(generator, caption, texts):
    assert every(generator, caption) == texts


def test_replace_keeps_capitals():
    assert "CATS" in every(foils.CrepeReplace(["object"]), "DOGS")


def test_replace_takes_another_word_of_the_caption_for_each_text():
    caption = "a red car on a wooden table"
    texts = foils.CrepeReplace()(caption, np.random.default_rng(0), 5)
    changed = [set(caption.split()) - set(text.split()) - {"a"} for text in texts]
    said = ["car", "on", "red", "table", "wooden"]
    assert sorted(word for words in changed for word in words) == said


def test_no_foil_means_the_same_as_the_word():
    words = foils._foils()
    for word, senses in words.items():
        for _, others in senses:
            assert word not in others
            assert not any(word_tables.same_meaning(word, other) for other in others)
    for word, other in (("large", "big"), ("child", "girl"), ("children", "girls")):
        ((_, others),) = words[word]
        assert other not in others


SUIT = "a smiling woman in an orange space suit eats a pear"
TAGS = "DT VBG NN IN DT JJ NN NN VBZ DT NN"


@pytest.fixture
def tagger(tmp_path):
    starts = [match.start() for match in re.finditer(r"\S+", SUIT)]
    tokens = [
        Token(word, tag, "X", start, start + len(word))._asdict()
        for word, tag, start in zip(SUIT.split(), TAGS.split(), starts, strict=True)
    ]
    rows = [{"tagger": "t", "version": "1"}, {"caption": SUIT, "tokens": tokens, "noun_chunks": []}]
    file = helpers.write_rows(tmp_path / "tags.jsonl", rows)
    return f"precomputed:{file}"


def test_a_word_of_two_classes_is_left_out_without_a_tagger(tagger):
    classes = ["object", "color"]
    for generator in (foils.CrepeSwap(classes), foils.CrepeReplace(classes)):
        assert all("in an orange space" in text for text in every(generator, SUIT))
    tagged = foils.CrepeReplace(classes, tagger)
    by_word = {SUIT[a.start : a.stop]: a.kind for a in tagged.atoms(SUIT)}
    assert by_word == {"woman": "object", "orange": "color", "pear": "object"}
    assert every(foils.CrepeSwap(classes, tagger), SUIT) == {
        "a smiling pear in an orange space suit eats a woman"
    }
    assert tagged.version != foils.CrepeReplace(classes).version


@pytest.mark.parametrize(
    "caption",
    [
        "a dog and a cat",
        "a red and blue car",
        "a dog next to a cat",
        "a cup, a bowl and a plate",
        "it lays down on it",
        "a man and a woman near a dog",
        "a red and blue and green car",
        "a man, a woman and a child next to a dog",
    ],
)
def test_swap_leaves_alone_what_would_mean_the_same(caption):
    assert every(foils.CrepeSwap(), caption) == set()


@pytest.mark.parametrize(
    ("caption", "kind", "texts"),
    [
        ("A dog on a chair.", "caption", {"There is no dog on a chair."}),
        ("there is a dog", "caption", {"there is no dog"}),
        ("the dog on a chair", "object", {"no dog on a chair", "the dog on no chair"}),
        ("a red car", "attribute", {"a car that is not red"}),
        ("An old house", "attribute", {"A house that is not old"}),
        ("two wooden chairs", "attribute", {"two chairs that are not wooden"}),
        ("a red big shiny car", "attribute", set()),
        ("a dog on a chair", "relation", {"a dog not on a chair"}),
        ("a dog not on a chair", "relation", set()),
        ("a dog sitting", "action", {"a dog not sitting"}),
    ],
)
def test_negations(caption, kind, texts):
    assert every(foils.CrepeNegate([kind]), caption) == texts


def test_a_kind_of_negation_is_drawn_before_its_place():
    generator = foils.CrepeNegate(["caption", "object"])
    caption = "a dog, a cat, a man, a car, a bed"
    draws = [generator(caption, np.random.default_rng(seed), 1)[0] for seed in range(400)]
    assert 150 < sum(text.startswith("there is no") for text in draws) < 250
    assert len(generator(caption, np.random.default_rng(0), 99)) == 6
