"""Every kind of tokenizer on a vocabulary made here."""

import functools
import gzip
import hashlib
import inspect
import io
import json
import os
import pickle

import numpy as np
import pytest
import sentencepiece
import tokenizers as hf

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

CORPUS = ["a red circle left of a blue square", "the blue square", "two red circles, one ring"] * 4


@pytest.fixture
def words():
    return word_level.WordTokenizer(8, words=("a", "blue", "circle", "red", "square"))


@pytest.fixture
def hf_folder(tmp_path):
    """A tokenizer.json that adds a start token itself, and the files that name its special ones."""
    tokenizer = hf.Tokenizer(hf.models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = hf.pre_tokenizers.Whitespace()
    special = ["<pad>", "<unk>", "<s>", "</s>"]
    trainer = hf.trainers.BpeTrainer(special_tokens=special, vocab_size=80, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.post_processor = hf.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 2), ("</s>", 3)]
    )
    tokenizer.enable_truncation(5)
    tokenizer.enable_padding()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.fixture
def sentencepiece_model(tmp_path):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=model,
        vocab_size=40,
        hard_vocab_limit=False,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        minloglevel=2,
    )
    path = tmp_path / "spiece.model"
    path.write_bytes(model.getvalue())
    return path


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
def test_rows_have_the_context_length_and_end_with_eos_then_padding(kind, request):
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
def test_a_caption_longer_than_the_context_is_cut_before_a_last_eos(kind, request):
    caption = "a red circle " * 10
    short, long = any_tokenizer(kind, 6, request)([caption]), any_tokenizer(kind, 90, request)
    np.testing.assert_array_equal(short[0, :5], long([caption])[0, :5])
    assert short[0, 5] == long.eos_id


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_does_not_depend_on_its_neighbours_and_survives_pickling(kind, request):
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
    assert word_level.words_of(captions) == ("a", "blue", "circle", "red")
    assert word_level.words_of(captions, min_count=2) == ("a", "circle", "red")


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


def test_hf_keeps_the_files_start_token_and_ignores_its_truncation_and_padding(hf_folder):
    tokenizer = hugging_face.HfTokenizer(16, hf_folder)
    reference = hf.Tokenizer.from_file(str(hf_folder / "tokenizer.json"))
    reference.no_truncation()
    reference.no_padding()
    ids = reference.encode("a red circle left of a").ids
    assert len(ids) > 6
    row = tokenizer(["a red circle left of a"])[0]
    np.testing.assert_array_equal(row, ids + [0] * (16 - len(ids)))
    assert row[0] == 2
    file = hf_folder / "tokenizer.json"
    assert tokenizer.fingerprint == hashlib.sha256(file.read_bytes()).hexdigest()


def test_hf_special_tokens_come_from_options_then_sibling_files_then_known_names(hf_folder):
    assert hugging_face.HfTokenizer(8, hf_folder).eos_id == 3
    declared = {"eos_token": {"content": "<s>"}, "pad_token": "<unk>"}
    (hf_folder / "tokenizer_config.json").write_text(json.dumps(declared))
    tokenizer = hugging_face.HfTokenizer(8, hf_folder)
    assert (tokenizer.eos_id, tokenizer.pad_id) == (2, 1)
    tokenizer = hugging_face.HfTokenizer(8, hf_folder, eos_token="</s>", pad_token="<pad>")
    assert (tokenizer.eos_id, tokenizer.pad_id) == (3, 0)


def test_texts_as_of_openvision_are_berts_without_the_end_token_and_always_padded(hf_folder):
    """open_clip's strip_sep_token puts the padding in its place, also where a text is cut."""
    plain = hugging_face.HfTokenizer(8, hf_folder)
    options = {"eos_token": "<pad>", "pad_token": "<pad>", "left_out": "</s>"}
    tokenizer = hugging_face.HfTokenizer(8, hf_folder, **options)
    texts = ["blue", "a red circle left of a blue square"]
    ids = plain(texts)
    assert [(row == 3).sum() for row in ids] == [1, 1]  # the end token, cut or not
    np.testing.assert_array_equal(tokenizer(texts), np.where(ids == 3, 0, ids))
    assert tokenizer.fingerprint != plain.fingerprint
    with pytest.raises(ValueError, match=r"left_out '\[SEP\]' is not in the vocabulary"):
        hugging_face.HfTokenizer(8, hf_folder, left_out="[SEP]")


def test_hf_without_an_agreed_special_token_asks_for_it(tmp_path):
    tokenizer = hf.Tokenizer(hf.models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match="give eos_token"):
        hugging_face.HfTokenizer(8, tmp_path)
    with pytest.raises(ValueError, match="'c' is not in the vocabulary"):
        hugging_face.HfTokenizer(8, tmp_path, eos_token="c", pad_token="a")
    assert hugging_face.HfTokenizer(8, tmp_path, eos_token="b", pad_token="a").eos_id == 1


def _replace(old, new):
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


HOSTILE = {  # change of a tokenizer.json -> what is said of it; numbers in brackets: in 0.23
    "a vocabulary of 4 GB": ({"model": {"vocab": {"a": 2**32 - 1}}}, "ids are below 10,000,000"),
    "a table of 4 GB (signal 6)": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "/////w=="}},
        "the library tokenizers ended with SIGABRT",
    ),
    "an index beyond the table (a panic)": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "BAAAAAAAAAA="}},
        "PanicException: index out of bounds",
    ),
    "a chain that makes 60**6 letters of one": (
        {"normalizer": {"type": "Sequence", "normalizers": [_replace("a", "a" * 60)] * 6}},
        "its normalizers may make more than 64 characters of one",
    ),
    "a special token without ids (a panic)": (
        {
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "Q", "type_id": 0}}],
                "pair": [],
                "special_tokens": {},
            }
        },
        "PanicException: no entry found for key",
    ),
    "ids that no token has": (
        {
            "post_processor": {
                "type": "RobertaProcessing",
                "sep": ["</s>", 2**32 - 1],
                "cls": ["a", 1],
                "trim_offsets": True,
                "add_prefix_space": False,
            }
        },
        "its special tokens have the id 4294967295",
    ),
    "a list": ([1], "is not a Hugging Face tokenizer.json: AttributeError"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_tokenizer_json_is_one_line_and_not_the_end_of_the_process(
    tmp_path, hf_folder, name, capfd
):
    path = tmp_path / "tokenizer.json"
    change, message = HOSTILE[name]
    document = json.loads(path.read_text())
    if isinstance(change, dict):
        document["model"]["vocab"] |= change.get("model", {}).get("vocab", {})
        change = document | {key: value for key, value in change.items() if key != "model"}
    path.write_text(json.dumps(change))
    with pytest.raises(ValueError, match=message) as caught:
        hugging_face.HfTokenizer(8, path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


def test_a_text_at_which_a_tokenizer_panics_is_a_bad_record(tmp_path, hf_folder, capfd):
    path = tmp_path / "tokenizer.json"
    document = json.loads(path.read_text())
    pattern = {"Regex": "(c+)+$"}
    split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    path.write_text(json.dumps(document | {"pre_tokenizer": split}))
    tokenizer = hugging_face.HfTokenizer(8, path)
    assert tokenizer(["a blue square"]).shape == (1, 8)
    with pytest.raises(
        DataError, match=rf"tokenizer\.json fails at \['{'c' * 40}a'\].*retry-limit"
    ):
        tokenizer(["c" * 40 + "a"])


@pytest.mark.parametrize("content", [b"", b"\x0a\xff\xff\xff\xff\x7f", b"\xff" * 99], ids=range(3))
def test_a_damaged_sentencepiece_model_is_one_line(tmp_path, content, capfd):
    (tmp_path / "a.model").write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.model is not a SentencePiece model: .") as caught:
        sentence_piece.SentencePieceTokenizer(8, tmp_path / "a.model")
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


def test_vocabularies_without_end_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(ValueError, match=r"pipe\.json: it is a device or a pipe"):
        hugging_face.HfTokenizer(8, tmp_path / "pipe.json")
    with pytest.raises(ValueError, match="/dev/zero: it is a device"):
        sentence_piece.SentencePieceTokenizer(8, "/dev/zero")
    with (tmp_path / "a.json").open("wb") as file:
        file.truncate(2**40)  # sparse
    with pytest.raises(ValueError, match="has 1,099,511,627,776 bytes, more than the limit"):
        clip_bpe.ClipTokenizer(path=tmp_path / "a.json")


def test_a_gzipped_vocabulary_is_not_unpacked_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(clip_bpe, "MAX_VOCABULARY_FILE", 1_000)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a b\n" * 1_000))
    with pytest.raises(ValueError, match="unpacks to more than 1,000 bytes"):
        clip_bpe.ClipTokenizer(path=tmp_path / "a.txt.gz")


def test_sentencepiece_ids_are_the_models_own_with_eos_appended(sentencepiece_model):
    tokenizer = sentence_piece.SentencePieceTokenizer(32, sentencepiece_model)
    reference = sentencepiece.SentencePieceProcessor(model_file=str(sentencepiece_model))
    ids = reference.encode("the blue square")
    row = tokenizer(["the blue square"])[0]
    np.testing.assert_array_equal(row[: len(ids) + 1], [*ids, 1])
    assert (tokenizer.eos_id, tokenizer.pad_id) == (1, 0)


@pytest.mark.parametrize("kind", ["words", "hf", "sentencepiece"])
def test_letters_that_a_tokenizer_never_saw_have_the_unknown_id(kind, request):
    tokenizer = any_tokenizer(kind, 12, request)
    ends = {tokenizer.pad_id, tokenizer.eos_id, tokenizer.vocabulary().get("<s>")}
    assert tokenizer.unk_id in {*tokenizer(["ж щ ю"])[0]} - ends
    assert tokenizer.unk_id not in tokenizer(["a red circle"])


def test_sentencepiece_padding_can_be_the_end_token_as_siglip_has_it(sentencepiece_model):
    tokenizer = sentence_piece.SentencePieceTokenizer(
        32, sentencepiece_model, pad_token="</s>", clean="canonicalize"
    )
    plain, shouted = tokenizer(["the blue square", "The BLUE_square!"])
    np.testing.assert_array_equal(plain, shouted)
    assert plain[-1] == 1
    with pytest.raises(ValueError, match="pad_token '<mask>' is not in the vocabulary"):
        sentence_piece.SentencePieceTokenizer(32, sentencepiece_model, pad_token="<mask>")


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


def test_siglip_takes_a_folder_with_either_file_and_adds_no_start_token(
    hf_folder, sentencepiece_model
):
    row = siglip.siglip_tokenizer(16, hf_folder)(["A red, circle!"])[0]
    plain = hugging_face.HfTokenizer(16, hf_folder, pad_token="</s>")(["a red circle"])[0]
    assert plain[0] == 2
    np.testing.assert_array_equal(row, [*plain[1:], 3])
    made = siglip.siglip_tokenizer(16, hf_folder / "spiece.model")
    assert isinstance(made, sentence_piece.SentencePieceTokenizer)
    assert (made.eos_id, made.pad_id) == (1, 1)
    (hf_folder / "tokenizer.json").unlink()
    again = siglip.siglip_tokenizer(16, hf_folder)
    np.testing.assert_array_equal(again(["the Blue square."]), made(["the blue square"]))
    assert pretrained_folder.vocabulary(hf_folder) == made.vocabulary()
    sentencepiece_model.unlink()
    assert pretrained_folder.vocabulary(hf_folder) is None
    with pytest.raises(ValueError, match=r"holds no tokenizer; looked for tokenizer\.json, spiece"):
        siglip.siglip_tokenizer(16, hf_folder)


def test_tokenizer_files_are_those_that_go_together(hf_folder, clip_vocabulary):
    (hf_folder / "tokenizer_config.json").write_text("{}")
    names = ["tokenizer.json", "tokenizer_config.json"]
    for path in (hf_folder, hf_folder / "tokenizer.json"):
        assert sorted(pretrained_folder.files(path)) == names
        assert all(hf_folder / name == file for name, file in pretrained_folder.files(path).items())
    path = clip_vocabulary["path"]
    assert pretrained_folder.files(path) == {path.name: path}
    own = (hf_folder / "tokenizer.json").rename(hf_folder / "own.json")
    declared = {"tokenizer_config.json": hf_folder / "tokenizer_config.json"}
    assert pretrained_folder.files(own) == {"tokenizer.json": own, **declared}


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


DEEP = "[" * 100_000


@pytest.mark.parametrize("content", ["[1]", '{"a": "b"}', '{"a": [1]}', DEEP, "x"], ids=range(5))
def test_a_vocabulary_of_something_else_is_refused(tmp_path, content):
    (tmp_path / "vocab.json").write_text(content)
    with pytest.raises(ValueError, match=r"vocab\.json is not a JSON object of token ids"):
        pretrained_folder.vocabulary(tmp_path)


@pytest.mark.parametrize("content", ['{"eos_token": 5}', '{"eos_token": {}}', DEEP], ids=range(3))
def test_a_special_token_that_is_none_is_refused(hf_folder, content):
    (hf_folder / "tokenizer_config.json").write_text(content)
    with pytest.raises(ValueError, match=r"tokenizer_config\.json"):
        hugging_face.HfTokenizer(16, hf_folder, pad_token="</s>")


def test_the_class_of_a_conversation_tokenizer_says_so_before_it_is_built():
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
