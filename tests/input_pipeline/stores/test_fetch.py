"""Copies of what lies in a store: whole, made once, made again when it changed."""

import shutil

import pytest

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.record import DataError, StageError
from vlc_jax.input_pipeline.stores import any_path, copies, fetch, mirror


@pytest.fixture(autouse=True)
def _anew(monkeypatch, tmp_path):
    monkeypatch.setenv("VLC_STORES", str(tmp_path / "copies"))
    fetch._fetch.cache_clear()


@pytest.fixture
def downloads(monkeypatch):
    """Names of the files that are copied."""
    names, download = [], mirror.download

    def counted(there, path):
        names.append(path.name)
        download(there, path)

    monkeypatch.setattr(mirror, "download", counted)
    return names


def test_a_folder_is_copied_once_and_changes_are_copied(store, downloads):
    there = any_path.of(store)
    (there / "a/b.jpg").write_bytes(b"1")
    (there / "c.jsonl").write_bytes(b"2")
    copy = fetch.local(store)
    assert (copy / "a" / "b.jpg").read_bytes() == b"1"
    assert sorted(downloads) == ["b.jpg", "c.jsonl"]
    downloads.clear()
    assert fetch.refresh(store) == copy
    assert downloads == []
    (there / "c.jsonl").write_bytes(b"3")
    (there / "a/b.jpg").unlink()
    fetch.refresh(store)
    assert downloads == ["c.jsonl"]
    assert (copy / "c.jsonl").read_bytes() == b"3"
    assert not (copy / "a" / "b.jpg").exists()


def test_a_file_is_copied_without_its_neighbours(store, downloads):
    there = any_path.of(store)
    (there / "table.csv").write_bytes(b"1")
    (there / "table.csv.old").write_bytes(b"2")
    copy = fetch.local(f"{store}/table.csv")
    assert copy.read_bytes() == b"1"
    assert downloads == ["table.csv"]


def test_an_interrupted_copy_goes_on_where_it_stopped(store, downloads, monkeypatch):
    there, download = any_path.of(store), mirror.download
    monkeypatch.setattr(copies, "THREADS", 1)
    for name in "abc":
        (there / name).write_bytes(name.encode())

    def failing(there, path):
        if path.name == "c":
            raise stores.StoreError("away")
        download(there, path)

    monkeypatch.setattr(mirror, "download", failing)
    with pytest.raises(stores.StoreError):
        fetch.local(store)
    monkeypatch.setattr(mirror, "download", download)
    downloads.clear()
    assert (fetch.local(store) / "c").read_bytes() == b"c"
    assert downloads == ["c"]


def test_a_file_replaced_while_it_is_copied_is_copied_again(store, monkeypatch):
    (any_path.of(store) / "a").write_bytes(b"1")
    download, failures = mirror.download, [FileNotFoundError()] * 2

    def replaced(*words):
        if failures:
            raise failures.pop()
        download(*words)

    monkeypatch.setattr(mirror, "download", replaced)
    assert (fetch.local(store) / "a").read_bytes() == b"1"
    failures.extend([FileNotFoundError()] * 3)
    (any_path.of(store) / "a").write_bytes(b"2")
    with pytest.raises(stores.StoreError, match="changes faster"):
        fetch.refresh(store)


@pytest.mark.parametrize(
    "name",
    ["checkpoints/5/manifest.json", "lock/1.json", fetch.STORE, ".copies.json", "a/.copies.json"],
)
def test_neither_checkpoints_nor_own_files_of_a_run_are_copied(store, name):
    there = any_path.of(store)
    (there / "config.json").write_bytes(b"{}")
    (there / name).write_bytes(b'{"../a": []}')
    copy = fetch.local(store)
    assert sorted(path.name for path in copy.iterdir()) == [".copies.json", ".store", "config.json"]
    assert (copy / fetch.STORE).read_text() == store
    assert copies.known(copy) == {"config.json": None}
    if name.endswith(copies.MANIFEST):
        with pytest.raises(DataError, match="the name of a list of copies"):
            fetch.local(f"{store}/{name}")


def test_a_folder_that_is_no_copy_of_ours_cannot_name_a_store(store, tmp_path):
    (any_path.of(store) / "config.json").write_bytes(b"{}")
    copy = fetch.local(store)
    assert fetch.store_of(copy) == store
    running = fetch.cache_folder(store, "workdirs/process_003")
    shutil.copytree(copy, running)
    assert fetch.store_of(running) == store
    assert fetch.store_of(tmp_path) is None
    shutil.copytree(copy, tmp_path / "run")
    with pytest.raises(ValueError, match=r"\.store names .* use the address itself"):
        fetch.store_of(tmp_path / "run")
    (copy / fetch.STORE).write_text("gs://elsewhere/run")
    with pytest.raises(ValueError, match="not the copy of that run"):
        fetch.store_of(copy)


def test_local_paths_are_left_alone(tmp_path):
    assert fetch.local(tmp_path) == tmp_path
    assert fetch.local("a/b").as_posix() == "a/b"


def test_nothing_there_is_an_error_that_names_it(store):
    with pytest.raises(ValueError, match=f"{store}: there is no such object or folder"):
        fetch.local(store)


def test_a_full_disk_is_refused_before_anything_is_copied(store, monkeypatch):
    (any_path.of(store) / "a").write_bytes(b"1")
    monkeypatch.setattr(copies, "_SPARE", 10**18)
    with pytest.raises(StageError, match=r"has 0\.0 GB to copy, .* room for"):
        fetch.local(store)


@pytest.mark.parametrize("name", ["../a", "b/../../a", "/a", "a" * 300, "a\0"])
def test_an_object_whose_name_leads_out_is_refused(store, monkeypatch, name, tmp_path):
    listed = {name: any_path.Stamp(1, "1")}
    monkeypatch.setattr(any_path.StorePath, "files", lambda *_: listed)
    with pytest.raises(DataError, match=f"^{store}: a .*name"):
        fetch.local(store)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
