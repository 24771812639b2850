"""Captions are drawn by their weights, from a table, from its shards and by an option of shards."""

import json

import numpy as np
import pytest
from PIL import Image

from tests.support import helpers
from tests.support.numbered import WORDS, Numbered, loader, take
from vlc_jax.input_pipeline.commands import shard_writer
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import make_source, shards

SECOND = WORDS(["second"])[0, 0]


def share_of_second(source, steps=20):
    texts = np.concatenate([batch["text"] for batch in take(steps, source)])
    return np.mean(texts[:, 1] == SECOND)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """30 images with an alt text and two written captions."""
    folder = tmp_path_factory.mktemp("weights")
    Image.new("RGB", (8, 8)).save(folder / "a.png")
    rows = (
        {"image": "a.png", "alt": f"n{k} first", "written": [f"n{k} second", f"n{k} same"]}
        for k in range(30)
    )
    return helpers.write_rows(folder / "t.jsonl", rows)


def records(table, **options):
    columns = {"caption_column": ["alt", "written"], "join_rows": False}
    return make_source("records", "train", path=table, **columns, **options)


def test_a_column_has_its_share_in_training_and_in_shards(table, tmp_path):
    source = records(table, caption_weights=[1, 3])
    assert source[0].caption_weights == [1, 1.5, 1.5]
    shard_writer.write(source, tmp_path, size=8)
    stored = make_source("shards", "all", path=tmp_path)
    assert share_of_second(source) == pytest.approx(1.5 / 4, abs=0.15)  # 4 sigmas of 160 draws
    for before, after in zip(take(3, source), take(3, stored), strict=True):
        np.testing.assert_array_equal(before["text"], after["text"])
    # by place, in place of the stored ones
    other = make_source("shards", "all", path=tmp_path, caption_weights=[0, 1, 0])
    assert share_of_second(other, 3) == 1
    assert len({source.fingerprint, records(table).fingerprint}) == 2
    assert len({stored.fingerprint, other.fingerprint}) == 2


def test_a_caption_without_weight_or_text_is_never_drawn():
    assert share_of_second(Numbered(caption_weights=[0, 1, 5])) == 1  # the third is blank
    weightless = Numbered(caption_weights=[0, 0, 1])
    message = "usable captions have the weight 0"
    with loader(weightless, max_bad_share=0) as batches, pytest.raises(DataError, match=message):
        next(batches)


@pytest.mark.parametrize("weights", [[1], [-1, 2], [0, 0], "ab", [float("nan"), 1]])
def test_weights_that_cannot_be_are_refused(table, weights):
    with pytest.raises(ValueError, match="caption_weights"):
        records(table, caption_weights=weights)


def test_a_record_with_more_captions_than_weights_is_bad(tmp_path):
    shard_writer.write(Numbered(), tmp_path, size=8)
    source = make_source("shards", "all", path=tmp_path, caption_weights=[1, 2])
    with pytest.raises(DataError, match="r0 has 3 captions, and caption_weights are 2 numbers"):
        source[0]


@pytest.mark.parametrize("weights", [[1], ["1", 1, 1], [-1, 1, 1]])
def test_damaged_weights_in_a_shard_are_an_error_of_their_entry(weights):
    header = {"id": "a", "captions": ["a", "b", "c"], "caption_weights": weights}
    text = json.dumps(header).encode()
    with pytest.raises(ValueError, match="weights"):
        shards.decode(len(text).to_bytes(4, "little") + text)
