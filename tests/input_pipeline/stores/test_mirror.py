"""A mirror has what is mirrored, however it grew, and at every moment a state of it."""

import json

import pytest

from tests.support.store import LocalStore
from vlc_jax.input_pipeline.stores.mirror import Mirror


class Recorder(LocalStore):
    """A store that fails after so many calls, and counts the bytes that reach it."""

    def __init__(self, path, calls=10**6):
        super().__init__(path)
        self.calls, self.written = calls, 0

    def write(self, name, data):
        self._count()
        self.written += len(data)
        super().write(name, data)

    def remove(self, *names):
        for name in names:
            self._count()
            super().remove(name)

    def _count(self):
        self.calls -= 1
        if self.calls < 0:
            raise OSError("away")


@pytest.fixture
def remote(tmp_path):
    return Recorder(tmp_path / "remote")


@pytest.fixture
def local(tmp_path):
    (tmp_path / "local").mkdir()
    return tmp_path / "local"


def everything(name):
    return True


def read_back(remote, folder):
    """All files of the store, as a run that goes on elsewhere sees them."""
    folder.mkdir()
    Mirror(folder, LocalStore(remote.path), everything).download(everything)
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


def append(path, text):
    with path.open("a") as file:
        file.write(text)


def test_files_come_back_as_they_were(local, remote, tmp_path):
    copies = Mirror(local, remote, everything)
    (local / "evals").mkdir()
    for number in range(4):
        append(local / "metrics.jsonl", f"row {number}\n")
        (local / "evals" / "a.json").write_text(f"result {number}")
        copies.flush()
    assert read_back(remote, tmp_path / "back") == {
        "metrics.jsonl": "row 0\nrow 1\nrow 2\nrow 3\n",
        "evals/a.json": "result 3",
    }


def test_only_changed_files_are_sent(local, remote):
    copies = Mirror(local, remote, everything)
    append(local / "metrics.jsonl", "x" * 1000)
    append(local / "events.jsonl", "a")
    copies.flush()
    append(local / "events.jsonl", "b")
    copies.flush()
    copies.flush()
    assert remote.written == 1003


def test_a_file_that_was_cut_is_cut_in_the_store(local, remote, tmp_path):
    copies = Mirror(local, remote, everything)
    for row in ("a\n", "b\n", "c\n"):
        append(local / "metrics.jsonl", row)
        copies.flush()
    LocalStore(local).write("metrics.jsonl", b"a\n")
    copies.flush()
    append(local / "metrics.jsonl", "d\n")
    copies.flush()
    assert read_back(remote, tmp_path / "back") == {"metrics.jsonl": "a\nd\n"}


def test_a_run_that_goes_on_elsewhere_appends(local, remote, tmp_path):
    first = Mirror(local, remote, everything)
    append(local / "metrics.jsonl", "a\n")
    first.close()
    other = tmp_path / "other"
    other.mkdir()
    second = Mirror(other, remote, everything)
    second.download(everything)
    append(other / "metrics.jsonl", "b\n")
    second.close()
    assert read_back(remote, tmp_path / "back") == {"metrics.jsonl": "a\nb\n"}


def test_a_store_that_fails_gets_the_rest_later(local, remote, tmp_path):
    copies = Mirror(local, remote, everything)
    append(local / "metrics.jsonl", "a")
    copies.flush()
    append(local / "metrics.jsonl", "b")
    remote.calls = 0
    with pytest.raises(OSError, match="away"):
        copies.flush()
    assert read_back(remote, tmp_path / "held") == {"metrics.jsonl": "a"}
    remote.calls = 10**6
    copies.flush()
    assert read_back(remote, tmp_path / "back") == {"metrics.jsonl": "ab"}


def test_what_ends_a_run_is_sent_last_and_what_is_gone_removed(local, remote, tmp_path):
    copies = Mirror(local, remote, everything)
    (local / "FAILED").write_text("{}")
    copies.flush()
    (local / "FAILED").unlink()
    (local / "DONE").write_text("{}")
    (local / "a.json").write_text("{}")
    remote.calls = 1  # the removal
    with pytest.raises(OSError, match="away"):
        copies.flush()
    assert "DONE" not in remote.list()
    remote.calls = 10**6
    copies.flush()
    assert read_back(remote, tmp_path / "back").keys() == {"DONE", "a.json"}


def test_a_mirror_leaves_the_files_of_others(local, remote):
    remote.write("logs/host_000.log", b"theirs")
    copies = Mirror(local, remote, lambda name: name == "logs/host_001.log")
    copies.download(everything)
    (local / "logs" / "host_000.log").unlink()
    (local / "config.json").write_text(json.dumps({}))
    append(local / "logs" / "host_001.log", "mine")
    copies.flush()
    assert remote.list().keys() == {"logs/host_000.log", "logs/host_001.log"}
