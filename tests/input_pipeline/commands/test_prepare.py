"""Shards: what goes in comes out, a stopped run continues, damage is found."""

import errno
import fcntl
import io
import os
import pickle
import resource
from unittest import mock

import numpy as np
import pytest
from PIL import Image

from tests.support import helpers
from vlc_jax.input_pipeline.commands import check, prepare, shard_job, shard_writer
from vlc_jax.input_pipeline.images import image_ops
from vlc_jax.input_pipeline.record import DataError, Record
from vlc_jax.input_pipeline.sources.shards import ShardsSource


class Pictures:
    """`count` records of 30 x 20 noise; those in `bad` cannot be used."""

    def __init__(self, count=10, bad=(), stop_at=None):
        self.fingerprint = f"pictures/{count}"
        self._count, self._bad, self._stop_at = count, bad, stop_at

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        if index == self._stop_at:
            raise KeyboardInterrupt
        pixels = np.random.default_rng(index).integers(0, 256, (20, 30, 3), dtype=np.uint8)
        return Record(
            id=f"r{index}",
            image=b"broken" if index in self._bad else pixels,
            captions=[f"caption {index}", "é"],
            negatives=[["no"], ["non", "nein"]],
            positives=[["yes"], []],
            hard_images=["r1"],
            group={"kind": index % 2},
            meta={"label": index},
        )


def test_records_come_back_whole_and_small_images_lossless(tmp_path):
    source = Pictures()
    manifest = shard_writer.write(source, tmp_path, size=64, shard_size=4)
    shards = ShardsSource(path=tmp_path)
    assert len(shards) == manifest["count"] == 10
    assert [shard["count"] for shard in manifest["shards"]] == [4, 4, 2]
    for index in (0, 3, 4, 9):
        before, after = source[index], shards[index]
        np.testing.assert_array_equal(image_ops.decode(after.image), before.image)
        for name in ("id", "captions", "negatives", "positives", "hard_images", "group", "meta"):
            assert getattr(after, name) == getattr(before, name)
    assert pickle.loads(pickle.dumps(shards))[5] == shards[5]


def test_images_are_shrunk_as_jpeg_and_never_enlarged(tmp_path):
    photo = np.random.default_rng(0).integers(0, 256, (6, 9, 3), dtype=np.uint8)
    photo = np.asarray(Image.fromarray(photo).resize((300, 200), Image.Resampling.BICUBIC))
    data = shard_job.shrink(Record("a", photo, ["a"]), 100, "jpeg")
    picture = Image.open(io.BytesIO(data))
    assert (picture.format, picture.size) == ("JPEG", (150, 100))
    expected = Image.fromarray(photo).resize((150, 100), Image.Resampling.BICUBIC)
    assert np.abs(np.asarray(picture).astype(int) - np.asarray(expected)).mean() < 2
    same = shard_job.shrink(Record("a", photo, ["a"]), 1_000, "png")
    np.testing.assert_array_equal(image_ops.decode(same), photo)


def test_an_unfinished_folder_is_no_source(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        shard_writer.write(Pictures(stop_at=6), tmp_path, size=64, shard_size=4)
    with pytest.raises(DataError, match="unfinished"):
        ShardsSource(path=tmp_path)


def test_another_request_on_the_same_folder_is_refused(tmp_path):
    shard_writer.write(Pictures(), tmp_path, size=64)
    with pytest.raises(ValueError, match="begun with size 64, not 32"):
        shard_writer.write(Pictures(), tmp_path, size=32)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match=r"not empty \(it holds thesis\.tex\)"):
        shard_writer.write(Pictures(), tmp_path / "other", size=64)


def prepared(tmp_path):
    shard_writer.write(Pictures(), tmp_path, size=64, shard_size=4)
    return tmp_path / "shard-00001-of-00003.array_record"


def test_missing_and_truncated_shards_are_found_at_once(tmp_path):
    shard = prepared(tmp_path)
    content = shard.read_bytes()
    shard.write_bytes(content[:-100])
    with pytest.raises(DataError, match=r"shard-00001.*bytes, the manifest says"):
        ShardsSource(path=tmp_path)
    shard.unlink()
    with pytest.raises(DataError, match=r"shard-00001.*is missing"):
        ShardsSource(path=tmp_path)


def test_a_flipped_byte_is_found_by_check_and_when_continuing(tmp_path, capsys):
    shard = prepared(tmp_path)
    content = bytearray(shard.read_bytes())
    assert check.main([str(tmp_path)]) == 0
    content[len(content) // 3] ^= 1
    shard.write_bytes(content)
    assert check.main([str(tmp_path)]) == 3
    assert "shard-00001-of-00003.array_record: sha256" in capsys.readouterr().err
    with pytest.raises(DataError, match="shard-00001"):
        shard_writer.write(Pictures(), tmp_path, size=64, shard_size=4)


def test_a_damaged_entry_is_a_data_error_of_that_entry(tmp_path):
    shard = prepared(tmp_path)
    content = bytearray(shard.read_bytes())
    place = content.index(b'"id": "r5"')
    content[place : place + 4] = b"\xff\xff\xff\xff"
    shard.write_bytes(content)
    source = ShardsSource(path=tmp_path)
    assert source[0].id == "r0"
    with pytest.raises(DataError, match=r"entry 5 of .* is damaged"):
        source[5]


def test_a_folder_without_a_manifest_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"holds no manifest\.json"):
        ShardsSource(path=tmp_path.parent)


@pytest.fixture
def photos(tmp_path):
    return helpers.write_jsonl(tmp_path, helpers.write_photos(tmp_path))


def command(table, out, *more):
    return ["--source", "records", "--option", f"path={table}", "--out", str(out), *more]


def test_wrong_requests_exit_with_2_and_bad_data_with_3(photos, tmp_path, capsys):
    out = tmp_path / "out"
    assert prepare.main(command(photos, out, "--size", "0")) == 2
    assert prepare.main(command(tmp_path / "no.jsonl", out, "--size", "8")) == 2
    assert prepare.main(["--source", "record", "--out", str(out), "--size", "8"]) == 2
    assert "did you mean 'records'?" in capsys.readouterr().err
    assert prepare.main(command(photos, out, "--size", "8", "--option", "spilt_column=a")) == 2
    assert "did you mean 'split_column'?" in capsys.readouterr().err
    photo = photos.with_name("photo_5.jpg")
    photo.write_bytes(photo.read_bytes()[:300])
    assert prepare.main(command(photos, out, "--size", "8")) == 3
    assert "photo_5.jpg" in capsys.readouterr().err
    assert prepare.main(command(photos, out, "--size", "8", "--max-bad-share", "0.5")) == 0
    with pytest.raises(SystemExit) as end:
        prepare.main(["--size", "8"])
    assert end.value.code == 2


@pytest.fixture
def no_room(request, monkeypatch):
    """A file system that is full: for the manifest, or for a shard."""
    if request.param == "manifest":
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        monkeypatch.setattr(shard_job.os, "fsync", mock.Mock(side_effect=full))
        yield "No space left on device"
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, before[1]))
    yield "cannot write"
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("no_room", ["manifest", "shard"], indirect=True)
def test_a_full_disk_exits_with_30(tmp_path, no_room, capsys):
    words = ["--source", "digits", "--size", "32", "--shard-size", "9", "--out", str(tmp_path)]
    assert prepare.main(words) == 30
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert no_room in line


@pytest.mark.parametrize("share", [-1.0, float("nan"), 5.0])
def test_a_wrong_share_is_refused_before_writing(tmp_path, share):
    with pytest.raises(ValueError, match="max_bad_share is a share from 0 to 1"):
        shard_writer.write(Pictures(), tmp_path / "out", size=64, max_bad_share=share)
    assert not (tmp_path / "out").exists()


def test_two_processes_cannot_write_one_folder(tmp_path):
    with (tmp_path / "lock.partial").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ValueError, match=f"another process writes to {tmp_path}"):
            shard_writer.write(Pictures(), tmp_path, size=64)
    shard_writer.write(Pictures(), tmp_path, size=64)
    assert not list(tmp_path.glob("*.partial"))
