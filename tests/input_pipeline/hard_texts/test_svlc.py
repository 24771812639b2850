"""SVLC's rule-based negatives, with the authors' quirks and without."""

import csv
import os
import re
from pathlib import Path

import numpy as np
import pytest

from tests.support.generators import every
from vlc_jax.input_pipeline.hard_texts import word_tables
from vlc_jax.input_pipeline.hard_texts.svlc import SvlcRule

DATA = os.environ.get("VLC_BENCHMARK_DATA")


def test_authors_replace_letters_and_clean_whole_words():
    caption = "a bird sitting in a ring"
    authors = SvlcRule(["action"], mode="authors")
    assert "a bird sittnearg near a rnearg" in every(authors, caption)
    clean = every(SvlcRule(["action"], mode="clean"), caption)
    assert "a bird sitting near a ring" in clean
    assert all(text.startswith("a bird sitting ") and text.endswith(" a ring") for text in clean)


def test_authors_miss_words_beside_signs_and_in_capitals():
    for caption in ("the car is red.", "Red", "it is attached to"):
        assert every(SvlcRule(["color", "action"], mode="authors"), caption) == set()
    clean = SvlcRule(["color", "action"], mode="clean")
    assert "the car is green." in every(clean, "the car is red.")
    assert "Green" in every(clean, "Red")
    assert "it is in front of" in every(clean, "it is attached to")


def test_authors_draw_a_class_by_letters_and_may_find_no_word():
    caption = "a red cup placed"  # "lace" is of the class material, and here no word
    assert SvlcRule(["material"], mode="authors")(caption, np.random.default_rng(0), 1) == []
    both = SvlcRule(["color", "material"], mode="authors")
    draws = [both(caption, np.random.default_rng(seed), 1) for seed in range(400)]
    assert 150 < sum(not texts for texts in draws) < 250
    clean = SvlcRule(["color", "material"], mode="clean")
    assert all(clean(caption, np.random.default_rng(seed), 1) for seed in range(20))


def test_all_words_of_the_class_come_in_but_the_captions():
    texts = every(SvlcRule(["color"], mode="authors"), "a red car by a blue bus", 3000)
    for old in ("red", "blue"):
        new = {text.split()[1 if old == "red" else 5] for text in texts} - {old}
        assert new == set(word_tables.SVLC_CLASSES["color"]) - {"red", "blue"}
    clean = every(SvlcRule(["color"], mode="clean"), "a red car by a blue bus", 3000)
    assert {text.split()[1] for text in clean} >= {"red", "teal", "green"}
    assert "a blue car by a blue bus" not in clean


def test_clean_draws_no_synonym_and_puts_articles_right():
    texts = every(SvlcRule(["size"], mode="clean"), "a big dog", 3000)
    new = {text.split()[1] for text in texts}
    assert {"small", "narrow", "endless"} <= new
    assert not new & {"big", "large", "huge", "enormous", "massive"}
    assert {"an endless dog", "an unlimited dog", "an emaciated dog", "a small dog"} <= texts
    assert not {"a endless dog", "an small dog"} & texts


def test_clean_knows_the_mended_words():
    clean = SvlcRule(["material", "state"], mode="clean")
    assert every(clean, "a bamboo forest")
    assert every(clean, "a good stool")
    assert not any("stainedgood" in text for text in every(clean, "a calm sea", 999))


def test_clean_leaves_fixed_phrases_alone():
    clean = SvlcRule(mode="clean")
    for caption in (
        "a cup next to it",
        "they see each other",
        "a cup on top of it",
        "a cup sitting on top of it",
    ):
        assert every(clean, caption) == set()
    assert every(clean, "the next cup")
    assert every(SvlcRule(mode="authors"), "a cup next to it")


def titles() -> list[str]:
    path = Path(DATA) / "neg_clip/valid_neg_clip.tsv"
    with path.open(newline="", encoding="utf-8") as file:
        return [row["title"] for row in csv.DictReader(file, delimiter="\t")]


CLASS_WORDS = {
    part
    for words in word_tables.SVLC_CLASSES.values()
    for each in (*words, "good", "a", "an")
    for part in re.findall(r"\w+", each)
}


def spoils_a_word(caption: str, text: str) -> bool:
    """Whether text holds a word that is neither the caption's nor one of the classes."""
    before, after = (set(re.findall(r"\w+", each.lower())) for each in (caption, text))
    return bool(after - before - CLASS_WORDS)


@pytest.mark.skipif(not DATA, reason="VLC_BENCHMARK_DATA names no folder of annotation files")
def test_rates_on_the_published_captions():
    """27.5 % without a text, 12.2 % of the texts with a spoiled word: counted on the authors' rule
    with another generator of random numbers; mode clean spoils none.
    """
    captions, rng = titles(), np.random.default_rng(0)
    made = [(caption, SvlcRule(mode="authors")(caption, rng, 1)) for caption in captions]
    texts = [(caption, texts[0]) for caption, texts in made if texts]
    assert 1 - len(texts) / len(captions) == pytest.approx(0.275, abs=0.015)
    spoiled = sum(spoils_a_word(*each) for each in texts)
    assert spoiled / len(texts) == pytest.approx(0.122, abs=0.015)

    clean = SvlcRule(mode="clean")
    made = [(caption, clean(caption, rng, 1)) for caption in captions]
    texts = [(caption, texts[0]) for caption, texts in made if texts]
    assert len(texts) > 0.9 * len(captions)
    assert not any(spoils_a_word(*each) for each in texts)
