"""Left/right negatives: the authors' six phrases and their quirks."""

import numpy as np
import pytest

from vlc_jax.input_pipeline.hard_texts.left_right import LeftRight

BOTH = "a cup on the left, a dog on the right"


def made(caption, count=1, seed=0, **options):
    return list(LeftRight(**options)(caption, np.random.default_rng(seed), count))


@pytest.mark.parametrize("mode", ["authors", "clean"])
@pytest.mark.parametrize("word", ["on", "to", "at"])
def test_each_phrase_becomes_its_opposite(mode, word):
    left, right = f"a cup {word} the left of it", f"a cup {word} the right of it"
    assert made(left, mode=mode) == [right]
    assert made(right, mode=mode) == [left]


@pytest.mark.parametrize("mode", ["authors", "clean"])
def test_caption_without_a_phrase_has_no_negative(mode):
    assert made("a man left the room", mode=mode) == []
    assert made("in the left hand, left of it", mode=mode) == []


def test_of_two_phrases_authors_change_the_first_of_the_table_and_clean_both():
    assert made(BOTH, mode="authors") == ["a cup on the right, a dog on the right"]
    assert made("a dog on the right, a cup on the left", mode="authors") == [
        "a dog on the right, a cup on the right"
    ]
    assert made("a dog at the left, to the right", mode="authors") == [
        "a dog at the left, to the left"
    ]
    assert made(BOTH, mode="clean") == ["a cup on the right, a dog on the left"]


def test_all_occurrences_are_replaced():
    assert made("on the left and on the left", mode="authors") == ["on the right and on the right"]


def test_capitals_are_switched_in_mode_clean_only():
    assert made("On the left a cup", mode="authors") == []
    assert made("On the left a cup", mode="clean") == ["On the right a cup"]


def test_whole_words_count_in_mode_clean_only():
    assert made("salmon the leftover", mode="authors") == ["salmon the rightover"]
    assert made("salmon the leftover", mode="clean") == []


def test_single_words_are_switched_wherever_they_stand():
    assert made("a man Left the room", keys="words", mode="authors") == ["a man right the room"]
    assert made("left, right, left.", keys="words", mode="authors") == []
    drawn = {
        made("left or right", seed=seed, keys="words", mode="authors")[0] for seed in range(20)
    }
    assert drawn == {"right or right", "left or left"}
    assert made("left, Right.", keys="words", mode="clean") == ["right, Left."]
