"""A folder of any number of shards opens by its manifest alone, and by an index of the manifest."""

import hashlib
import json
import pickle

import pytest

from tests.support.numbered import Numbered
from vlc_jax.input_pipeline.commands import shard_writer
from vlc_jax.input_pipeline.record import DataError, ShardError
from vlc_jax.input_pipeline.sources import shards
from vlc_jax.input_pipeline.sources.shard_table import ShardTable
from vlc_jax.input_pipeline.sources.shards import ShardsSource

COUNT = 30


@pytest.fixture
def folder(tmp_path):
    shard_writer.write(Numbered(COUNT), tmp_path / "shards", size=8, shard_size=4)
    return tmp_path / "shards"


def entry(number, **changes):
    digests = [hashlib.sha256(f"{side}{number}".encode()).hexdigest() for side in "ab"]
    ids = {"name": f"{number}.ids", "bytes": 8 * number, "sha256": digests[1]}
    shard = {"name": f"{number}.array_record", "bytes": 99 + number, "sha256": digests[0]}
    return {**shard, "count": number % 3, "ids": ids, **changes}


def test_entries_come_back_and_take_300_bytes_each(tmp_path):
    entries = [entry(number) for number in range(1_000)]
    table = ShardTable.of(tmp_path, entries)
    for each in (table, pickle.loads(pickle.dumps(table))):
        assert list(each) == entries
    assert len(pickle.dumps(table)) < 300_000
    assert [*ShardTable.of(tmp_path, [])] == []


def test_a_record_is_found_in_its_shard(tmp_path):
    table = ShardTable.of(tmp_path, [entry(number) for number in range(11)])
    places = [(n, position) for n in range(11) for position in range(n % 3)]  # some are empty
    assert [table.locate(index) for index in range(table.total)] == places
    for index in (-1, table.total):
        with pytest.raises(ValueError, match=f"record {index} of {table.total}"):
            table.locate(index)


@pytest.mark.parametrize(
    "change", [{"count": -1}, {"bytes": 2**70}, {"sha256": "0f"}, {"sha256": "é" * 64}, {"ids": {}}]
)
def test_entries_that_cannot_be_are_refused(tmp_path, change):
    with pytest.raises(DataError, match="shard 1"):
        ShardTable.of(tmp_path, [entry(0), entry(1, **change)])


def test_the_fingerprint_is_that_of_earlier_versions(folder):
    listed = json.loads((folder / shards.MANIFEST).read_text())["shards"]
    text = json.dumps([shard["sha256"] for shard in listed])
    expected = f"shards/{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    assert ShardsSource(path=folder).fingerprint == expected


def test_opening_reads_no_shard_and_a_wrong_one_ends_the_run(folder, monkeypatch):
    monkeypatch.setattr(shards, "_CHECKED", 2)  # of the eight, the first and the sixth
    wrong = sorted(folder.glob("*.array_record"))[1:4]
    wrong[0].write_bytes(bytes(wrong[0].stat().st_size))
    wrong[1].write_bytes(wrong[1].read_bytes() + b"x")
    wrong[2].unlink()
    source = ShardsSource(path=folder)
    assert len(source) == COUNT
    assert source[0].id == "r0"
    for index, path in zip((4, 8, 12), wrong, strict=True):
        # no DataError, for which the loader would skip record after record
        with pytest.raises(ShardError, match=rf"{path.name}.*the manifest says 4 records in"):
            source[index]


@pytest.mark.usefixtures("table_cache")
def test_a_manifest_is_parsed_once_and_again_after_a_change(folder, monkeypatch):
    before = ShardsSource(path=folder)
    with monkeypatch.context() as patch:
        patch.setattr(ShardTable, "of", None)  # what parses the list of shards
        after = ShardsSource(path=folder)
        assert after.manifest.pop("shards")[3] == before.manifest["shards"][3]
        assert after.manifest.items() <= before.manifest.items()
        assert after.fingerprint == before.fingerprint
        assert [after[i].id for i in range(COUNT)] == [f"r{i}" for i in range(COUNT)]
    path = folder / shards.MANIFEST
    manifest = json.loads(path.read_text())
    del manifest["shards"][-1]
    path.write_text(json.dumps(manifest | {"count": 28}))
    assert len(ShardsSource(path=folder)) == 28
