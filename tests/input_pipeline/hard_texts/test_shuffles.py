"""ARO's shuffles: which words may go where."""

import numpy as np
import pytest

from vlc_jax.input_pipeline.hard_texts import edit
from vlc_jax.input_pipeline.hard_texts.negatives import NEGATIVES

CAPTION = "A young boy quickly threw the red ball over a very tall fence."
NOUNS, ADJECTIVES = {2, 7, 12}, {1, 6, 11}


def draws(name, caption=CAPTION, count=40, **options):
    generator = NEGATIVES[name](**options)
    return list(generator(caption, np.random.default_rng(0), count))


def places(text):
    """Where each token of CAPTION stands in the text; its tokens are all different but "a"."""
    before, after = edit.treebank(CAPTION.lower()), edit.treebank(text.lower())
    assert sorted(before) == sorted(after)
    return before, after


@pytest.mark.parametrize("mode", ["authors", "clean"])
def test_nouns_and_adjectives_move_among_themselves(tags, mode):
    seen = {place: set() for place in range(14)}
    for text in draws("shuffle_nouns_and_adjectives", tagger=tags, mode=mode):
        before, after = places(text)
        for i, word in enumerate(after):
            seen[i].add(word)
    for i, words in seen.items():
        group = next((g for g in (NOUNS, ADJECTIVES) if i in g), {i})
        assert words == {before[k] for k in group}


@pytest.mark.parametrize("mode", ["authors", "clean"])
def test_all_but_nouns_and_adjectives_move_and_these_stay(tags, mode):
    texts = draws("shuffle_all_but_nouns_and_adjectives", tagger=tags, mode=mode)
    moved = set()
    for text in texts:
        before, after = places(text)
        assert all(before[i] == after[i] for i in NOUNS | ADJECTIVES)
        moved |= {i for i in range(14) if before[i] != after[i]}
    period = {13} if mode == "authors" else set()
    assert moved == set(range(13)) - NOUNS - ADJECTIVES | period


def test_within_trigrams_keeps_each_group_of_three():
    texts = draws("shuffle_within_trigrams", mode="authors")
    for text in texts:
        before, after = edit.treebank(CAPTION), text.split()
        for i in range(0, 14, 3):
            assert sorted(after[i : i + 3]) == sorted(before[i : i + 3])
    assert len(texts) > 30


def test_trigrams_stay_whole_and_change_places():
    before = edit.treebank(CAPTION)
    groups = [" ".join(before[i : i + 3]) for i in range(0, 14, 3)]
    texts = draws("shuffle_trigrams", mode="authors")
    for text in texts:
        assert sorted(groups) == sorted(group for group in groups if group in text)
    assert len(texts) > 20


def test_words_are_split_at_spaces_alone():
    for text in draws("shuffle_words", mode="authors"):
        assert sorted(text.split(" ")) == sorted(CAPTION.split())
        assert "fence." in text.split(" ")


def test_authors_join_punctuation_and_may_keep_the_order():
    assert draws("shuffle_trigrams", "a dog, here", mode="authors") in (
        ["a dog , here", "here a dog ,"],
        ["here a dog ,", "a dog , here"],
    )
    assert draws("shuffle_within_trigrams", "dog", mode="authors") == ["dog"]


@pytest.mark.parametrize("name", ["shuffle_within_trigrams", "shuffle_trigrams", "shuffle_words"])
def test_clean_shuffles_leave_signs_and_never_the_order(name):
    caption = 'A  "red" t-shirt, and two dogs.'
    words = ["A", "red", "t-shirt", "and", "two", "dogs"]
    texts = draws(name, caption, mode="clean")
    assert texts
    for text in texts:
        found = [text[slice(*span)] for span in edit.spans(text)]
        assert sorted(found) == sorted(words)
        assert found != words
        assert edit.apply(text, [(*s, "_") for s in edit.spans(text)]) == '_  "_" _, _ _ _.'
    assert draws(name, "dog dog Dog", mode="clean") == []
    assert draws(name, "dog", mode="clean") == []


@pytest.mark.parametrize(
    ("caption", "tokens"),
    [
        ('He doesn\'t say "stop,"', "He does n't say `` stop , ''"),
        ("(it's 3:30)... 1,000 cannot!", "( it 's 3:30 ) ... 1,000 can not !"),
        ("A man's t-shirt. The U.S. flag.", "A man 's t-shirt . The U.S. flag ."),
        ("A bus. The sign.", "A bus . The sign ."),
        ("Dr. Who and Mrs. Poe at St. Ives.", "Dr. Who and Mrs. Poe at St. Ives ."),
        ("A U.S. Army truck by J. Doe.", "A U.S. Army truck by J. Doe ."),
        ("red/blue, 50% -- isn't", "red/blue , 50 % -- is n't"),
    ],
)
def test_treebank_tokens(caption, tokens):
    assert edit.treebank(caption) == tokens.split()
