"""NegCLIP's hard negatives: what the generator does, and what the released table shows."""

import ast
import csv
import os
import re
from pathlib import Path

import numpy as np
import pytest

from tests.support.generators import every
from vlc_jax.input_pipeline.hard_texts import edit
from vlc_jax.input_pipeline.hard_texts.negclip import NegClip, verb_phrases

BOY = "A young boy quickly threw the red ball over a very tall fence."
DOGS = "Two dogs are running, while three cats are sleeping."
DATA = os.environ.get("VLC_BENCHMARK_DATA")


def is_transposition(before: list[str], after: list[str]) -> bool:
    """Whether `after` is `before` with two disjoint runs exchanged, of equal words if it is equal.

    What both begin and end with may be dropped first: if the two runs begin or end alike, their
    rests are exchanged.
    """
    if before == after:
        return len(set(before)) < len(before)
    if sorted(before) != sorted(after):
        return False
    same = [a == b for a, b in zip(before, after, strict=True)]
    first, stop = same.index(False), len(same) - same[::-1].index(False)
    old, new, size = before[first:stop], after[first:stop], stop - first
    return any(
        old[:a] == new[size - a :] and old[size - b :] == new[:b] and old[a:-b] == new[b:-a]
        for a in range(1, size)
        for b in range(1, size - a + 1)
    )


def test_authors_texts_are_the_six_attempts_of_the_paper(tags):
    assert every(NegClip(tags, mode="authors"), BOY) == {
        # noun phrases of more than two words: replaced and lower-cased, spaces as they were
        "the red ball quickly threw a young boy over a very tall fence.",
        "a very tall fence quickly threw the red ball over a young boy.",
        "a young boy quickly threw a very tall fence over the red ball.",
        # nouns: tokens exchanged, joined with single spaces, case kept
        "A young ball quickly threw the red boy over a very tall fence .",
        "A young fence quickly threw the red ball over a very tall boy .",
        "A young boy quickly threw the red fence over a very tall ball .",
        # adverbs
        "A young boy very threw the red ball over a quickly tall fence .",
        # adjectives
        "A red boy quickly threw the young ball over a very tall fence .",
        "A tall boy quickly threw the red ball over a very young fence .",
        "A young boy quickly threw the tall ball over a very red fence .",
    }
    assert every(NegClip(tags, mode="authors"), DOGS) == {
        "two dogs are sleeping, while three cats are running.",  # verb phrases
        "Two cats are running , while three dogs are sleeping .",  # plural nouns
    }


def test_texts_come_in_the_order_of_the_attempts(tags):
    generator = NegClip(tags, mode="authors")
    for seed in range(20):
        phrase, noun, adverb, adjective = generator(BOY, np.random.default_rng(seed), 6)
        assert phrase.islower()
        assert noun.split()[1] == "young" or "very tall ball" in noun
        assert adverb.split()[3] == "very"
        assert adjective.split()[2] == "boy"
    three = [tuple(generator(BOY, np.random.default_rng(seed), 3)) for seed in range(60)]
    assert {tuple(text.islower() for text in texts) for texts in three} == {
        (True, False, False),
        (False, False, False),
    }


def test_verbs_are_exchanged_as_tokens_as_in_the_released_table(tags):
    texts = every(NegClip(tags, mode="authors", verbs="tokens"), DOGS)
    assert "Two dogs are sleeping , while three cats are running ." in texts
    assert "two dogs are sleeping, while three cats are running." not in texts


def test_clean_texts_keep_spaces_and_case_and_put_articles_right(tags):
    generator = NegClip(tags, mode="clean")
    assert every(generator, BOY) == {
        "The red ball quickly threw a young boy over a very tall fence.",
        "A very tall fence quickly threw the red ball over a young boy.",
        "A young boy quickly threw a very tall fence over the red ball.",
        "A young ball quickly threw the red boy over a very tall fence.",
        "A young fence quickly threw the red ball over a very tall boy.",
        "A young boy quickly threw the red fence over a very tall ball.",
        "A young boy very threw the red ball over a quickly tall fence.",
        "A red boy quickly threw the young ball over a very tall fence.",
        "A tall boy quickly threw the red ball over a very young fence.",
        "A young boy quickly threw the tall ball over a very red fence.",
    }
    assert every(generator, "An old cat sat near a red apple.") == {
        "A red apple sat near an old cat.",
        "An old apple sat near a red cat.",
        "A red cat sat near an old apple.",
    }


@pytest.mark.parametrize("mode", ["authors", "clean"])
def test_two_equal_words_are_no_pair(tags, mode):
    assert every(NegClip(tags, mode=mode, conjuncts="keep"), "a dog near a dog.") == set()


def test_clean_draws_among_pairs_that_differ(tags):
    generator = NegClip(tags, mode="clean")
    for seed in range(30):
        assert generator("a dog near a dog by a cat", np.random.default_rng(seed), 1)


def test_names_keep_their_capitals_wherever_they_go():
    caption, anna, tom = "Anna sees a cat and Tom", (0, 4), (20, 23)
    assert edit.exchange(caption, anna, tom, names=[anna, tom]) == "Tom sees a cat and Anna"
    assert edit.exchange(caption, anna, (10, 15), names=[anna]) == "A cat sees Anna and Tom"
    assert edit.exchange("I see NASA", (0, 1), (6, 10)) == "NASA see I"
    assert edit.exchange("The cat sees a dog", (0, 7), (13, 18)) == "A dog sees the cat"


def test_conjuncts_are_exchanged_in_clean_only_where_asked(tags):
    caption, swapped = "a yellow and blue hydrant", "a blue and yellow hydrant"
    assert every(NegClip(tags, mode="authors"), caption) == {swapped}
    assert every(NegClip(tags, mode="authors", conjuncts="drop"), caption) == set()
    assert every(NegClip(tags, mode="clean"), caption) == set()
    assert every(NegClip(tags, mode="clean", conjuncts="keep"), caption) == {swapped}
    chain = "a man and a woman near a dog"  # nor the two ends of such a chain
    assert every(NegClip(tags, mode="clean"), chain) == set()
    assert len(every(NegClip(tags, mode="clean", conjuncts="keep"), chain)) == 3


@pytest.mark.parametrize(
    ("between", "is_symmetric"),
    [
        (" and ", True), (" and the ", True), (", ", True), (", a pen, and ", True),
        (" next to a ", True), (" or ", True), (" near ", True), (", two pens and a ", True),
        (" ", False), (" hydrant and ", False), (" on ", False), (" and red ", False),
        (" next to a red ", False), (", while three ", False),
    ],
)  # fmt: skip
def test_words_with_these_between_them_are_symmetric(between, is_symmetric):
    assert edit.is_symmetric(between) == is_symmetric


@pytest.mark.parametrize(
    ("parts", "runs"),
    [
        ("NOUN VERB NOUN VERB", [(1, 2), (3, 4)]),
        ("NOUN VERB ADV AUX VERB VERB NOUN", [(1, 6)]),
        ("ADV AUX VERB ADV", [(0, 3)]),
        ("AUX ADV VERB", [(1, 3)]),
        ("VERB VERB AUX VERB", [(0, 1), (1, 4)]),  # two verbs cannot begin a run of three kinds
        ("NOUN AUX ADJ", []),
        ("", []),
    ],
)
def test_verb_phrases_are_the_longest_runs(parts, runs):
    assert verb_phrases(parts.split()) == runs


@pytest.mark.skipif(not DATA, reason="VLC_BENCHMARK_DATA names no folder of annotation files")
def test_the_released_negatives_are_transpositions():
    """Of 7,370 all but six: four have "n't" cut off, one "thats", one replaces a phrase twice."""
    path = Path(DATA) / "neg_clip/valid_neg_clip.tsv"
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    transposed = total = phrases = with_spaces = 0
    for row in rows:
        for place, text in enumerate(ast.literal_eval(row["neg_caption"])):
            title = row["title"]
            is_phrase = text == text.lower() and title != title.lower()
            title = title.lower() if is_phrase else title
            before, after = (re.findall(r"\w+|[^\w\s]", each) for each in (title, text))
            total += 1
            transposed += is_transposition(before, after)
            if is_phrase:
                assert place == 0
                phrases += 1
                before, after = (re.findall(r"\w+|\s+|[^\w\s]", each) for each in (title, text))
                with_spaces += is_transposition(before, after)
    assert (transposed, total) == (7_364, 7_370)
    assert (with_spaces, phrases) == (825, 826)  # the other one replaces a phrase twice
