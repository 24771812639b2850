"""Files of a disk and of an object store answer alike: read in parts, written whole."""

import pickle
import random

import pytest

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.stores import StoreError, any_path
from vlc_jax.input_pipeline.stores.any_path import StorePath

CONTENT = random.Random(0).randbytes(300_000)


@pytest.fixture(params=["tmp_path", "store"])
def folder(request):
    """An empty folder."""
    return any_path.of(request.getfixturevalue(request.param))


@pytest.fixture
def remote(store):
    """An empty folder of an object store."""
    return any_path.of(store)


def test_what_is_written_is_read_listed_and_removed(folder):
    assert any_path.files(folder) == {}
    any_path.write(folder / "a/b.json", b"1")
    any_path.write(folder / "a/b.json", b"12")
    any_path.write(folder / "c", b"3")
    assert any_path.content(folder / "a/b.json") == b"12"
    sizes = {name: stamp.size for name, stamp in any_path.files(folder).items()}
    assert sizes == {"a/b.json": 2, "c": 1}
    assert list(any_path.files(folder, "a/")) == ["a/b.json"]
    assert list(any_path.files(folder / "a", "b.")) == ["b.json"]
    for name in ("a/b.json", "never there"):
        (folder / name).unlink(missing_ok=True)
    assert list(any_path.files(folder)) == ["c"]


def test_the_stamp_of_a_file_changes_with_it(folder):
    any_path.write(folder / "a", b"1")
    first = any_path.find(folder / "a")
    assert any_path.files(folder)["a"] == first
    any_path.write(folder / "a", b"2")
    assert any_path.find(folder / "a").tag != first.tag
    assert any_path.find(folder / "nothing") is None


def test_parts_and_positions_are_those_of_the_whole(folder, monkeypatch):
    any_path.write(place := folder / "a.tar", CONTENT)
    near, far = (5, 10, 30, 0, 15, 7), (0, 3, 299_000, 2_000, 100_000, 8)
    for spans in (near, far, (0, 0), ()):
        pairs = zip(spans[::2], spans[1::2], strict=True)
        assert any_path.read(place, spans) == [CONTENT[at : at + size] for at, size in pairs]
    monkeypatch.setattr(any_path, "_BLOCK", 1_000)
    with place.open("rb") as file:
        for at, size in ((0, 20), (299_990, 50), (7, 5_000), (400_000, 3)):
            assert file.seek(at) == at
            assert file.read(size) == CONTENT[at : at + size]
        assert file.seek(-4, 2) == len(CONTENT) - 4
        assert file.read() == CONTENT[-4:]
    monkeypatch.setattr(any_path, "_PIECE", 100_001)
    assert b"".join(any_path.pieces(place)) == CONTENT


def test_a_file_is_put_listed_and_removed(folder):
    any_path.write(folder / "a.tar", b"1")
    with any_path.drafts([folder / "b.json"], ".1.partial") as (draft,):
        draft.write_bytes(b"1")
        any_path.put(draft, folder / "b.json")
    assert not draft.exists()
    any_path.write_json(folder / "d.json", {"e": 1})
    assert (folder / "d.json").read_text("utf-8") == '{"e": 1}'
    assert sorted(path.name for path in folder.glob("*.json")) == ["b.json", "d.json"]
    (folder / "b.json").unlink()
    assert sorted(path.name for path in folder.iterdir()) == ["a.tar", "d.json"]
    assert not (folder / "b.json").exists()


@pytest.mark.parametrize("read", [any_path.content, any_path.pieces, any_path.opened])
def test_a_missing_object_is_a_missing_file(folder, read):
    with pytest.raises(FileNotFoundError):
        list(read(folder / "nothing"))


def test_parts_side_by_side_are_one_request(remote, monkeypatch):
    (remote / "a").write_bytes(CONTENT)
    requests, between = [], StorePath.between

    def watched(path, start, stop):
        requests.append((start, stop))
        return between(path, start, stop)

    monkeypatch.setattr(StorePath, "between", watched)
    any_path.read(remote / "a", (1_024, 600, 2_048, 5, 512, 9))
    assert requests == [(512, 2_053)]


def test_folders_are_those_directly_below(remote):
    assert remote.folders() == set()
    for name in ("a/b/c", "a/d", "e/f", "file"):
        (remote / name).write_bytes(b"1")
    assert remote.folders() == {"a", "e"}
    assert (remote / "a").folders() == {"b"}


def test_only_one_of_two_creates_an_object(remote):
    assert (remote / "lock/1").create(b"mine")
    assert not (remote / "lock/1").create(b"theirs")
    assert (remote / "lock/1").read_bytes() == b"mine"


@pytest.mark.parametrize("content", [b"", b"\r", b"a\n", b"a\r\n", b"a\r\n--b", b"\x1f\x8b"])
def test_content_is_kept_to_the_last_byte(remote, content, tmp_path):
    (tmp_path / "file").write_bytes(content)
    (remote / "a").upload(tmp_path / "file")
    (remote / "b").write_bytes(content)
    assert (remote / "c").create(content)
    pickle.loads(pickle.dumps(remote / "a")).copy(remote / "d")
    (remote / "d").download(tmp_path / "back")
    assert [(remote / name).read_bytes() for name in "abc"] == [content] * 3
    assert (tmp_path / "back").read_bytes() == content


def test_an_upload_that_the_store_took_for_less_is_an_error(remote):
    with pytest.raises(StoreError, match="checksum"):  # what gcsfs puts between its parts
        (remote / "a").write_bytes(b"a\n--==0==--b")


def test_addresses_are_told_from_paths():
    assert stores.is_url("gs://bucket/a")
    assert not stores.is_url("runs/gs:/a")
    with pytest.raises(ValueError, match=r"http://x: addresses begin with gs://"):
        stores.is_url("http://x")
    with pytest.raises(ValueError, match="needs the package adlfs"):
        any_path.of("az://bucket/a")
    with pytest.raises(ValueError, match="vlc-jax export --push"):
        any_path.of("hf://me/clip")


def test_a_store_that_is_away_is_an_error_that_names_it(remote, monkeypatch):
    import gcsfs

    async def fail(*words, **options):
        raise gcsfs.retry.HttpError({"code": 403, "message": "no permission\nbecause"})

    monkeypatch.setattr(gcsfs.GCSFileSystem, "_call", fail)
    monkeypatch.setattr(gcsfs.GCSFileSystem, "_pipe_file", fail)
    with pytest.raises(StoreError, match=f"^{remote}/a: no permission"):
        (remote / "a").write_bytes(b"1")
