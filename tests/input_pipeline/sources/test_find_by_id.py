"""Records by their id, as hard images need them: from tables and from shards."""

import json
import pickle

import numpy as np
import pytest

from tests.support import helpers, miniature
from vlc_jax.input_pipeline.commands import check, shard_writer
from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.loader.examples import Examples
from vlc_jax.input_pipeline.record import DataError, Findable
from vlc_jax.input_pipeline.sources import id_index, make_source
from vlc_jax.input_pipeline.sources.records import RecordsSource
from vlc_jax.input_pipeline.sources.shards import ShardsSource


@pytest.fixture
def table(tmp_path):
    """Eight photographs, each named twice."""
    names = helpers.write_photos(tmp_path, 8) * 2
    rows = [
        {"image": name, "caption": f"picture {row}", "name": f"p{row}"}
        for row, name in enumerate(names)
    ]
    return helpers.write_rows(tmp_path / "captions.jsonl", rows)


def assert_finds_every_record(source):
    assert isinstance(source, Findable)
    for index in range(len(source)):
        record = source[index]
        assert source.find(record.id) == record
    for wrong in ("p99", "", "photo_0.jpg"):
        with pytest.raises(DataError, match=f"no (record|row) '{wrong}'"):
            source.find(wrong)


@pytest.mark.parametrize("options", [{}, {"id_column": "name"}, {"holdout": 0.5}])
def test_every_record_of_a_table_is_found_by_its_id(table, options):
    source = make_source("records", "train", path=table, **options)
    assert_finds_every_record(source)
    other = pickle.loads(pickle.dumps(source))
    assert other.find(source[3].id) == source[3]


def test_a_record_of_another_split_is_not_found(table):
    train, rest = (
        make_source("records", split, path=table, holdout=0.5) for split in ("train", "validation")
    )
    with pytest.raises(DataError, match=r"no record 'photo_.* in split 'train'"):
        train.find(rest[0].id)


def test_a_row_that_cannot_be_read_hides_no_other(table):
    with table.open("a") as file:
        file.write("{torn\n" + json.dumps({"image": "photo_0.jpg", "caption": "last"}) + "\n")
    source = make_source("records", "train", path=table, join_rows=False)
    assert source.find("photo_0.jpg#18").captions == ["last"]
    joined = make_source("records", "train", path=table)
    assert joined.find("photo_0.jpg#18") == joined[0]


def test_the_image_of_a_negative_has_the_texts_exchanged(tmp_path):
    names = helpers.write_photos(tmp_path, 8)
    rows = [
        {"image": names[k], "caption": f"a {k}", "not": f"no {k}", "other": names[-1 - k]}
        for k in range(4)
    ]

    def read(*rows):
        path = helpers.write_rows(tmp_path / "a.jsonl", rows)
        return RecordsSource(path=path, negatives_column="not", negative_image_column="other")

    source = read(*rows)
    crop, texts = ImageTransform(32, "none"), sampling.make_hard_texts("negatives", count=1)
    examples = Examples(source, crop, 0, np.inf, {}, hard_images=1, negatives=texts)
    for main, hard in (examples.group(number, {}) for number in range(4)):
        k = int(main.caption[-1])
        assert (main.caption, main.negatives) == (f"a {k}", [f"no {k}"])
        assert (hard.caption, hard.negatives) == (f"no {k}", [f"a {k}"])
        assert hard.record.image == tmp_path / names[-1 - k]
    assert len(source) == 4
    source = read(rows[0] | {"not": ["no", "neither"]}, {**rows[1], "other": None})
    for index, message in enumerate(("of one caption with one hard negative", "'other' is the")):
        with pytest.raises(DataError, match=message):
            source.find(source[index].hard_images[0])


def test_hard_images_of_negclip_are_rows_of_its_table(tmp_path):
    miniature.write_coco(tmp_path)
    source = make_source(
        "negclip", "train", annotations=tmp_path / "train_neg_clip.tsv", images=tmp_path
    )
    assert_finds_every_record(source)
    near = [source.find(name) for name in source[11].hard_images]
    assert [record.captions[0] for record in near] == [
        f"caption 0 of{' ' if row != 3 else chr(10)}picture {row}" for row in (0, 1, 2)
    ]
    assert source[1].negative_kinds == [["negclip", "negclip"]]


def test_shards_find_what_was_prepared_and_nothing_else(table, tmp_path):
    (tmp_path / "photo_5.jpg").write_bytes(b"torn")
    source = make_source("records", "train", path=table, id_column="name", join_rows=False)
    shard_writer.write(source, tmp_path / "out", size=32, shard_size=5, max_bad_share=0.2)
    shards = ShardsSource(path=tmp_path / "out")
    assert len(shards) == 14
    assert_finds_every_record(shards)
    with pytest.raises(DataError, match="no record 'p5'"):
        shards.find("p5")


def test_a_damaged_list_of_ids_is_noticed(table, tmp_path, capsys):
    source = make_source("records", "train", path=table, join_rows=False)
    manifest = shard_writer.write(source, tmp_path / "out", size=32)
    path = tmp_path / "out" / manifest["shards"][0]["ids"]["name"]
    stored = path.read_bytes()
    path.write_bytes(stored[::-1])
    assert check.main([str(tmp_path / "out")]) == 3
    assert f"{path}: sha256" in capsys.readouterr().err
    path.write_bytes(stored[:-8])
    with pytest.raises(DataError, match="has 120 bytes, the manifest says 128"):
        ShardsSource(path=tmp_path / "out")


def test_shards_of_another_format_are_refused(table, tmp_path):
    source = make_source("records", "train", path=table)
    shard_writer.write(source, tmp_path / "out", size=32)
    path = tmp_path / "out" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format_version": 1}))
    with pytest.raises(DataError, match="has format 1, not 2: prepare the data"):
        ShardsSource(path=tmp_path / "out")
    with pytest.raises(ValueError, match="was begun with format_version 1, not 2"):
        shard_writer.write(source, tmp_path / "out", size=32)


def test_equal_hashes_are_told_apart_by_their_records():
    places = id_index.IdIndex(
        np.array([7, *id_index.hash_ids(["a", "b"]), *id_index.hash_ids(["a"])], np.uint64)
    )
    assert places["a"] == [1, 3]
    assert places["b"] == [2]
    assert places["c"] == []
