"""Marks of functional words stand beside the ids of any tokenizer, and change none."""

import pickle

import numpy as np
import pytest

from vlc_jax.input_pipeline.tokenizers import clip_bpe, word_level
from vlc_jax.input_pipeline.tokenizers.functional_words import FunctionalWordTokenizer
from vlc_jax.input_pipeline.tokenizers.tokenizer import tokenize

WORDS = word_level.WordTokenizer(5, ("red", "cat", "left", "not"))
TEXTS = ["not a red cat", "cat left not left", "red cat", "", "Left left. not,"]


@pytest.mark.parametrize("position", ["token", "word"])
def test_the_first_occurrence_of_each_word_is_marked(position):
    tokenizer = FunctionalWordTokenizer(WORDS, ["left", "not"], position)
    expected = [[2, 0, 0, 0, 0], [0, 1, 2, 0, 0], [0] * 5, [0] * 5, [0] * 5]
    marks = tokenizer.marks(TEXTS)
    assert marks.dtype == np.int8
    assert marks.tolist() == expected
    np.testing.assert_array_equal(tokenizer(TEXTS), WORDS(TEXTS))


def test_a_word_is_found_at_its_token_or_where_its_number_points(clip_vocabulary):
    clip = clip_bpe.ClipTokenizer(9, **clip_vocabulary)
    row = clip(["red cats"])[0].tolist()
    before = row.index(clip.eos_id)  # tokens of the start and of the two words
    assert before > 3
    for position, place in (("token", before), ("word", 2)):
        marks = FunctionalWordTokenizer(clip, ["red", "x"], position).marks(["red cats x"])
        expected = np.zeros(9, int)
        expected[place], expected[1 if position == "token" else 0] = 2, 1
        assert marks.tolist() == [expected.tolist()]


def test_words_behind_the_end_do_not_push_each_other_out():
    tokenizer = FunctionalWordTokenizer(WORDS, ["left", "not"])
    text = "red red red red red not left"
    assert tokenizer.marks([text]).tolist() == [[0, 0, 0, 0, 1]]
    by_number = FunctionalWordTokenizer(WORDS, ["left", "not"], "word")
    assert not by_number.marks([text]).any()


def test_marks_go_with_ids_and_pickle():
    tokenizer = pickle.loads(pickle.dumps(FunctionalWordTokenizer(WORDS, ["not"])))
    arrays = tokenize(tokenizer, TEXTS, "negative_text")
    assert arrays.keys() == {"negative_text", "negative_text_marks"}
    np.testing.assert_array_equal(arrays["negative_text_marks"], tokenizer.marks(TEXTS))
    assert tokenize(WORDS, TEXTS).keys() == {"text"}
    assert (tokenizer.eos_id, tokenizer.fingerprint) == (WORDS.eos_id, WORDS.fingerprint)


@pytest.mark.parametrize(
    ("words", "position", "message"),
    [
        (["left"], "index", "position is one of"),
        (["left", "left"], "token", "are different"),
        (["left of"], "token", "have no spaces"),
        ([f"w{i}" for i in range(128)], "token", "at most 127 words have marks; got 128"),
    ],
)
def test_words_that_cannot_be_marked_are_refused(words, position, message):
    with pytest.raises(ValueError, match=message):
        FunctionalWordTokenizer(WORDS, words, position)
