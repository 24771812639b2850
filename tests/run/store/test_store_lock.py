"""One owner of a folder without locks: the living keep it, the dead lose it, of two one gets it."""

import json
import threading

import pytest

from tests.support.disk_store import on_disk
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.stores.any_path import StorePath
from vlc_jax.run.store import store_lock
from vlc_jax.run.store.store_lock import StoreLock


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(store_lock, "BEAT_SECONDS", 0.05)


@pytest.fixture
def folder(tmp_path):
    return on_disk(tmp_path)


@pytest.fixture
def elsewhere(monkeypatch):
    """From now on other jobs run on other hosts, whose processes nobody here can ask for."""
    monkeypatch.setattr(store_lock, "_pid_space", lambda: "another host")


def never(message):
    raise AssertionError(message)


def holders(folder):
    return {name: json.loads((folder / name).read_bytes()) for name in folder.files("lock/")}


def test_a_living_owner_keeps_it(folder, elsewhere):
    lock = StoreLock(folder, never)
    with pytest.raises(UsageError, match=r"in use by host \S+ pid \d+; wait for it"):
        StoreLock(folder, never)
    lock.release()
    StoreLock(folder, never).release()
    assert list(holders(folder)) == ["lock/000002.json"]


def dead(folder, **facts):
    """The lock of a job that was killed."""
    left = {"host": "a", "pid": 2**30, "pid_space": "x", "start": "s", "beat": 7, "is_over": False}
    (folder / "lock/000004.json").write_bytes(json.dumps(left | facts).encode())


def test_a_dead_owner_loses_it_once_it_was_silent(folder, caplog):
    dead(folder)
    lock = StoreLock(folder, never)
    assert "locked by host a pid" in caplog.text
    assert "recovered the lock of a job that died: host a" in caplog.text
    assert list(holders(folder)) == ["lock/000005.json"]
    lock.release()


def test_a_dead_process_of_this_host_is_not_waited_for(folder, caplog):
    dead(folder, pid_space=store_lock._pid_space())
    StoreLock(folder, never).release()
    assert "waiting" not in caplog.text


def test_of_many_that_find_a_dead_one_one_gets_it(folder):
    dead(folder)
    got, refused = [], []

    def take():
        try:
            got.append(StoreLock(folder, never))
        except UsageError:
            refused.append(1)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(got), len(refused)) == (1, 7)
    got[0].release()


def test_an_owner_that_was_away_too_long_is_told(folder):
    told = threading.Event()
    lines = []

    def lost(line):
        lines.append(line)
        told.set()

    StoreLock(folder, lost)
    other = {"host": "b", "pid": 3}
    (folder / "lock/000002.json").write_bytes(json.dumps(other).encode())
    assert told.wait(10)
    assert lines[0].startswith(f"host b pid 3 took {folder}")


def test_a_create_that_was_done_and_not_answered_counts(folder, monkeypatch):
    create = StorePath.create
    monkeypatch.setattr(StorePath, "create", lambda *words: create(*words) and False)
    StoreLock(folder, never).release()
