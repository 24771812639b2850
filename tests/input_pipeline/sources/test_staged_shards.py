"""Training from shards by blocks and from a stage: the same records, counted, in the same order."""

import logging
import pickle
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
from array_record.python import array_record_module

from tests.support.numbered import Numbered, assert_equal, loader, take
from vlc_jax.input_pipeline.commands import shard_writer
from vlc_jax.input_pipeline.record import ShardError, StageError
from vlc_jax.input_pipeline.sources import order, shard_files, shards, staged_shards
from vlc_jax.input_pipeline.sources.shard_files import ShardFiles
from vlc_jax.input_pipeline.sources.shard_table import ShardTable
from vlc_jax.input_pipeline.sources.shards import ShardsSource
from vlc_jax.input_pipeline.sources.stage import Stage
from vlc_jax.input_pipeline.stores import any_path, fetch

COUNT, SHARD = 30, 4  # records, and those of a shard


@pytest.fixture
def small_blocks(monkeypatch):
    for module in (order, staged_shards):
        monkeypatch.setattr(module, "BLOCK", SHARD)
        monkeypatch.setattr(module, "WINDOW", 2)


@pytest.fixture
def folder(tmp_path):
    shard_writer.write(Numbered(COUNT), tmp_path / "shards", size=8, shard_size=SHARD)
    return tmp_path / "shards"


def sizes(folder):
    return [path.stat().st_size for path in folder.glob("*.array_record")]


def open_files():
    return [file.path for file in psutil.Process().open_files()]


def needed(folder):
    """The smallest limit, of three windows of two blocks, in GB."""
    return 6 * max(sizes(folder)) / 1e9


def test_staged_records_are_those_of_the_shards_and_are_counted(folder, tmp_path):
    direct = ShardsSource(path=folder)
    staged = ShardsSource(path=folder, stage=tmp_path / "stage")
    records = [direct[index] for index in range(COUNT)]
    read = direct.take_counts()
    assert set(read) == {"bytes_read"}
    shards = len(sizes(folder))
    first = {"stage_misses": shards, "bytes_staged": sum(sizes(folder))}
    for source, expected in ((staged, first), (pickle.loads(pickle.dumps(staged)), {})):
        assert source.fingerprint == direct.fingerprint
        assert [source[index] for index in range(len(source))] == records
        hits = COUNT - expected.get("stage_misses", 0)
        assert source.take_counts() == read | {"stage_hits": hits} | expected
        assert source.take_counts() == {}


def test_a_copy_removed_for_another_process_is_made_again(folder, tmp_path):
    source = ShardsSource(path=folder, stage=tmp_path / "stage")
    expected = [source[index] for index in range(COUNT)]
    for path in (tmp_path / "stage").glob("*.array_record"):
        path.unlink()
    source.take_counts()
    assert [source[index] for index in range(COUNT)] == expected
    assert source.take_counts()["bytes_staged"] == sum(sizes(folder))


def test_a_stage_emptied_while_workers_read_costs_no_record(folder, tmp_path):
    expected = take(24, ShardsSource(path=folder, shuffle="blocks"))
    source = ShardsSource(path=folder, shuffle="blocks", stage=tmp_path / "stage")
    is_over, is_emptied = threading.Event(), threading.Event()

    def empty():
        while not is_over.wait(0.001):
            # copies that are being made, too
            for path in (tmp_path / "stage").glob("*.array_record*"):
                path.unlink(missing_ok=True)
                is_emptied.set()

    thread = threading.Thread(target=empty)
    with loader(source, workers=1, threads=2) as batches:
        assert_equal([next(batches)], expected[:1])
        thread.start()
        try:
            # the batches that the worker has ready may be read before the thread has begun
            assert is_emptied.wait(60)
            assert_equal([next(batches) for _ in expected[1:]], expected[1:])
        finally:
            is_over.set()
            thread.join()


@pytest.mark.parametrize("is_begun_anew", [False, True])
def test_a_copy_that_is_removed_while_it_is_made_is_made_again(
    folder, tmp_path, monkeypatch, caplog, is_begun_anew
):
    """Also one that another process has begun anew, and which is not finished."""
    fill, removed = Stage._fill, []

    def emptied(stage, file, remote, shard):
        fill(stage, file, remote, shard)
        if not removed:
            removed.append(stage.path(shard).with_name(f"{stage.path(shard).name}.partial"))
            removed[0].unlink()
            if is_begun_anew:
                removed[0].write_bytes(bytes(shard["bytes"]))

    monkeypatch.setattr(Stage, "_fill", emptied)
    source = ShardsSource(path=folder, stage=tmp_path / "stage")
    assert [source[index].id for index in range(COUNT)] == [f"r{index}" for index in range(COUNT)]
    assert source.take_counts()["bytes_staged"] == sum(sizes(folder))
    assert "damaged" not in caplog.text


@pytest.mark.parametrize("is_open", [True, False])
def test_a_copy_that_its_disk_changed_is_made_again(folder, tmp_path, caplog, is_open):
    """A flipped bit anywhere in a copy: at its start, its end and in its records."""
    source = ShardsSource(path=folder, stage=tmp_path / "stage")
    expected = [source[index] for index in range(SHARD)]
    copy = source._entries._stage.path(source.manifest["shards"][0])
    data = copy.read_bytes()
    # without the zeros that fill a shard up
    places = [place for place, byte in enumerate(data) if byte]
    for place in places[:: len(places) // 40]:
        changed = bytearray(data)
        changed[place] ^= 1
        copy.write_bytes(bytes(changed))
        if not is_open:
            source = pickle.loads(pickle.dumps(source))
        assert [source[index] for index in range(SHARD)] == expected
    assert "a damaged copy is made again" in caplog.text


def asked_for(reads):
    """Records that had a local copy of their shard, and those for which one was made: none, where
    copies were made ahead in time."""
    return reads.get("stage_hits", 0) + reads.get("stage_misses", 0)


@pytest.mark.usefixtures("small_blocks")
def test_an_epoch_from_a_small_stage_is_that_of_the_shards(folder, tmp_path):
    stage = {"stage": tmp_path / "stage", "stage_gb": needed(folder)}
    expected = take(10, ShardsSource(path=folder, shuffle="blocks"), batch_size=6)
    source = ShardsSource(path=folder, shuffle="blocks", **stage)
    with loader(source, batch_size=6, threads=1) as batches:
        assert_equal([next(batches) for _ in expected], expected)
        reads = batches.take_reads()
    assert reads["bytes_read"] >= sum(len(source._entries[index]) for index in range(COUNT))
    assert asked_for(reads) == 10 * 6
    assert 0 < sum(sizes(tmp_path / "stage")) <= needed(folder) * 1e9


def test_worker_processes_share_a_stage_and_count_what_they_read(folder, tmp_path):
    expected = take(6, ShardsSource(path=folder, shuffle="blocks"))
    source = ShardsSource(path=folder, shuffle="blocks", stage=tmp_path / "stage")
    with loader(source, workers=2, threads=1) as batches:
        assert_equal([next(batches) for _ in expected], expected)
        reads = batches.take_reads()
    assert asked_for(reads) == 6 * 8
    assert 0 < reads["bytes_staged"] <= sum(sizes(folder))


@pytest.mark.parametrize("stage", [None, "stage"])
def test_few_files_are_open_at_a_time(folder, tmp_path, monkeypatch, stage):
    monkeypatch.setattr(shard_files, "_MAX_OPEN", 3)
    source = ShardsSource(path=folder, stage=stage and tmp_path / stage)
    for _ in range(2):
        for index in range(COUNT):
            assert source[index].id == f"r{index}"
            ours = [path for path in open_files() if str(tmp_path) in path]
            opened = [path for path in ours if path.endswith(".array_record")]
            assert 1 <= len(opened) <= 3


def bytes_read():
    """By this process so far, from files and caches."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.parametrize(("count", "size", "most"), [(3, 600_000, 800_000), (20_000, 9, 500_000)])
def test_a_record_is_read_without_the_rest_of_its_shard(tmp_path, count, size, most):
    path, entries = tmp_path / "shard", [bytes([i % 251]) * size for i in range(count)]
    writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    for each in entries:
        writer.write(each)
    writer.close()
    file = {"name": "shard", "bytes": path.stat().st_size, "sha256": 64 * "0"}
    table = ShardTable.of(tmp_path, [{**file, "count": count, "ids": file}])
    files, before = ShardFiles(tmp_path, table), bytes_read()
    assert files[count - 2] == entries[count - 2]
    assert bytes_read() - before < most


def test_shards_that_are_read_ahead_are_no_misses(folder, tmp_path):
    source = ShardsSource(path=folder, shuffle="blocks", stage=tmp_path / "stage")
    source.read_ahead(np.arange(COUNT))
    deadline = time.monotonic() + 60
    while len(sizes(tmp_path / "stage")) < len(sizes(folder)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for index in range(COUNT):
        source[index]
    counts = source.take_counts()
    assert counts["stage_hits"] == COUNT
    assert counts["bytes_staged"] == sum(sizes(folder))


def test_the_preview_is_not_counted_as_read_by_the_run(folder):
    source = ShardsSource(path=folder)
    for index in range(COUNT):
        source[index]
    with loader(source, batch_size=2, threads=1) as batches:
        next(batches)
        assert batches.take_reads()["bytes_read"] < sum(sizes(folder)) / 2


@pytest.mark.parametrize("kind", ["truncated", "no folder"])
def test_what_cannot_be_staged_ends_the_run(folder, tmp_path, kind):
    source = ShardsSource(path=folder, stage=tmp_path / "stage")
    error = StageError
    if kind == "truncated":
        error = ShardError
        for path in folder.glob("*.array_record"):
            path.write_bytes(path.read_bytes()[:-1])
    else:
        (tmp_path / "stage").rmdir()
    with loader(source, max_bad_share=1.0) as batches:
        with pytest.raises(error, match=r"shard|stage"):
            next(batches)
        assert not batches.bad


@pytest.mark.usefixtures("small_blocks")
def test_a_stage_too_small_for_its_order_is_refused(folder, tmp_path, caplog):
    total = sum(sizes(folder)) / 1e9
    stage = {"path": folder, "stage": tmp_path / "stage"}
    with pytest.raises(ValueError, match="global shuffle reads all of them at a time"):
        ShardsSource(**stage, stage_gb=total * 0.99)
    with pytest.raises(ValueError, match=r"3 windows of 2 blocks.*allow that, or prepare"):
        ShardsSource(**stage, stage_gb=needed(folder) * 0.99, shuffle="blocks")
    with caplog.at_level(logging.WARNING):
        ShardsSource(**stage, stage_gb=needed(folder), shuffle="blocks")
        ShardsSource(**stage, stage_gb=total)
    assert not caplog.records


@pytest.mark.usefixtures("small_blocks")
def test_shards_of_many_blocks_in_a_small_stage_are_warned_of(tmp_path, caplog):
    shard_writer.write(Numbered(250, size=2), tmp_path / "shards", size=8, shard_size=12)
    gigabytes = needed(tmp_path / "shards")
    with caplog.at_level(logging.WARNING):
        ShardsSource(
            path=tmp_path / "shards", shuffle="blocks", stage=tmp_path / "s", stage_gb=gigabytes
        )
    assert "copied up to 3 times in an epoch" in caplog.text


def test_a_misspelt_shuffle_is_refused(folder):
    with pytest.raises(ValueError, match=r"unknown shuffle 'local'.*known: global, blocks"):
        ShardsSource(path=folder, shuffle="local")


def test_of_shards_in_a_store_the_manifest_alone_is_copied(folder, store, tmp_path, monkeypatch):
    remote = any_path.of(f"{store}/shards")
    for path in folder.iterdir():
        (remote / path.name).upload(path)
    monkeypatch.setattr(shards, "_CHECKED", 2)
    source = ShardsSource(path=f"{store}/shards", stage=tmp_path / "stage")
    copies = fetch.cache_folder(f"{store}/shards")
    assert [path.name for path in copies.glob("[!.]*")] == [shards.MANIFEST]
    assert [source[index].id for index in range(COUNT)] == [f"r{i}" for i in range(COUNT)]
    assert source.find("r17").id == "r17"  # takes the lists of ids
