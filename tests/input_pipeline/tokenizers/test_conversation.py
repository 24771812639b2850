"""The tokenizer of conversations: which tokens are answers."""

import dataclasses
import json
import pickle

import numpy as np
import pytest

from tests.support import small_models
from vlc_jax.input_pipeline.record import Conversation, DataError, Record, read_caption
from vlc_jax.input_pipeline.sources import shards
from vlc_jax.input_pipeline.tokenizers import make_tokenizer
from vlc_jax.input_pipeline.tokenizers.tokenizer import tokenize

WORDS = ["<pad>", "</s>", "what", "is", "it", "ASSISTANT:", "USER:", "a", "cat", "why", "\n"]
TURNS = Conversation((("what is it", "a cat"), ("why", "it is")))


@pytest.fixture
def make(tmp_path):
    small_models.write_tokenizer(tmp_path, WORDS, "<pad>", r"\n|[^\s]+")
    return lambda length, **options: make_tokenizer(
        "conversation", length, path=str(tmp_path), **options
    )


def answers(arrays):
    words = [np.array(WORDS)[row] for row in arrays["text"]]
    return [
        (" ".join(row), " ".join(row[marks > 0]))
        for row, marks in zip(words, arrays["text_marks"], strict=True)
    ]


def test_answers_and_their_ends_are_marked(make):
    found = answers(tokenize(make(17), [TURNS, "a cat", ""]))
    talk = "\n what is it ASSISTANT: a cat </s> USER: why ASSISTANT: it is </s>"
    assert found[0] == (f"{talk}{' <pad>' * 3}", "a cat </s> it is </s>")
    assert found[1] == (f"a cat \n </s>{' <pad>' * 13}", "a cat \n")
    assert found[2] == (f"</s>{' <pad>' * 16}", "")


def test_a_conversation_without_image_brings_what_stands_before(make):
    text = dataclasses.replace(TURNS, has_image=False)
    tokenizer = make(17, before="is it USER: ")
    alone, with_image = answers(tokenize(tokenizer, [text, TURNS]))
    talk = "what is it ASSISTANT: a cat </s> USER: why ASSISTANT: it is </s>"
    assert alone == (f"is it USER: {talk} <pad>", "a cat </s> it is </s>")
    assert with_image == answers(tokenize(make(17), [TURNS]))[0]
    assert tokenizer.fingerprint == make(17).fingerprint  # a matter of the model


def test_the_end_of_a_cut_conversation_is_no_answer(make):
    ((text, marked),) = answers(tokenize(make(7), [TURNS]))
    assert text == "\n what is it ASSISTANT: a </s>"
    assert marked == "a"


def test_an_answer_to_be_scored_ends_or_not_and_is_never_cut(make):
    texts = [
        Conversation.scored("what is it", "a cat"),
        Conversation.scored("what is it", "a cat", marks_end=False),
    ]
    found = answers(tokenize(make(9), texts))
    assert found[0] == ("\n what is it ASSISTANT: a cat </s> <pad>", "a cat </s>")
    assert found[1] == (found[0][0], "a cat")
    with pytest.raises(DataError, match="have 8 tokens, more than the 7 of config"):
        make(7)(texts)


def test_a_question_to_be_answered_is_in_the_template(make):
    tokenizer = make(17)
    assert tokenizer.decode(tokenizer.prompt("what is it")) == "\n what is it ASSISTANT:"
    ends = [*tokenizer.prompt("what is it"), tokenizer.eos_id]
    assert tokenizer.decode(ends, special=True).endswith(" ASSISTANT: </s>")
    assert tokenizer.prompt("") == []
    template = "\nUSER: {question}\nASSISTANT:\n"
    other = make(17, template=template, terminators=("<pad>",))
    found = answers(tokenize(other, [Conversation.scored("why", "it is")]))
    assert found[0][0].startswith("\n USER: why \n ASSISTANT: \n it is </s> <pad>")
    assert found[0][1] == "it is </s>"
    assert other.terminators == (1, 0)
    assert other.fingerprint != tokenizer.fingerprint
    with pytest.raises(ValueError, match="a template holds"):
        make(17, template="why")


@pytest.mark.parametrize("name", ["words", "bytes", "scenes"])
def test_a_begin_of_a_caption_is_read_without_its_end(name):
    options = {"words": ["a", "red", "cat"]} if name == "words" else {}
    tokenizer = make_tokenizer(name, 10, **options)
    ids = tokenizer.prompt("a red")
    assert tokenizer.decode(ids) == "a red"
    assert tokenizer.decode([*ids, tokenizer.eos_id, tokenizer.pad_id]) == "a red"
    assert tokenizer.prompt("") == []
    with pytest.raises(DataError, match="fills all 10 tokens"):
        tokenizer.prompt("a red " * 9)


@pytest.mark.parametrize(
    "text",
    [
        '[["a", "b"]',
        '[["a", 3]]',
        '[["a"]]',
        '[["a", "b", "c"]]',
        '[["a", "b", true], ["a", "b"]]',
        '[["a", "b"], "cd"]',
        '{"text_only": [["a", 3]]}',
    ],
)
def test_what_is_no_conversation_is_refused(text):
    with pytest.raises(DataError, match=r"\[\[question, answer\], \.\.\.\] in JSON"):
        read_caption(text)
    header = json.dumps({"id": "1", "captions": [text]}).encode()
    with pytest.raises(DataError, match="is a conversation"):
        shards.decode(len(header).to_bytes(4, "little") + header)


@pytest.mark.parametrize(
    ("text", "caption"),
    [
        ("a cat [[", "a cat [["),
        ('[["Is é?", "a"], ["b", "c"]]', Conversation((("Is é?", "a"), ("b", "c")))),
        ('{"text_only": [["q", "a"]]}', Conversation((("q", "a"),), has_image=False)),
        ('[["q", "a", true]]', Conversation.scored("q", "a")),
        ('[["q", "a", false]]', Conversation.scored("q", "a", marks_end=False)),
    ],
)
def test_a_conversation_is_text_in_files_and_a_key_in_memory(text, caption):
    assert read_caption(text) == caption
    assert str(caption) == text
    record = Record("1", None, [caption])
    assert b'"captions": ' + json.dumps([text]).encode() in shards.encode(record, b"")
    assert shards.decode(shards.encode(record, b"")).captions == [caption]
    assert {pickle.loads(pickle.dumps(caption)): 1}[caption] == 1


def test_a_tokenizer_of_captions_refuses_a_conversation():
    with pytest.raises(DataError, match="only the tokenizer 'conversation' reads"):
        tokenize(make_tokenizer("bytes", 9), ["a cat", TURNS])


def test_a_question_is_asked_about_every_caption(make):
    tokenizer = make(17, question="what is {}", answer="it is")
    (about, talk) = answers(tokenize(tokenizer, ["a cat", TURNS]))
    assert about[0].startswith("\n what is a cat ASSISTANT: it is </s> <pad>")
    assert about[1] == "it is </s>"
    assert talk[1] == "a cat </s> it is </s>"
    assert tokenizer.fingerprint != make(17).fingerprint
    with pytest.raises(ValueError, match="in the place of the caption; got 'why'"):
        make(17, question="why")
