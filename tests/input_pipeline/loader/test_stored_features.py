"""Stored features: bytes and back, batches of them, and what is refused."""

import ml_dtypes
import numpy as np
import pytest

from vlc_jax.input_pipeline.commands import shard_writer
from vlc_jax.input_pipeline.loader import stored_features
from vlc_jax.input_pipeline.record import DataError, Record
from vlc_jax.input_pipeline.sources.features import HARD_IMAGE, FeaturesSource
from vlc_jax.input_pipeline.sources.shards import ShardsSource

RECORD = Record(
    "a", b"", ["red", "a cat"], negatives=[["blue"], ["a dog", "red"]], positives=[[], ["one cat"]]
)


def arrays(seed=0, texts=5):
    rng = np.random.default_rng(seed)
    image = {"pooled": rng.normal(size=4), "tokens": rng.normal(size=(3, 6))}
    return image, {"pooled": rng.normal(size=(texts, 4)), "tokens": rng.normal(size=(texts, 2, 6))}


def test_the_texts_of_a_record_are_all_it_holds_once():
    assert stored_features.texts_of(RECORD) == ["red", "a cat", "blue", "a dog", "one cat"]


@pytest.mark.parametrize("dtype", stored_features.DTYPES)
def test_what_is_unpacked_is_what_was_packed_in_that_precision(dtype):
    image, text = arrays()
    texts = stored_features.texts_of(RECORD)
    stored = stored_features.unpack(stored_features.pack(image, text, texts, dtype))
    number = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    for found, given in ((stored.image, image), (stored.text, text)):
        assert found.keys() == given.keys()
        for part, array in given.items():
            assert found[part].dtype == number
            np.testing.assert_array_equal(found[part], array.astype(number))
    assert [stored.row(name) for name in texts] == [0, 1, 2, 3, 4]
    assert stored.shape == (3, 6)


def test_a_text_that_was_not_stored_and_other_bytes_are_refused():
    stored = stored_features.unpack(
        stored_features.pack(*arrays(), stored_features.texts_of(RECORD), "float32")
    )
    with pytest.raises(DataError, match="no features of 'green' are stored"):
        stored.row("green")
    with pytest.raises(DataError, match="these bytes are no features"):
        stored_features.unpack(b"\x89PNG\r\n")


def test_a_batch_has_the_features_of_its_texts_or_zeros():
    texts = stored_features.texts_of(RECORD)
    rows = [
        stored_features.unpack(stored_features.pack(*arrays(seed), texts, "float32"))
        for seed in range(2)
    ]
    batch = stored_features.text_arrays(rows, [["blue", "a dog"], ["red"]], 2, "negative_text")
    assert batch["negative_text_tokens"].shape == (2, 2, 2, 6)
    for part in ("pooled", "tokens"):
        found = batch[f"negative_text_{part}"]
        np.testing.assert_array_equal(found[0], rows[0].text[part][2:4])
        np.testing.assert_array_equal(found[1], [rows[1].text[part][0], 0 * found[1, 1]])
    assert stored_features.text_arrays(rows, [[], []], 0, "positive_text") == {}


class Encoded:
    """Three records and a hard image behind them."""

    fingerprint = "encoded"

    def __len__(self):
        return 4

    def __getitem__(self, index):
        image = stored_features.pack(*arrays(index, texts=1), ["red"], "float32")
        meta = {HARD_IMAGE: True} if index == 3 else {}
        return Record(f"r{index}", image, ["red"], hard_images=["r3"], meta=meta)


@pytest.fixture
def folder(tmp_path):
    request = {"split": "train", "features": {"weights": "abc"}}
    shard_writer.write(
        Encoded(), tmp_path / "out", size=8, format="features", **request, shard_size=2
    )
    return tmp_path / "out"


def test_a_folder_of_features_finds_its_hard_images(folder):
    source = FeaturesSource("train", path=folder)
    assert len(source) == 3
    assert source.facts == {"weights": "abc"}
    assert [record.id for record in source] == ["r0", "r1", "r2"]  # no hard image
    hard = stored_features.unpack(source.find("r3").image)
    np.testing.assert_allclose(hard.image["pooled"], arrays(3, 1)[0]["pooled"], rtol=1e-6)


def test_features_and_pictures_are_not_taken_for_each_other(folder, tmp_path):
    with pytest.raises(ValueError, match="holds features: read it with the source 'features'"):
        ShardsSource("train", path=folder)
    pixels = np.zeros((8, 8, 3), np.uint8)
    pictures = [Record("a", pixels, ["red"])]

    class Pictures(list):
        fingerprint = "pictures"

    shard_writer.write(Pictures(pictures), tmp_path / "p", size=8, split="train")
    with pytest.raises(ValueError, match="holds pictures: read it with the source 'shards'"):
        FeaturesSource("train", path=tmp_path / "p")


def test_a_folder_without_features_names_what_writes_them(tmp_path):
    for path, words in ((tmp_path, "holds no manifest.json"), ("", "this source needs `path`")):
        with pytest.raises(ValueError, match=f"{words}.*vlc-jax cache_features"):
            FeaturesSource(path=path)
