"""InstructBLIP's tokenizer: a question in the vocabulary of the Q-Former, and a row behind it."""

import numpy as np
import pytest

from tests.support import instructblip, small_models
from vlc_jax.input_pipeline.record import Conversation, DataError
from vlc_jax.input_pipeline.tokenizers import make_tokenizer
from vlc_jax.input_pipeline.tokenizers.tokenizer import tokenize

WORDS = ["<pad>", "</s>", "is", "the", "circle", "red", "yes", "\n"]
ASKED = ["[CLS]", "is", "the", "circle", "red", "[SEP]"]


@pytest.fixture
def make(tmp_path):
    small_models.write_tokenizer(tmp_path, WORDS, "<pad>", r"\n|[^\s]+")
    instructblip.write_bert(tmp_path / "bert")
    given = {"path": str(tmp_path), "instruction_path": str(tmp_path / "bert")}
    start = {"start_token": "</s>"}
    return lambda length, **more: make_tokenizer("instruction", length, **given, **start, **more)


def read(row):
    """Words of a row in each of its halves; padding of the Q-Former is left out."""
    first, second = np.split(row, 2)
    asked = [instructblip.BERT[-2 - i] for i in first if i != -1]
    return asked, [WORDS[i] for i in second]


def test_a_question_is_in_both_halves_and_its_answer_marked(make):
    text = Conversation.scored("is the circle red", "yes")
    found = tokenize(make(18), [text])
    asked, behind = read(found["text"][0])
    assert asked == ASKED
    assert behind == ["</s>", "is", "the", "circle", "red", "yes", "</s>", "<pad>", "<pad>"]
    assert np.flatnonzero(found["text_marks"][0]).tolist() == [14, 15]
    assert found["text"].shape == found["text_marks"].shape == (1, 18)


def test_a_caption_is_asked_about_or_has_an_empty_question(make):
    asked, behind = read(make(18)(["the circle"])[0])
    assert (asked, behind[:5]) == (["[CLS]", "[SEP]"], ["</s>", "the", "circle", "\n", "</s>"])
    about = make(18, question="is the {} red", answer="yes")
    np.testing.assert_array_equal(
        about(["circle"]), make(18)([Conversation.scored("is the circle red", "yes")])
    )


def test_a_prompt_is_a_row_without_its_answer(make):
    tokenizer = make(18)
    row = tokenizer([Conversation.scored("is the circle red", "yes")])[0]
    assert tokenizer.prompt("is the circle red") == row[:14].tolist()
    assert read(np.array([*tokenizer.prompt(""), *[0] * 8])) == (
        ["[CLS]", "[SEP]"],
        ["</s>", *["<pad>"] * 8],
    )


def test_what_does_not_fit_into_half_a_row_is_refused(make):
    text = Conversation.scored("is the circle red", "yes")
    with pytest.raises(DataError, match=r"6 tokens of the Q-Former, more than half of .*=10"):
        make(10)([text])
    with pytest.raises(DataError, match="7 tokens, more than the 6 of"):
        make(12)([text])
    with pytest.raises(ValueError, match="is even; got 11"):
        make(11)


def test_the_fingerprint_names_both_vocabularies(make, tmp_path):
    before = make(18).fingerprint
    file = tmp_path / "bert/tokenizer.json"
    file.write_text(file.read_text().replace('"red"', '"green"'))
    assert make(18).fingerprint != before
