"""A mirror has what is mirrored, however it grew, and at every moment a state of it."""

import json
from types import SimpleNamespace

import pytest

from tests.support.disk_store import on_disk
from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.stores.any_path import StorePath
from vlc_jax.input_pipeline.stores.mirror import Mirror


@pytest.fixture
def remote(tmp_path, monkeypatch):
    """A store that fails after so many `calls`, and counts the bytes that reach it."""
    seen = SimpleNamespace(path=on_disk(tmp_path / "remote"), calls=10**6, written=0)

    def counted(method):
        def call(path, *words):
            seen.calls -= 1
            if seen.calls < 0:
                raise OSError("away")
            for word in words:
                seen.written += len(word) if isinstance(word, bytes) else word.stat().st_size
            return method(path, *words)

        return call

    for name in ("write_bytes", "upload", "unlink"):
        monkeypatch.setattr(StorePath, name, counted(getattr(StorePath, name)))
    return seen


@pytest.fixture
def local(tmp_path):
    (tmp_path / "local").mkdir()
    return tmp_path / "local"


def everything(name):
    return True


def read_back(remote, folder):
    """All files of the store, as a run that goes on elsewhere sees them."""
    folder.mkdir()
    Mirror(folder, remote.path, everything).download(everything)
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


def append(path, text):
    with path.open("a") as file:
        file.write(text)


def test_only_changed_files_are_sent(local, remote):
    copies = Mirror(local, remote.path, everything)
    append(local / "metrics.jsonl", "x" * 1000)
    append(local / "events.jsonl", "a")
    copies.flush()
    append(local / "events.jsonl", "b")
    copies.flush()
    copies.flush()
    assert remote.written == 1003


def test_files_come_back_as_they_were_and_a_cut_one_cut(local, remote, tmp_path):
    copies = Mirror(local, remote.path, everything)
    (local / "evals").mkdir()
    for row in "abc":
        append(local / "metrics.jsonl", f"{row}\n")
        (local / "evals" / "a.json").write_text(row)
        copies.flush()
    stores.replace(local / "metrics.jsonl", b"a\n")
    copies.flush()
    append(local / "metrics.jsonl", "d\n")
    copies.flush()
    assert read_back(remote, tmp_path / "b") == {"metrics.jsonl": "a\nd\n", "evals/a.json": "c"}


def test_a_run_that_goes_on_elsewhere_appends(local, remote, tmp_path):
    first = Mirror(local, remote.path, everything)
    append(local / "metrics.jsonl", "a\n")
    first.close()
    other = tmp_path / "other"
    other.mkdir()
    second = Mirror(other, remote.path, everything)
    second.download(everything)
    append(other / "metrics.jsonl", "b\n")
    second.close()
    assert read_back(remote, tmp_path / "back") == {"metrics.jsonl": "a\nb\n"}


def test_a_store_that_fails_gets_the_rest_later(local, remote, tmp_path):
    copies = Mirror(local, remote.path, everything)
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
    copies = Mirror(local, remote.path, everything)
    (local / "FAILED").write_text("{}")
    copies.flush()
    (local / "FAILED").unlink()
    (local / "DONE").write_text("{}")
    (local / "a.json").write_text("{}")
    remote.calls = 1  # the removal
    with pytest.raises(OSError, match="away"):
        copies.flush()
    assert "DONE" not in remote.path.files()
    remote.calls = 10**6
    copies.flush()
    assert read_back(remote, tmp_path / "back").keys() == {"DONE", "a.json"}


def test_a_mirror_leaves_the_files_of_others(local, remote):
    (remote.path / "logs/host_000.log").write_bytes(b"theirs")
    copies = Mirror(local, remote.path, lambda name: name == "logs/host_001.log")
    copies.download(everything)
    (local / "logs" / "host_000.log").unlink()
    (local / "config.json").write_text(json.dumps({}))
    append(local / "logs" / "host_001.log", "mine")
    copies.flush()
    assert remote.path.files().keys() == {"logs/host_000.log", "logs/host_001.log"}
