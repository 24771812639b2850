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


@pytest.mark.parametrize(
    ("caption", "authors", "clean"),
    [
        ("a man left the room", [], []),
        ("in the left hand, left of it", [], []),
        # of two phrases the authors change the first of the table
        (
            BOTH,
            ["a cup on the right, a dog on the right"],
            ["a cup on the right, a dog on the left"],
        ),
        (
            "a dog on the right, a cup on the left",
            ["a dog on the right, a cup on the right"],
            ["a dog on the left, a cup on the right"],
        ),
        (
            "a dog at the left, to the right",
            ["a dog at the left, to the left"],
            ["a dog at the right, to the left"],
        ),
        ("on the left and on the left", *[["on the right and on the right"]] * 2),
        # capitals are switched, and whole words counted, in mode clean only
        ("On the left a cup", [], ["On the right a cup"]),
        ("salmon the leftover", ["salmon the rightover"], []),
    ],
)
def test_phrases_that_each_mode_switches(caption, authors, clean):
    assert made(caption, mode="authors") == authors
    assert made(caption, mode="clean") == clean


def test_single_words_are_switched_wherever_they_stand():
    assert made("a man Left the room", keys="words", mode="authors") == ["a man right the room"]
    assert made("left, right, left.", keys="words", mode="authors") == []
    drawn = {
        made("left or right", seed=seed, keys="words", mode="authors")[0] for seed in range(20)
    }
    assert drawn == {"right or right", "left or left"}
    assert made("left, Right.", keys="words", mode="clean") == ["right, Left."]
