"""What is asked of images: of the caption that a batch holds, in a template, or an error."""

import dataclasses

import numpy as np
import pytest

from tests.support.numbered import Numbered, take
from vlc_jax.input_pipeline import batch as contract
from vlc_jax.input_pipeline.hard_texts.noun_phrases import NounPhrases
from vlc_jax.input_pipeline.images.image_key import image_key
from vlc_jax.input_pipeline.images.image_ops import decode
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.loader import questions
from vlc_jax.input_pipeline.loader.inspection import preview
from vlc_jax.input_pipeline.record import DataError, ImageQuestion
from vlc_jax.input_pipeline.sources import shards
from vlc_jax.input_pipeline.tokenizers.word_level import WordTokenizer

WORDS = WordTokenizer(6, words=("asked", "what", *(f"{x}{n}" for x in "nq" for n in range(30))))


class Asking(Numbered):
    """Records with two captions and a question for each."""

    def __getitem__(self, index):
        record, numbers = super().__getitem__(index), (index, index + 10)
        texts = {x: [f"{x}{number}" for number in numbers] for x in "nq"}
        return dataclasses.replace(record, captions=texts["n"], questions=texts["q"])


def test_a_batch_has_the_question_of_the_caption_that_was_drawn():
    batches = take(6, Asking(10), tokenizer=WORDS, question="asked {}")
    drawn = set()
    for batch in batches:
        contract.check(batch)
        for text, question in zip(batch["text"], batch["question"], strict=True):
            number = text[0] - WORDS(["n0"])[0, 0]
            np.testing.assert_array_equal(question, WORDS([f"asked q{number}"])[0])
            drawn.add(int(number) // 10)
    assert drawn == {0, 1}


def test_a_question_without_a_place_is_the_same_of_all():
    (batch,) = take(1, tokenizer=WORDS, question="what")
    np.testing.assert_array_equal(batch["question"], np.repeat(WORDS(["what"]), 8, axis=0))
    assert "question" not in take(1, tokenizer=WORDS)[0]


def test_a_batch_is_as_long_as_its_longest_text_or_question():
    batch = {"text": WORDS(["n1", "n2 what"]), "question": WORDS(["asked what q1", "what"])}
    length = contract.longest_text(batch, WORDS.pad_id, WORDS.eos_id)
    assert length == 4
    cut = contract.with_text_length(batch, length)
    assert {key: x.shape for key, x in cut.items()} == {"text": (2, 4), "question": (2, 4)}


def test_records_without_questions_are_bad_where_one_is_asked():
    with pytest.raises(DataError, match=r"no question to fill into 'asked \{\}'"):
        take(1, tokenizer=WORDS, question="asked {}")


def test_parts_of_captions_answer_no_question():
    phrases = NounPhrases(0.5, "scenes:scenes-mini")
    with pytest.raises(ValueError, match="does not answer the record's question"):
        take(1, Asking(10), tokenizer=WORDS, question="{}", noun_phrases=phrases)


def test_an_asked_image_shows_the_same_and_is_another_one():
    pixels = np.random.default_rng(0).integers(0, 255, (9, 9, 3), np.uint8)
    one, other = (ImageQuestion(pixels, question) for question in ("q1", "q2"))
    np.testing.assert_array_equal(decode(one), pixels)
    transform = ImageTransform(4)
    np.testing.assert_array_equal(transform(one), transform(pixels))
    assert len({image_key(image) for image in (pixels, one, other)}) == 3
    found = questions.image_questions(WORDS, "asked {}", [one, other])["question"]
    np.testing.assert_array_equal(found, WORDS(["asked q1", "asked q2"]))
    assert questions.image_questions(WORDS, "", [pixels]) == {}
    with pytest.raises(DataError, match="no question to fill into"):
        questions.image_questions(WORDS, "{}", [one, pixels])


def test_shards_keep_questions():
    record = Asking(10)[3]
    for one in (record, dataclasses.replace(record, questions=())):
        again = shards.decode(shards.encode(one, b"image"))
        assert list(again.questions) == list(one.questions)


class TextOnly(Asking):
    """Every second record is a text alone."""

    has_text_only = True

    def __getitem__(self, index):
        record = super().__getitem__(index)
        return dataclasses.replace(record, image=None) if index % 2 else record


def test_a_text_alone_is_asked_by_a_template_of_its_own():
    templates = {"question": "what {}", "text_only_question": "asked {}"}
    batches = take(4, TextOnly(10), tokenizer=WORDS, **templates)
    for batch in batches:
        contract.check(batch)
        first = WORDS(["what asked"])[0]
        for row in range(8):
            assert batch["question"][row, 0] == first[0 if batch["has_image"][row] else 1]
            number = batch["text"][row, 0] - WORDS(["n0"])[0, 0]
            assert batch["has_image"][row] == (number % 2 == 0)
            assert batch["has_image"][row] or not batch["image"][row].any()
    assert {bool(x) for batch in batches for x in batch["has_image"]} == {True, False}
    assert "has_image" not in take(1, Asking(10), tokenizer=WORDS, question="{}")[0]


def test_a_record_without_an_image_is_bad_elsewhere():
    source = TextOnly(10)
    source.has_text_only = False
    with pytest.raises(DataError, match="has no image, and its source says that all have one"):
        take(1, source, tokenizer=WORDS)


def test_a_preview_counts_texts_alone_by_themselves():
    report = preview(TextOnly(10), WORDS, ImageTransform(4))
    assert (report.counts["bad"], report.sizes) == (0, {"4x4": 5})
    assert report.counts["without_image"] == 5
    assert "5 records without an image" in str(report)
