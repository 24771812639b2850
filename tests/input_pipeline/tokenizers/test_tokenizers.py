"""Every kind of tokenizer on a vocabulary made here."""

import functools
import hashlib
import inspect
import pickle

import numpy as np
import pytest

from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import make_source
from vlc_jax.input_pipeline.tokenizers import (
    TOKENIZERS,
    byte_level,
    clean,
    clip_bpe,
    hugging_face,
    make_tokenizer,
    pretrained_folder,
    sentence_piece,
    siglip,
    word_level,
)
from vlc_jax.input_pipeline.tokenizers.conversation import ConversationTokenizer


def any_tokenizer(kind, length, request):
    if kind == "words":
        return word_level.WordTokenizer(length, words=("a", "red", "circle"))
    if kind == "bytes":
        return byte_level.BytesTokenizer(length)
    if kind == "hf":
        return hugging_face.HfTokenizer(length, request.getfixturevalue("hf_folder"))
    if kind == "sentencepiece":
        path = request.getfixturevalue("sentencepiece_model")
        return sentence_piece.SentencePieceTokenizer(length, path)
    if kind == "siglip":
        path = request.getfixturevalue("hf_folder")
        return siglip.siglip_tokenizer(length, path, pad_token="<pad>")
    return clip_bpe.ClipTokenizer(length, **request.getfixturevalue("clip_vocabulary"))


KINDS = ["words", "bytes", "hf", "sentencepiece", "siglip", "clip"]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_end_with_eos_then_padding(kind, request):
    tokenizer = any_tokenizer(kind, 12, request)
    rows = tokenizer(["a red circle", ""])
    assert rows.shape == (2, 12)
    assert rows.dtype == np.int32
    assert tokenizer.context_length == 12
    for row in rows:
        assert list(row).count(tokenizer.eos_id) == 1
        end = list(row).index(tokenizer.eos_id)
        assert (row[end + 1 :] == tokenizer.pad_id).all()
        assert (row[:end] != tokenizer.pad_id).all()
    assert (rows >= 0).all()
    assert (rows < tokenizer.vocab_size).all()
    assert tokenizer([]).shape == (0, 12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_caption_beyond_the_context_is_cut_before_an_eos(kind, request):
    caption = "a red circle " * 10
    short, long = any_tokenizer(kind, 6, request)([caption]), any_tokenizer(kind, 90, request)
    np.testing.assert_array_equal(short[0, :5], long([caption])[0, :5])
    assert short[0, 5] == long.eos_id


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_depends_on_no_neighbour_and_pickles(kind, request):
    tokenizer = any_tokenizer(kind, 12, request)
    texts = ["a red circle", "circle", "a a a a"]
    together = tokenizer(texts)
    for text, row in zip(texts, together, strict=True):
        np.testing.assert_array_equal(tokenizer([text])[0], row)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(tokenizer))(texts), together)


@pytest.mark.parametrize("kind", KINDS)
def test_odd_text_is_taken_without_an_error(kind, request):
    tokenizer = any_tokenizer(kind, 9, request)
    odd = ["\ud800 lone", "日本 🙂", "\x00\x07", "a\tb\r\nc", " " * 50, "x" * 5_000, "&amp;&#39;"]
    assert tokenizer(odd).shape == (len(odd), 9)


def test_words_are_ids_in_list_order_after_padding_and_unknown(words):
    np.testing.assert_array_equal(
        words(["a red circle", "Blue, SQUARE.", "a green dog"]),
        [[2, 5, 4, 7, 0, 0, 0, 0], [3, 6, 7, 0, 0, 0, 0, 0], [2, 1, 1, 7, 0, 0, 0, 0]],
    )
    # EOS has the largest id, so that argmax finds it
    assert (words.pad_id, words.unk_id, words.eos_id, words.vocab_size) == (0, 1, 7, 8)


def test_words_can_come_from_a_file(tmp_path, words):
    path = tmp_path / "words.txt"
    path.write_text("a\nblue\ncircle\nred\nsquare\n")
    from_file = word_level.WordTokenizer(8, path=path)
    np.testing.assert_array_equal(from_file(["a red dog"]), words(["a red dog"]))
    assert from_file.fingerprint == words.fingerprint


def test_words_of_captions_are_sorted_and_counted():
    captions = ["A red circle.", "a blue circle", "(red)"]
    counts = word_level.count_words(captions)
    assert word_level.frequent(counts, 1) == ("a", "blue", "circle", "red")
    assert word_level.frequent(counts, 2) == ("a", "circle", "red")


def test_a_word_that_could_never_be_found_is_refused():
    for bad in (("a", "a"), ("Red",), ("red dog",), ("",), ("red.",)):
        with pytest.raises(ValueError, match="word list holds"):
            word_level.WordTokenizer(8, words=bad)
    with pytest.raises(ValueError, match="either"):
        word_level.WordTokenizer(8)


def test_bytes_are_their_value_plus_one_and_eos_the_largest_id():
    tokenizer = byte_level.BytesTokenizer(6)
    np.testing.assert_array_equal(tokenizer(["aé"]), [[98, 0xC3 + 1, 0xA9 + 1, 257, 0, 0]])
    np.testing.assert_array_equal(tokenizer(["abcdefgh"])[0], [98, 99, 100, 101, 102, 257])
    assert tokenizer(["\x00 \xff"]).argmax() == 5 - 1
    assert tokenizer.vocab_size == 258


@pytest.mark.parametrize("kind", ["words", "hf", "sentencepiece"])
def test_letters_that_a_tokenizer_never_saw_have_the_unknown_id(kind, request):
    tokenizer = any_tokenizer(kind, 12, request)
    ends = {tokenizer.pad_id, tokenizer.eos_id, tokenizer.vocabulary().get("<s>")}
    assert tokenizer.unk_id in {*tokenizer(["ж щ ю"])[0]} - ends
    assert tokenizer.unk_id not in tokenizer(["a red circle"])


MIXED = "A &amp; B_c, D!"


@pytest.mark.parametrize(
    ("rule", "text", "expected"),
    [
        ("clip", "  A  Red\tcat\n", "a red cat"),
        ("clip", "caf&eacute; &amp;amp; bar", "café & bar"),
        ("clip", "“quoted” ‘so’", "\"quoted\" 'so'"),
        ("clip", "ﬁne ＡＢＣ１２", "fine abc12"),
        ("clip", "e\u0301", "é"),
        ("clip", "bell\x07 \x1b[31mred\x1b[0m", "bell red"),
        ("clip", "\x93it\x92s\x94", '"it\'s"'),
        ("clip", MIXED, "a & b_c, d!"),
        ("none", MIXED, MIXED),
        ("lower", MIXED, "a &amp; b_c, d!"),
        ("canonicalize", MIXED, "a amp b c d"),
        ("canonicalize", "A_red, cat's  HAT!", "a red cats hat"),
        ("clip_canonicalize", MIXED, "a b c d"),
    ],
)
def test_every_rule_of_cleaning_does_what_its_name_says(rule, text, expected):
    assert clean.CLEANINGS[rule](text) == expected


def test_fingerprints_name_the_defining_file(clip_vocabulary, sentencepiece_model, words):
    def sha(path):
        return hashlib.sha256(path.read_bytes()).hexdigest()

    assert clip_bpe.ClipTokenizer(**clip_vocabulary).fingerprint == clip_vocabulary["sha256"]
    made = sentence_piece.SentencePieceTokenizer(8, sentencepiece_model)
    assert made.fingerprint == sha(sentencepiece_model)
    other = word_level.WordTokenizer(8, words=("a", "blue"))
    assert other.fingerprint != words.fingerprint


@pytest.mark.parametrize("kind", ["hf", "sentencepiece", "siglip", "clip", "words"])
def test_a_missing_or_wrong_file_is_named(kind, tmp_path):
    with pytest.raises(ValueError, match=r"no-such-file: No such file"):
        make_tokenizer(kind, 8, path=tmp_path / "no-such-file")
    if kind != "clip":  # looks for it in installed packages
        with pytest.raises(ValueError, match="this tokenizer needs `path`"):
            make_tokenizer(kind, 8, path="")
    wrong = tmp_path / "wrong.bin"
    wrong.write_bytes(b"PK\x03\x04 Not It")
    with pytest.raises(ValueError, match=r"wrong\.bin|word list"):
        make_tokenizer(kind, 8, path=wrong)


def test_a_context_without_room_for_a_word_is_refused(clip_vocabulary):
    with pytest.raises(ValueError, match="context_length"):
        word_level.WordTokenizer(1, words=("a",))
    with pytest.raises(ValueError, match="context_length"):
        clip_bpe.ClipTokenizer(2, **clip_vocabulary)


@pytest.mark.parametrize("name", ["digits", "scenes"])
def test_captions_of_an_embedded_source_hold_no_unknown_word(name):
    tokenizer, source = make_tokenizer(name, 20), make_source(name, "train")
    for index in range(0, min(len(source), 1800), 30):
        assert not (tokenizer(source[index].captions) == tokenizer.unk_id).any()


@pytest.mark.parametrize("length", [9, 30])
@pytest.mark.parametrize(
    "tokenizer",
    [
        byte_level.BytesTokenizer,
        functools.partial(word_level.WordTokenizer, words=["a", "it's", "red", "x.y", "dog", "é"]),
    ],
)
def test_the_files_of_a_tokenizer_without_any_give_its_ids(tokenizer, length, tmp_path):
    tokenizer = tokenizer(length)
    for name, content in tokenizer.files().items():
        (tmp_path / name).write_text(content, "utf-8")
    written = hugging_face.HfTokenizer(length, tmp_path)
    for name in ("vocab_size", "pad_id", "eos_id", "unk_id"):
        assert getattr(written, name) == getattr(tokenizer, name)
    assert written.vocabulary() == tokenizer.vocabulary() == pretrained_folder.vocabulary(tmp_path)
    texts = [
        "A red, dog!",
        "(it's) 'the' -- \"RED\"\n dog?",
        "",
        "x.y. of",
        "é É ...",
        "[[a]] .a. ' a",
    ]
    np.testing.assert_array_equal(written(texts), tokenizer(texts))
    assert written.decode(written(["a dog"])[0]) == tokenizer.decode(tokenizer(["a dog"])[0])


@pytest.mark.parametrize("texts", ["a dog", ["a dog", None], [3]])
def test_what_is_no_list_of_texts_is_refused_in_a_line(texts, words):
    with pytest.raises(DataError, match=r"texts are a list|texts\[[01]\] is (None|3), no string"):
        words(texts)


def test_a_conversation_tokenizer_is_known_before_it_is_built():
    """A plan builds no tokenizer, and asks the row of TOKENIZERS."""

    def made(build):
        return build if inspect.isclass(build) else inspect.signature(build).return_annotation

    kinds = {
        name: getattr(build, "reads_conversations", False) for name, build in TOKENIZERS.items()
    }
    expected = {
        name: inspect.isclass(made(build)) and issubclass(made(build), ConversationTokenizer)
        for name, build in TOKENIZERS.items()
    }
    assert kinds == expected
    assert sum(kinds.values()) == 3


@pytest.mark.parametrize("name", ["start_of_text", "end_of_text", "|startoftext|", "|endoftext|"])
def test_special_tokens_written_in_a_caption_are_ordinary_text(clip_vocabulary, name):
    """Of OpenAI's code, transformers and open_clip: none moves the end of text."""
    tokenizer = clip_bpe.ClipTokenizer(32, **clip_vocabulary)
    (ids,) = tokenizer([f"a dog <{name}> on a mat"])
    assert (ids == tokenizer.sot_id).sum() == 1
    assert (ids == tokenizer.eos_id).sum() == 1
