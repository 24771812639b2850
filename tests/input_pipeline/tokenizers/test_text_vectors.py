"""Files of text vectors: found by the exact text, in every precision, and what is refused."""

import json
import pickle

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from vlc_jax.input_pipeline.loader import inspection
from vlc_jax.input_pipeline.record import DataError, Record
from vlc_jax.input_pipeline.tokenizers import make_tokenizer, sentence_encoder, text_vectors

TEXTS = ["a red dog", "a dog,\nred", "Ein roter Hund – 犬"]


def rows(count=3, width=4, seed=0):
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


def write_texts(path, texts):
    path.write_text("".join(json.dumps(text) + "\n" for text in texts))


@pytest.fixture
def file(tmp_path):
    """As a user writes one: np.save, and the texts beside it."""
    np.save(tmp_path / "x.npy", rows())
    write_texts(tmp_path / "x.jsonl", TEXTS)
    return tmp_path / "x.npy"


def read(path):
    return make_tokenizer("vectors", 20, path=path)


def test_texts_are_found_in_any_order_and_no_text_is_zero(file):
    found = read(file)([TEXTS[2], "", TEXTS[0], TEXTS[2]])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [rows()[2], np.zeros(4), rows()[0], rows()[2]])


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_safetensors_of_every_precision_are_read(tmp_path, dtype):
    stored = rows().astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    save_file({"vectors": stored, "another": rows(5)}, tmp_path / "x.safetensors")
    write_texts(tmp_path / "x.jsonl", TEXTS)
    found = read(tmp_path / "x.safetensors")(TEXTS)
    np.testing.assert_array_equal(found, stored.astype(np.float32))


def test_another_case_or_space_is_another_text(file):
    for text in ("A red dog", "a red dog ", "a dog, red"):
        with pytest.raises(DataError, match=r"no vector of '.*embed_text"):
            read(file)([text])
    read(file).require(TEXTS)
    with pytest.raises(DataError, match="no vector of 'a cat'"):
        read(file).require([*TEXTS, "a cat"])


def test_workers_open_the_file_themselves(file):
    made = read(file)
    data = pickle.dumps(made)
    assert rows()[0].tobytes() not in data
    np.testing.assert_array_equal(pickle.loads(data)(TEXTS), made(TEXTS))


def test_the_fingerprint_is_of_texts_and_numbers(file, tmp_path):
    fingerprint = read(file).fingerprint
    for suffix in (".npy", ".jsonl"):
        (tmp_path / f"y{suffix}").write_bytes(file.with_suffix(suffix).read_bytes())
    assert read(tmp_path / "y.npy").fingerprint == fingerprint
    write_texts(tmp_path / "y.jsonl", [TEXTS[0], TEXTS[2], TEXTS[1]])
    assert read(tmp_path / "y.npy").fingerprint != fingerprint
    np.save(file, rows(seed=1))
    assert read(file).fingerprint != fingerprint


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda f: f.unlink(), ValueError, r"cannot read the text vectors .*x\.npy: No such file"),
        (lambda f: f.with_suffix(".jsonl").unlink(), ValueError, r"cannot read the texts .*jsonl"),
        (lambda f: write_texts(f.with_suffix(".jsonl"), TEXTS[:2]), DataError, "3 vectors.* 2 te"),
        (lambda f: f.with_suffix(".jsonl").write_text('"a"\n3\n"b"'), DataError, "line 2 is a int"),
        (lambda f: f.with_suffix(".jsonl").write_text("a\nb\nc"), DataError, "line 1 is no JSON"),
        (
            lambda f: np.save(f, rows() * np.float32([1, 1, np.inf, 1])),
            DataError,
            "'a red dog' is not finite",
        ),
        (lambda f: np.save(f, rows()[0]), ValueError, "holds no text vectors"),
        (lambda f: np.save(f, rows().astype(np.float64)), ValueError, "got float64"),
        (lambda f: np.save(f, np.asfortranarray(rows())), ValueError, "in columns"),
        (lambda f: np.save(f, rows(0)), ValueError, "is empty"),
        (lambda f: f.write_bytes(f.read_bytes()[:-1]), ValueError, r"is cut: \(3, 4\) of float32"),
        (lambda f: f.write_bytes(b"text"), ValueError, "holds no text vectors"),
        (
            lambda f: write_texts(f.with_suffix(".jsonl"), [*TEXTS[:2], TEXTS[0]]),
            DataError,
            "'a red dog' has two vectors, rows 0 and 2",
        ),
    ],
)
def test_files_that_do_not_fit_are_refused(file, change, error, words):
    change(file)
    with pytest.raises(error, match=words):
        read(file)


def test_a_text_may_stand_twice_with_one_vector(file):
    np.save(file, rows()[[0, 1, 0]])
    write_texts(file.with_suffix(".jsonl"), [*TEXTS[:2], TEXTS[0]])
    np.testing.assert_array_equal(read(file)(TEXTS[:1]), rows()[:1])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x.bin", b"", r"\.npy or \.safetensors"),
        ("", b"", "got ''"),
        ("x.safetensors", b"\xff" * 9, "holds no text vectors"),
        ("x.safetensors", (2).to_bytes(8, "little") + b"{}", "holds no text vectors.*'vectors'"),
    ],
)
def test_other_files_are_refused(tmp_path, name, content, words):
    if name:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=words):
        read(tmp_path / name if name else "")


def test_the_check_of_the_data_names_a_text_without_a_vector(file):
    class Source(list):
        fingerprint = "f"

    records = [Record("r", np.zeros((4, 4, 3), np.uint8), [text]) for text in TEXTS]
    report = inspection.preview(Source(records), read(file), None)
    assert (report.counts["captions"], report.counts["tokens"]) == (3, 0)
    with pytest.raises(DataError, match="no vector of 'a cat'"):
        inspection.preview(Source([Record("r", records[0].image, ["a cat"])]), read(file), None)


def test_a_file_of_texts_has_one_per_line(tmp_path):
    (tmp_path / "a.txt").write_text("one\n\n two, \r\nthree")
    assert text_vectors.read_texts(tmp_path / "a.txt") == ["one", " two, ", "three"]
    write_texts(tmp_path / "a.jsonl", TEXTS)
    assert text_vectors.read_texts(tmp_path / "a.jsonl") == TEXTS


def test_a_missing_sentence_model_says_what_to_install(monkeypatch):
    monkeypatch.setattr(sentence_encoder.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install sentence-transformers"):
        sentence_encoder.SentenceEncoder("folder")
