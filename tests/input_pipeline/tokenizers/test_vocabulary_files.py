"""Vocabularies of files: tokenizer.json, SentencePiece, their special tokens, hostile ones."""

import gzip
import hashlib
import json
import os

import numpy as np
import pytest
import sentencepiece
import tokenizers as hf

from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.tokenizers import (
    clip_bpe,
    hugging_face,
    pretrained_folder,
    sentence_piece,
    siglip,
)


def test_hf_keeps_the_start_token_and_ignores_truncation(hf_folder):
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


def test_hf_special_tokens_come_from_options_then_files(hf_folder):
    assert hugging_face.HfTokenizer(8, hf_folder).eos_id == 3
    declared = {"eos_token": {"content": "<s>"}, "pad_token": "<unk>"}
    (hf_folder / "tokenizer_config.json").write_text(json.dumps(declared))
    tokenizer = hugging_face.HfTokenizer(8, hf_folder)
    assert (tokenizer.eos_id, tokenizer.pad_id) == (2, 1)
    tokenizer = hugging_face.HfTokenizer(8, hf_folder, eos_token="</s>", pad_token="<pad>")
    assert (tokenizer.eos_id, tokenizer.pad_id) == (3, 0)


def test_openvisions_texts_have_no_end_token_and_are_padded(hf_folder):
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
def test_a_hostile_tokenizer_json_is_one_line(tmp_path, hf_folder, name, capfd):
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


def test_sentencepiece_padding_can_be_the_end_token(sentencepiece_model):
    tokenizer = sentence_piece.SentencePieceTokenizer(
        32, sentencepiece_model, pad_token="</s>", clean="canonicalize"
    )
    plain, shouted = tokenizer(["the blue square", "The BLUE_square!"])
    np.testing.assert_array_equal(plain, shouted)
    assert plain[-1] == 1
    with pytest.raises(ValueError, match="pad_token '<mask>' is not in the vocabulary"):
        sentence_piece.SentencePieceTokenizer(32, sentencepiece_model, pad_token="<mask>")


def test_siglip_takes_either_file_and_adds_no_start_token(hf_folder, sentencepiece_model):
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
