"""CLIP's byte-level BPE on hand-made merges, from every form of its files."""

import importlib
import json

import numpy as np
import pytest

from vlc_jax.input_pipeline.tokenizers import clip_bpe, make_tokenizer, pretrained_folder


def clip_tokens(vocabulary, text):
    row = list(clip_bpe.ClipTokenizer(64, **vocabulary)([text])[0])
    assert row[0] == 49_406
    return row[1 : row.index(49_407)]


def test_clip_ids_follow_the_layout_of_the_vocabulary(clip_vocabulary):
    # 256 byte letters, the same with </w>, then one id per merge: "red" is merge 1, "cat" merge 3.
    assert clip_tokens(clip_vocabulary, "red") == [513]
    assert clip_tokens(clip_vocabulary, "RED  cat") == [513, 515]
    assert clip_tokens(clip_vocabulary, "!") == [256]
    assert clip_tokens(clip_vocabulary, "a!") == [ord("a") - 33 + 256, 256]
    assert clip_tokens(clip_vocabulary, "redx") == [512, ord("d") - 33, ord("x") - 33 + 256]
    tokenizer = clip_bpe.ClipTokenizer(**clip_vocabulary)
    assert (tokenizer.vocab_size, tokenizer.pad_id, tokenizer.context_length) == (49_408, 0, 77)


def test_clip_splits_contractions_digits_and_runs_of_signs(clip_vocabulary):
    digit = ord("1") - 33 + 256
    assert clip_tokens(clip_vocabulary, "cat's") == [515, 516]
    assert clip_tokens(clip_vocabulary, "11") == [digit, digit]
    assert clip_tokens(clip_vocabulary, "cat!!") == [515, 0, 256]


def test_clip_non_ascii_is_cut_into_utf8_bytes(clip_vocabulary):
    letters = clip_bpe.byte_letters()
    order = {letter: index for index, letter in enumerate(letters)}
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    assert [order[chr(code)] for code in printable] == list(range(len(printable)))
    first, second = "é".encode()
    assert clip_tokens(clip_vocabulary, "É") == [order[chr(first)], order[chr(second)] + 256]


@pytest.fixture
def clip_folder(clip_vocabulary, tmp_path):
    """The same vocabulary as Hugging Face has it: vocab.json, merges.txt and tokenizer.json."""
    tokenizer = clip_bpe.ClipTokenizer(**clip_vocabulary)
    for name, content in tokenizer.files().items():
        (tmp_path / name).write_text(content, "utf-8")
    merges = (tmp_path / "merges.txt").read_text("utf-8").splitlines()[1:]
    model = {"type": "BPE", "vocab": tokenizer.vocabulary(), "merges": merges}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": model}))
    return tmp_path


CAPTIONS = ["Red CAT's &amp; naïve café", "", "red " * 90, "🙂 “so”"]


@pytest.mark.parametrize("form", ["", "tokenizer.json", "pairs", "merges.txt", "vocab.json"])
def test_clip_ids_are_the_same_from_every_form_of_its_files(clip_vocabulary, clip_folder, form):
    expected = clip_bpe.ClipTokenizer(**clip_vocabulary)
    if form == "pairs":  # how newer versions of the library write merges
        content = json.loads((clip_folder / "tokenizer.json").read_text())
        content["model"]["merges"] = [merge.split() for merge in content["model"]["merges"]]
        (clip_folder / "tokenizer.json").write_text(json.dumps(content))
        form = "tokenizer.json"
    if form != "tokenizer.json":
        (clip_folder / "tokenizer.json").unlink()
    tokenizer = clip_bpe.ClipTokenizer(path=clip_folder / form, sha256=clip_vocabulary["sha256"])
    np.testing.assert_array_equal(tokenizer(CAPTIONS), expected(CAPTIONS))
    assert tokenizer.fingerprint == expected.fingerprint
    assert (
        tokenizer.vocabulary() == expected.vocabulary() == pretrained_folder.vocabulary(clip_folder)
    )


def test_a_vocabulary_that_is_not_openais_is_refused(clip_vocabulary):
    with pytest.raises(ValueError, match="not OpenAI's CLIP vocabulary") as error:
        clip_bpe.ClipTokenizer(path=clip_vocabulary["path"])
    assert f"sha256='{clip_vocabulary['sha256']}'" in str(error.value)
    with pytest.raises(ValueError, match="not the expected CLIP vocabulary"):
        clip_bpe.ClipTokenizer(path=clip_vocabulary["path"], sha256="0" * 64)


def test_clip_files_that_number_tokens_otherwise_are_refused(clip_vocabulary, clip_folder):
    content = json.loads((clip_folder / "tokenizer.json").read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["red</w>"], vocabulary["cat</w>"] = vocabulary["cat</w>"], vocabulary["red</w>"]
    (clip_folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="numbers its tokens otherwise"):
        clip_bpe.ClipTokenizer(path=clip_folder, sha256=clip_vocabulary["sha256"])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", "{}"),
        ("tokenizer.json", '{"model": {"merges": null, "vocab": {}}}'),
        ("tokenizer.json", '{"model": {"merges": [["a", "b"]], "vocab": {}}}'),
        ("tokenizer.json", '{"model": {"type": "WordPiece", "vocab": {}}}'),
        ("merges.txt", "#version\na b\n"),
    ],
)
def test_damaged_clip_files_are_named(clip_folder, name, content):
    (clip_folder / name).write_text(content)
    with pytest.raises(ValueError, match=f"{name} is not CLIP's list of merges") as refusal:
        clip_bpe.ClipTokenizer(path=clip_folder / name)
    assert ("its model is WordPiece" in str(refusal.value)) == ("WordPiece" in content)
    (clip_folder / "vocab.json").unlink()
    with pytest.raises(ValueError, match=r"belongs to merges\.txt.*vocab\.json: No such file"):
        clip_bpe.ClipTokenizer(path=clip_folder / "merges.txt")


def test_clip_without_a_path_finds_an_installed_vocabulary(clip_vocabulary, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(clip_bpe, "PACKAGES", ("a_missing_clip", "a_clip"))
    with pytest.raises(ValueError, match=r"packages a_missing_clip, a_clip\): give `path`"):
        make_tokenizer("clip", 77)
    (tmp_path / "a_clip").mkdir()
    (tmp_path / "a_clip/__init__.py").write_text("raise RuntimeError('imported')")
    copy = tmp_path / "a_clip" / clip_bpe.GZIPPED
    copy.write_bytes(clip_vocabulary["path"].read_bytes())
    importlib.invalidate_caches()
    found = make_tokenizer("clip", 77, sha256=clip_vocabulary["sha256"])
    assert found.fingerprint == clip_vocabulary["sha256"]
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ValueError, match="empty holds no CLIP vocabulary: give `path`"):
        make_tokenizer("clip", 77, path=empty)
