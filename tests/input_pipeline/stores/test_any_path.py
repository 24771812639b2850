"""Files of a store are read in parts, and written whole, where they are."""

import random

import pytest

from vlc_jax.input_pipeline import stores
from vlc_jax.input_pipeline.stores import any_path

CONTENT = random.Random(0).randbytes(300_000)


@pytest.fixture(params=["disk", "store"])
def place(request, tmp_path):
    """A file with CONTENT."""
    where = tmp_path if request.param == "disk" else request.getfixturevalue("store")
    stores.folder(where).write("a.tar", CONTENT)
    return any_path.of(where) / "a.tar"


def test_parts_and_positions_are_those_of_the_whole(place, monkeypatch):
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


def test_parts_side_by_side_are_one_request(store, monkeypatch):
    stores.folder(store).write("a", CONTENT)
    requests, read = [], stores.StoreFolder.read

    def watched(self, name, start=0, stop=None):
        requests.append((start, stop))
        return read(self, name, start, stop)

    monkeypatch.setattr(stores.StoreFolder, "read", watched)
    any_path.read(any_path.of(f"{store}/a"), (1_024, 600, 2_048, 5, 512, 9))
    assert requests == [(512, 2_053)]


def test_a_file_is_put_listed_and_removed(place):
    folder = place.parent
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
    with pytest.raises(FileNotFoundError):
        (folder / "b.json").open("rb")
