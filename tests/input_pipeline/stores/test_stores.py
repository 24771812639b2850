"""Folders of a disk and of an object store answer alike."""

import pickle

import pytest

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.stores import StoreError


@pytest.fixture(params=["disk", "store"])
def folder(request, tmp_path):
    where = tmp_path / "new" if request.param == "disk" else request.getfixturevalue("store")
    return stores.folder(where)


def test_what_is_written_is_read_listed_and_removed(folder):
    assert folder.list() == {}
    folder.write("a/b.json", b"1")
    folder.write("a/b.json", b"12")
    folder.write("c", b"3")
    assert folder.read("a/b.json") == b"12"
    assert {name: found.size for name, found in folder.list().items()} == {"a/b.json": 2, "c": 1}
    assert list(folder.list("a/")) == ["a/b.json"]
    assert list(folder.below("a").list("b.")) == ["b.json"]
    folder.remove("a/b.json", "never there")
    assert list(folder.list()) == ["c"]


def test_folders_are_those_directly_below(store):
    folder = stores.folder(store)
    assert folder.folders() == set()
    for name in ("a/b/c", "a/d", "e/f", "file"):
        folder.write(name, b"1")
    assert folder.folders() == {"a", "e"}
    assert folder.below("a").folders() == {"b"}


def test_only_one_of_two_creates_an_object(store):
    folder = stores.folder(store)
    assert folder.create("lock/1", b"mine")
    assert not folder.create("lock/1", b"theirs")
    assert folder.read("lock/1") == b"mine"


def test_the_tag_of_an_object_changes_with_it(folder):
    folder.write("a", b"1")
    first = folder.stat("a")
    assert folder.stat("a") == folder.list()["a"] == first
    folder.write("a", b"2")
    assert folder.stat("a").tag != first.tag
    assert folder.stat("nothing") is None


def test_files_come_and_go_in_pieces_and_by_copies(store, tmp_path):
    folder, content = stores.folder(store), bytes(range(256)) * 10
    (tmp_path / "file").write_bytes(content)
    folder.upload(tmp_path / "file", "a/b")
    folder.copy("a/b", "c")
    assert b"".join(pickle.loads(pickle.dumps(folder)).pieces("c")) == content
    folder.download("c", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"\r", b"a\n", b"a\r\n", b"a\r\n--b", b"\x1f\x8b"])
def test_content_is_kept_to_the_last_byte(store, content, tmp_path):
    folder = stores.folder(store)
    (tmp_path / "file").write_bytes(content)
    folder.upload(tmp_path / "file", "a")
    folder.write("b", content)
    assert folder.create("c", content)
    assert [folder.read(name) for name in "abc"] == [content] * 3


def test_an_upload_that_the_store_took_for_less_is_an_error(store):
    with pytest.raises(StoreError, match="checksum"):  # what gcsfs puts between its parts
        stores.folder(store).write("a", b"a\n--==0==--b")


@pytest.mark.parametrize("call", ["read", "pieces"])
def test_a_missing_object_is_a_missing_file(folder, call):
    with pytest.raises(FileNotFoundError):
        list(getattr(folder, call)("nothing"))


def test_addresses_are_told_from_paths():
    assert stores.is_url("gs://bucket/a")
    assert not stores.is_url("runs/gs:/a")
    with pytest.raises(ValueError, match=r"http://x: addresses begin with gs://"):
        stores.is_url("http://x")
    with pytest.raises(ValueError, match="needs the package adlfs"):
        stores.folder("az://bucket/a")


def test_a_store_that_is_away_is_an_error_that_names_it(store, monkeypatch):
    import gcsfs

    folder = stores.folder(store)

    async def fail(*words, **options):
        raise gcsfs.retry.HttpError({"code": 403, "message": "no permission\nbecause"})

    monkeypatch.setattr(gcsfs.GCSFileSystem, "_call", fail)
    monkeypatch.setattr(gcsfs.GCSFileSystem, "_pipe_file", fail)
    with pytest.raises(StoreError, match=f"^{store}: no permission"):
        folder.write("a", b"1")
