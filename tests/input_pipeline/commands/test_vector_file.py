"""Files of vectors that parts compute: in every format, after a kill, and what is refused."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from vlc_jax.input_pipeline.commands import vector_file
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.tokenizers import make_tokenizer, text_vectors


def read(path):
    return make_tokenizer("vectors", 20, path=path)


def encode(texts):
    """Numbers that say which text they are of."""
    return np.array([[len(text), sum(text.encode()) % 97, 1] for text in texts], np.float32)


REQUEST = {"identity": ["encoder", 1], "block": 2}
MANY = [f"text {'x' * n}" for n in range(7)]


@pytest.mark.parametrize("name", ["x.npy", "x.safetensors"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_written_file_is_read_by_us_and_by_the_libraries(tmp_path, name, dtype):
    path = tmp_path / name
    if (dtype, path.suffix) == ("bfloat16", ".npy"):
        with pytest.raises(ValueError, match="holds no bfloat16"):
            vector_file.write(path, MANY, encode, dtype=dtype, **REQUEST)
        return
    layout = vector_file.write(path, [*MANY, "", MANY[0]], encode, dtype=dtype, **REQUEST)
    assert (layout.texts, layout.width) == (7, 3)
    expected = encode(MANY).astype(text_vectors.number(dtype))
    np.testing.assert_array_equal(read(path)(MANY), expected.astype(np.float32))
    library = np.load(path) if name == "x.npy" else load_file(path)["vectors"]
    np.testing.assert_array_equal(library, expected)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([name, "x.jsonl"])


def test_the_encoder_of_removed_vectors_is_not_that_of_new_ones(tmp_path):
    path = tmp_path / "x.npy"
    vector_file.write(path, MANY, encode, encoder={"model": "one"}, **REQUEST)
    assert text_vectors.read_encoder(path) == {"model": "one"}
    path.unlink()
    vector_file.write(path, MANY, encode, **REQUEST)
    assert text_vectors.read_encoder(path) is None


def interrupted(path, after, **options):
    """A call that is killed after so many blocks."""
    calls = []

    def stops(texts):
        calls.append(texts)
        if len(calls) > after:
            raise KeyboardInterrupt
        return encode(texts)

    with pytest.raises(KeyboardInterrupt):
        vector_file.write(path, MANY, stops, **{**REQUEST, **options})


def continued(path):
    """The numbers of texts that the same call encodes."""
    seen = []

    def counts(texts):
        seen.append(len(texts))
        return encode(texts)

    vector_file.write(path, MANY, counts, **REQUEST)
    return seen


def test_an_interrupted_file_continues_and_is_not_there_before(tmp_path):
    path = tmp_path / "x.npy"
    interrupted(path, 2)
    assert not path.exists()
    assert continued(path) == [2, 1]
    np.testing.assert_array_equal(read(path)(MANY), encode(MANY))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["x.jsonl", "x.npy"]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"identity": ["encoder", 2]}, "encoder"),
        ({"dtype": "float16"}, "dtype"),
        ({"texts": MANY[::-1]}, "texts"),
    ],
)
def test_a_file_that_another_request_began_is_kept(tmp_path, change, name):
    path = tmp_path / "x.npy"
    interrupted(path, 2)
    options = {"texts": MANY, "encode": encode, **REQUEST, **change}
    with pytest.raises(ValueError, match=rf"x\.npy\.parts was begun with {name} "):
        vector_file.write(path, **options)
    assert continued(path) == [2, 1]


def test_nothing_is_overwritten(tmp_path):
    vector_file.write(tmp_path / "x.npy", MANY, encode, **REQUEST)
    with pytest.raises(ValueError, match="exists already"):
        vector_file.write(tmp_path / "x.npy", MANY, encode, **REQUEST)
    with pytest.raises(ValueError, match=r"x\.jsonl exists and holds other texts"):
        vector_file.write(tmp_path / "x.safetensors", MANY[1:], encode, **REQUEST)


@pytest.mark.parametrize(
    ("encode", "dtype", "words"),
    [
        (lambda texts: np.full((len(texts), 2), np.nan), "float32", "'text ' is not finite"),
        (lambda texts: np.full((len(texts), 2), 1e6), "float16", "not finite in float16"),
        (lambda texts: np.zeros((1, 2)), "float32", r"gave vectors \(1, 2\) for 2 texts"),
        (lambda texts: np.zeros((len(texts), len(texts))), "float32", "1 rows of width 2 have 4"),
    ],
)
def test_broken_vectors_are_not_written(tmp_path, encode, dtype, words):
    with pytest.raises(DataError, match=words):
        vector_file.write(tmp_path / "x.npy", MANY, encode, dtype=dtype, **REQUEST)
    assert not (tmp_path / "x.npy").exists()
