"""REPLACE and SWAP: the authors' rules rebuild their published captions."""

import collections
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest

from tests.support.generators import made
from vlc_jax.input_pipeline.hard_texts import foils, word_tables
from vlc_jax.input_pipeline.hard_texts.replace_swap import (
    CATEGORIES,
    RELATIONS,
    Replace,
    Swap,
    replace,
)

DATA = os.environ.get("VLC_BENCHMARK_DATA")
needs_data = pytest.mark.skipif(
    not DATA, reason="VLC_BENCHMARK_DATA names no folder of annotation files"
)
ATTRIBUTES = CATEGORIES[:4]


@pytest.mark.parametrize(
    ("category", "caption", "text"),
    [
        ("color", "blue sky over a white car", "blue sky over a ivory car"),  # white is tried first
        ("color", "plant covered in leaves", "plant covecrimson in leaves"),
        ("state", "wetsuit on a man", "dampsuit on a man"),
        ("size", "small small dog", "tiny tiny dog"),
        ("spatial_relation", "trees behind behind", "trees to the rear of behind"),
        ("spatial_relation", "Man in front of house", "man within front of house"),
        ("spatial_relation", "Chair IN room", "chair within room"),
        ("spatial_relation", "in a room", None),  # no space before it
        ("action_relation", "man riding on a horse", "man traveling on a horse"),
        ("action_relation", "man riding a horse", "man traveling on a horse"),
        ("action_relation", "woman WEARING wearing hat", "woman in wearing hat"),
        ("action_relation", "woman wearing wearing a hat", "woman in wearing a hat"),
        ("action", "a dog", None),
    ],
)
def test_authors_replace_the_first_phrase_of_the_table(category, caption, text):
    assert replace(caption, word_tables.REPLACE[category], category in RELATIONS) == text
    assert made(Replace([category], mode="authors"), caption) == ([] if text is None else [text])


@pytest.mark.parametrize(
    ("category", "caption", "texts"),
    [
        (
            "color",
            "Blue sky over a white car.",
            ["Sapphire sky over a white car.", "Blue sky over an ivory car."],
        ),
        ("color", "a green, covered hat", ["an emerald, covered hat"]),
        ("color", "an orange and black cat", ["an orange and ebony cat"]),
        ("spatial_relation", "a man in front of a house", []),
        ("spatial_relation", "a man in the back of a van", []),
        ("spatial_relation", "a man in middle of a road", []),
        ("spatial_relation", "in between cars", []),
        ("spatial_relation", "a man in white", []),
        ("spatial_relation", "a surfer in a wet black suit", []),
        ("spatial_relation", "a zebra in the wild", []),
        ("spatial_relation", "a man in a car", ["a man within a car"]),
        ("spatial_relation", "the best by far", []),
        ("spatial_relation", "a horse ridden by a man", []),
        ("spatial_relation", "men by a bed by a wall", ["men near a bed near a wall"]),
        ("action", "a sitting room", []),
        ("action_relation", "a cat in a sitting room", []),
        ("action_relation", "a cat sitting", ["a cat seated"]),
        ("spatial_relation", "In a house", ["Within a house"]),
        ("spatial_relation", "a cup on top of a bed", ["a cup on a bed"]),
        ("action_relation", "man riding on a horse", ["man traveling on a horse"]),
        ("action_relation", "woman wearing wearing a hat", ["woman in in a hat"]),
    ],
)
def test_clean_replaces_whole_words_longest_first(category, caption, texts):
    assert made(Replace([category], mode="clean"), caption) == texts


def test_each_category_gives_a_text_and_count_draws_from_them():
    caption = "a large black dog walking in a wet room"
    texts = made(Replace(mode="authors"), caption)
    assert texts == [
        "a large black dog strolling in a wet room",
        "a large ebony dog walking in a wet room",
        "a big black dog walking in a wet room",
        "a large black dog walking in a damp room",
        "a large black dog walking within a wet room",
    ]
    drawn = {
        Replace(mode="authors")(caption, np.random.default_rng(seed), 1)[0] for seed in range(100)
    }
    assert drawn == set(texts)


def pairs(name: str) -> list[tuple[str, str, str]]:
    """(caption, hard negative, hard positive) as published."""
    root = Path(DATA) / "hard_positives"
    plain, swapped = (json.loads((root / f / f"{name}.json").read_text()) for f in FOLDERS)
    return [
        (a["true_caption"], a["false_caption"], b["true_caption"])
        for a, b in zip(plain, swapped, strict=True)
    ]


FOLDERS = ("data", "swapped_data")


def checklist(name: str) -> list[tuple[str, str]]:
    rows = json.loads((Path(DATA) / "vl_checklist_vg" / f"{name}.json").read_text())
    return [(texts["POS"][0], texts["NEG"][0]) for _, texts in rows]


@needs_data
def test_published_attribute_positives_are_rebuilt_exactly():
    """A row is taken if its two captions differ by one word of the category's table."""
    scanned, rebuilt = 0, []
    for category in ATTRIBUTES:
        table = word_tables.REPLACE[category]
        for true, false in checklist(f"attribute_{category}"):
            scanned += 1
            other = [word for word in true.split() if word not in false.split()]
            if len(other) == 1 and other[0] in table:
                rebuilt.append((true, false, replace(true, table, False)))
    published = pairs("vl_checklist_attributes")
    assert scanned == 17_097
    assert len(published) == 10_575
    assert rebuilt == published


@needs_data
def test_all_published_relation_positives_are_rebuilt():
    """First the spatial rows whose negative says "out of" for "IN", then all others."""
    spatial, action = (word_tables.REPLACE[category] for category in RELATIONS)
    inside = {phrase: spatial[phrase] for phrase in ("in", "IN")}
    small = {phrase: new for phrase, new in spatial.items() if phrase.islower()}
    rows = checklist("relation_spatial")
    chosen = [
        row for row in rows if " IN " in row[0] and row[1] == row[0].replace(" IN ", " out of ")
    ]
    blocks = [(chosen, inside), (rows, small), (checklist("relation_action"), action)]
    rebuilt = [
        (true.lower(), false.lower(), text)
        for block, table in blocks
        for true, false in block
        if (text := replace(true, table, True)) is not None
    ]
    published = pairs("vl_checklist_relations")
    assert len(published) == 16_868
    assert rebuilt == published


@needs_data
def test_clean_mends_the_broken_published_texts():
    """10 attributes replaced inside words; 1,374 relations that read "within front of", "within
    shirt", "within hand" or the like, 10 that say a word twice, 4 that split another expression
    ("seated up") and 2 of "covered by"; besides, articles.
    """

    def missed(name, categories):
        generator = Replace(categories, mode="clean")
        for true, _, text in pairs(name):
            plain = re.sub(r"\ban\b", "a", text)
            if plain not in [re.sub(r"\ban\b", "a", t) for t in made(generator, true, 99)]:
                yield text

    assert len(list(missed("vl_checklist_attributes", ATTRIBUTES))) == 10
    relations = list(missed("vl_checklist_relations", RELATIONS))
    assert sum(" within " in text for text in relations) == 1_374
    assert len(relations) == 1_390


def test_swap_is_its_own_inverse_and_keeps_the_bag_of_words():
    caption = "the paved road and the white house"
    (text,) = made(Swap(mode="authors"), caption)
    assert text == "the white house and the paved road"
    assert made(Swap(mode="authors"), text) == [caption]
    colored = "the black road and the white house"
    (negative,) = made(foils.CrepeSwap(["color"]), colored)
    (positive,) = made(Swap(mode="authors"), colored)
    bags = [collections.Counter(each.split()) for each in (colored, negative, positive)]
    assert bags[0] == bags[1] == bags[2]
    assert len({colored, negative, positive}) == 3


@pytest.mark.parametrize(
    "caption", ["a road and a house", "The road and the house", "in the road and the house", "x"]
)
def test_authors_swap_nothing_but_the_whole_caption(caption):
    assert made(Swap(mode="authors"), caption) == []


@pytest.mark.parametrize(
    ("caption", "texts"),
    [
        ("A road and an old house.", ["An old house and a road."]),
        ("The road and the house", ["The house and the road"]),
        ("a black and white cat", ["a white and black cat"]),
        ("an orange and black cat", ["a black and orange cat"]),
        ("a man and a young boy play a game", []),
        ("a man on a horse and a dog", []),
        ("a cup and a bowl and a plate", []),
        ("a dog and a dog", []),
        ("A big and a small dog", []),
        ("a wooden and a metal chair", []),
        ("A cat and a half", []),
        ("An apple and an orange", ["An orange and an apple"]),
    ],
)
def test_clean_swaps_what_certainly_is_joined(caption, texts):
    assert made(Swap(mode="clean"), caption) == texts


def test_with_a_tagger_any_two_joined_noun_phrases_are_swapped(tags):
    caption = "The big dog and the tiny cat isn't here"
    assert made(Swap(mode="clean"), caption) == []
    assert made(Swap(mode="clean", tagger=tags), caption) == [
        "The tiny cat and the big dog isn't here"
    ]
    assert made(Swap(mode="clean", tagger=tags), "a big and a small dog") == []
