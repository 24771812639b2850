"""Copies of shards on a local disk: whole or absent, within the limit, whoever makes them."""

import hashlib
import os
import resource
import subprocess
import sys
import time
from concurrent import futures

import pytest

from tests.support import helpers
from vlc_jax.input_pipeline.record import ShardError, StageError
from vlc_jax.input_pipeline.sources.stage import Stage

SIZE = 1000


@pytest.fixture
def make(tmp_path):
    """Writes file `number` of `size` bytes; returns its folder and its entry of a manifest."""

    def write(number, size=SIZE):
        origin = tmp_path / f"shard-{number}"
        origin.write_bytes(bytes([number]) * size)
        digest = hashlib.sha256(origin.read_bytes()).hexdigest()
        return tmp_path, {"name": origin.name, "bytes": size, "sha256": digest}

    return write


def names(stage):
    """What lies in the stage beside its lock."""
    return {path.name for path in stage.folder.iterdir()} - {"lock"}


def used(stage):
    """Bytes in the stage, between two changes of it."""
    with stage._folder_lock():
        found = [path for path in stage.folder.iterdir() if path.exists()]
        return sum(path.stat().st_size for path in found)


def staged(stage, *shards):
    return names(stage) == {stage.path(shard).name for _, shard in shards}


def test_a_copy_is_the_shard_and_is_made_once(make, tmp_path):
    stage, (folder, shard) = Stage(tmp_path / "new" / "stage", SIZE), make(1)
    assert not stage.use(shard)
    assert stage.copy(folder, shard) == SIZE
    assert stage.path(shard).read_bytes() == (folder / shard["name"]).read_bytes()
    (folder / shard["name"]).unlink()
    assert stage.copy(folder, shard) == 0
    assert stage.use(shard)


def test_the_least_recently_used_copies_make_room(make, tmp_path):
    stage, shards = Stage(tmp_path / "stage", 3 * SIZE), [make(number) for number in range(6)]
    for number, (_, shard) in enumerate(shards[:3]):
        stage.copy(*shards[number])
        os.utime(stage.path(shard), (number, number))  # the clock of a file system may be coarse
    stage.use(shards[0][1])
    stage.copy(*shards[3])
    assert staged(stage, shards[0], shards[2], shards[3])
    stage.copy(*make(7, size=2 * SIZE + 1))
    assert len(names(stage)) == 1


def test_what_else_lies_in_the_folder_stays_and_does_not_count(make, tmp_path):
    stage = Stage(tmp_path / "stage", SIZE)
    (stage.folder / "thesis.array_record").write_bytes(b"x" * 5 * SIZE)
    for number in (1, 2):
        stage.copy(*make(number))
    assert names(stage) == {"thesis.array_record", stage.path(make(2)[1]).name}


def test_threads_that_want_the_same_shard_copy_it_once(make, tmp_path):
    (folder, shard), count = make(1), 8
    stages = [Stage(tmp_path / "stage", SIZE) for _ in range(count)]
    with futures.ThreadPoolExecutor(count) as pool:
        copied = list(pool.map(lambda stage: stage.copy(folder, shard), stages))
    assert sorted(copied) == [0] * (count - 1) + [SIZE]
    assert staged(stages[0], (folder, shard))


def test_many_that_copy_at_once_stay_within_the_limit(make, tmp_path):
    shards = [make(number) for number in range(20)]
    stage = Stage(tmp_path / "stage", 2 * SIZE)
    with futures.ThreadPoolExecutor(6) as pool:
        done = [pool.submit(stage.copy, *shard) for shard in shards]
        while not all(future.done() for future in done):
            assert used(stage) <= 2 * SIZE
    assert sum(future.result() for future in done) == 20 * SIZE
    assert len(names(stage)) == 2


def open_when_read(pipe, process):
    """The pipe for writing, once the process reads from it."""
    while True:
        assert process.poll() is None
        try:
            return open(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK), "wb")
        except OSError:  # nobody has opened it
            time.sleep(0.01)


COPY = """
import sys
from pathlib import Path
from vlc_jax.input_pipeline.record import ShardError, StageError
from vlc_jax.input_pipeline.sources.stage import Stage
from vlc_jax.input_pipeline import stores
stores.open_regular = lambda path: open(path, "rb")  # which waits, where a pipe is refused
pipe = Path(sys.argv[2])
shard = {"name": pipe.name, "bytes": int(sys.argv[3]), "sha256": sys.argv[4]}
Stage(sys.argv[1], 10**9).copy(pipe.parent, shard)
"""


def test_a_killed_copy_leaves_no_shard_and_is_made_again(make, tmp_path):
    """The shard comes through a pipe, so that the copy is under way while we hold the rest."""
    stage, (folder, shard) = Stage(tmp_path / "stage", 10 * SIZE), make(1)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    words = [str(stage.folder), str(pipe), str(SIZE), shard["sha256"]]
    process = subprocess.Popen([sys.executable, "-c", COPY, *words], cwd=helpers.ROOT)
    with open_when_read(pipe, process) as half:
        half.write(b"x" * (SIZE // 2))
        half.flush()
        partial = stage.path(shard).name + ".partial"
        assert names(stage) == {partial}
        assert stage.copy(folder, shard, waits=False) == 0  # another process is at it
        assert not stage.use(shard)
        process.kill()
        process.wait()
    assert names(stage) == {partial}
    assert (stage.folder / partial).stat().st_size == SIZE  # as long as the shard, and not it
    assert not stage.use(shard)
    assert stage.copy(folder, shard) == SIZE
    assert stage.path(shard).read_bytes() == (folder / shard["name"]).read_bytes()
    assert staged(stage, (folder, shard))


def test_what_a_killed_process_left_makes_room(make, tmp_path):
    stage, dead = Stage(tmp_path / "stage", SIZE), make(1)
    left = stage.path(dead[1]).with_suffix(".array_record.partial")
    left.write_bytes(b"x" * SIZE)
    stage.copy(*make(2))
    assert staged(stage, make(2))


@pytest.mark.parametrize("harm", ["truncated", "changed", "longer", "missing"])
def test_a_shard_unlike_its_manifest_is_an_error_naming_it(make, tmp_path, harm):
    stage, (folder, shard) = Stage(tmp_path / "stage", 10 * SIZE), make(1)
    origin = tmp_path / shard["name"]
    content = origin.read_bytes()
    changed = {"truncated": content[:-1], "changed": b"x" + content[1:], "longer": content + b"x"}
    origin.unlink()
    if harm in changed:
        origin.write_bytes(changed[harm])
    with pytest.raises(ShardError, match=f"shard {origin}"):
        stage.copy(folder, shard)
    assert names(stage) == set()


def test_a_full_disk_is_an_error_that_says_what_to_do(make, tmp_path):
    stage, shard = Stage(tmp_path / "stage", 10 * SIZE), make(1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE // 2, before[1]))
    try:
        with pytest.raises(StageError, match=r"cannot copy shard-1 .* make room there, lower"):
            stage.copy(*shard)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert names(stage) == set()


def test_a_stage_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot make the folder"):
        Stage(tmp_path / "file" / "stage", SIZE)
    with pytest.raises(ValueError, match="stage_gb must be above 0; got 0"):
        Stage(tmp_path / "stage", 0)
    with pytest.raises(ValueError, match="names a folder"):
        Stage("", SIZE)
