"""Tars as img2dataset writes them: read in place, failures left out, damage found."""

import json
import pickle
import tarfile

import pytest

from tests.support import miniature
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import make_source, tar_samples


@pytest.fixture
def folder(tmp_path):
    miniature.write_tars(tmp_path / "tars", tars=2, samples=5)
    return tmp_path / "tars"


def open_tars(path):
    return make_source("img2dataset", "train", tars=path)


def write(path, samples):
    """`samples`: key -> suffix -> bytes, or what JSON holds."""
    with tarfile.open(path, "w") as tar:
        for key, parts in samples.items():
            for suffix, data in parts.items():
                content = data if isinstance(data, bytes) else json.dumps(data).encode()
                miniature.add(tar, f"{key}.{suffix}", content)


def test_every_sample_is_a_record_of_its_own_bytes(folder):
    source = open_tars(folder)
    assert len(source) == 10
    for index in (0, 9, 4, 5):
        record = source[index]
        assert record.image == miniature.picture(index)
        assert record.captions == miniature.captions(index)[:1]
        assert record.id == f"{index // 5:05d}/{index // 5:05d}{index % 5:04d}"
        assert record.meta == {"url": f"http://a.b/{index}.jpg"}
    assert pickle.loads(pickle.dumps(source))[7] == source[7]
    assert len(open_tars(folder / "00001.tar")) == 5
    more = make_source("img2dataset", "train", tars=folder, meta_columns=["status"])
    assert more[0].meta == source[0].meta | {"status": "success"}
    assert more.fingerprint != source.fingerprint


def test_files_that_macos_writes_beside_others_are_left_out(tmp_path):
    (tmp_path / "._0.tar").write_bytes(b"attributes")
    parts = {"jpg": b"1", "txt": b"first"}
    write(tmp_path / "0.tar", {"._a": parts, "a": parts, "__MACOSX/._a": parts, "b/._a": parts})
    source = open_tars(tmp_path)
    assert [source[index].id for index in range(len(source))] == ["0/a"]


def test_samples_that_failed_are_left_out_and_counted(folder, caplog):
    success = {"status": "success", "caption": "yes"}
    write(
        folder / "00002.tar",
        {
            "a": {"jpg": b"1", "txt": b"first", "json": success},
            "b": {"jpg": b"2", "json": {"status": "failed_to_resize"}},
            "c": {"txt": b"no image", "json": success},
            "d": {"json": {"status": "failed_to_download"}},
            "e": {"webp": b"5", "json": success},
            "f": {"png": b"6", "txt": b"no JSON", "seg.png": b"other"},
            "readme": {"md": b"of no sample"},
        },
    )
    source = open_tars(folder)
    assert [source[i].id for i in range(10, len(source))] == ["00002/a", "00002/e", "00002/f"]
    assert [source[i].captions for i in range(10, 13)] == [["first"], ["yes"], ["no JSON"]]
    assert source[12].image == b"6"
    assert "of 16 samples are left out: 2 not downloaded, 1 without an image (" in caplog.text


def test_a_sample_without_caption_is_an_error_of_that_sample(folder):
    write(
        folder / "00002.tar",
        {
            "a": {"jpg": b"1", "json": {"status": "success", "caption": None}},
            "b": {"jpg": b"2", "txt": b"\xff", "json": {}},
            "c": {"jpg": b"3", "txt": b"good", "json": b"{cut"},
            "d": {"jpg": b"4", "txt": b"good"},
        },
    )
    source = open_tars(folder)
    for index, reason in ((10, "a of .* no .txt and no caption"), (11, "b of"), (12, "c of")):
        with pytest.raises(DataError, match=rf"sample 00002/{reason}"):
            source[index]
    assert source[13].captions == ["good"]


LONG = [b"9" * 5_000, b"[" * 100_000, b'{"a": ' * 100_000]
NO_OBJECTS = [b"[1]", b"5", b"null", b'{"\xff": 1}', *LONG]
OTHER_CAPTIONS = [b'{"caption": ["a"]}', b'{"caption": 5}']


@pytest.mark.parametrize("document", NO_OBJECTS + OTHER_CAPTIONS, ids=range(9))
def test_json_that_describes_no_sample_is_a_bad_record(folder, document):
    good = {"jpg": b"1", "json": {"caption": "good", "url": ["x"], "sha256": 5}}
    bad = {"jpg": b"1", "json": document}
    write(folder / "00002.tar", {"a": bad, "b": good, "c": bad | {"txt": b"good"}})
    source = open_tars(folder)
    # a caption beside JSON that is no object does not help
    wrong = {10: "a", 12: "c"} if document in NO_OBJECTS else {10: "a"}
    for index, name in wrong.items():
        with pytest.raises(DataError, match=f"sample 00002/{name} of "):
            source[index]
    assert (source[11].captions, source[11].meta) == (["good"], {"sha256": 5})


def test_names_that_are_no_utf8_or_endless_harm_no_other_sample(folder, caplog):
    samples = {"a\udcff": {"jpg": b"1", "txt": b"a"}, "n" * 10_000: {"jpg": b"1", "txt": b"b"}}
    write(folder / "00002.tar", samples)
    source = open_tars(folder)
    assert source[10].id == "00002/a\\xff"
    assert len(source) == 11
    assert "of 12 samples are left out: 1 with a key of more than 255 letters" in caplog.text


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.9, "six files"])
def test_a_tar_that_is_cut_short_is_named(folder, kept):
    path = folder / "00001.tar"
    with tarfile.open(path) as tar:
        between = tar.getmembers()[6].offset
    content = path.read_bytes().rstrip(b"\0")
    path.write_bytes(content[: between if kept == "six files" else int(kept * len(content))])
    says = ": it ends after" if kept == "six files" else ".*img2dataset continues"
    with pytest.raises(DataError, match=rf"00001\.tar is no whole tar{says}"):
        open_tars(folder)


def header(kind, size):
    member = tarfile.TarInfo("a.jpg")
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


def sparse():
    """A header that says that another one follows, which is missing."""
    content = bytearray(header(tarfile.GNUTYPE_SPARSE, 0))
    content[482] = 1
    content[148:156] = b" " * 8
    content[148:156] = b"%06o\0 " % sum(content)
    return bytes(content)


HEADERS = {
    **{f"size {n}": header(tarfile.REGTYPE, n) for n in (2**60, -512, 8 * 2**30 - 1)},
    "long name": header(tarfile.GNUTYPE_LONGNAME, 2**40),
    "pax": header(tarfile.XHDTYPE, 2**40),
    "chain": (header(tarfile.GNUTYPE_LONGNAME, 5) + b"name".ljust(512, b"\0")) * 3_000,
    "sparse": sparse(),
}


@pytest.mark.parametrize("kind", HEADERS)
def test_headers_that_lie_are_no_tar(tmp_path, kind):
    (tmp_path / "a.tar").write_bytes(HEADERS[kind] + bytes(1024) * (kind != "sparse"))
    with pytest.raises(DataError, match=r"a\.tar is no whole tar"):
        open_tars(tmp_path)


def test_folders_without_tars_say_what_they_hold(folder, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "00000.parquet").write_bytes(b"")
    with pytest.raises(ValueError, match=r"holds no \.tar but \['00000\.parquet'\]; tars is the"):
        open_tars(tmp_path / "other")
    with pytest.raises(ValueError, match=r"no folder .*nothing; tars is the folder"):
        open_tars(tmp_path / "nothing")
    with pytest.raises(ValueError, match="needs `tars`"):
        open_tars("")
    with pytest.raises(ValueError, match=r"split 'val' of .* is not divided"):
        make_source("img2dataset", "val", tars=folder)
    write(tmp_path / "other" / "a.tar", {"a": {"json": {"status": "failed_to_download"}}})
    with pytest.raises(DataError, match=r"no image in 1 tars, 1 samples: 1 not downl"):
        open_tars(tmp_path / "other")


def test_the_fingerprint_follows_names_and_contents(folder):
    found = {open_tars(folder).fingerprint, open_tars(folder / "00000.tar").fingerprint}
    assert open_tars(folder).fingerprint in found
    (folder / "00001.tar").rename(folder / "00007.tar")
    found.add(open_tars(folder).fingerprint)
    write(folder / "00007.tar", {"a": {"jpg": b"1", "json": {"sha256": "abc"}}})
    found.add(open_tars(folder).fingerprint)
    write(folder / "00007.tar", {"a": {"jpg": b"1", "json": {"sha256": "abd"}}})
    found.add(open_tars(folder).fingerprint)
    assert len(found) == 5


def write_members(path, members):
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            miniature.add(tar, name, content)


@pytest.mark.parametrize("name", ["a.jpg", "a.png", "./a.jpg", "a.txt"])
def test_a_sample_that_has_a_part_twice_is_a_bad_record(folder, name):
    members = [
        ("a.jpg", b"1"),
        ("a.txt", b"red"),
        ("b.jpg", b"2"),
        ("b.txt", b"blue"),
        (name, b"3"),
    ]
    write_members(folder / "00002.tar", members)
    source = open_tars(folder)
    with pytest.raises(DataError, match=r"sample 00002/a of .* has two images, two \.txt or"):
        source[10]
    assert (source[11].image, source[11].captions) == (b"2", ["blue"])


def test_every_format_that_pillow_reads_is_an_image(folder, caplog):
    names = ("gif", "BMP", "tiff", "avif", "heic")
    write(folder / "00002.tar", {name: {name: b"1", "txt": b"text"} for name in names})
    source = open_tars(folder)
    assert [source[i].id for i in range(10, len(source))] == [f"00002/{n}" for n in names[:4]]
    assert "15 samples are left out: 1 without an image (" in caplog.text
    assert "downloaded" not in caplog.text


def test_a_key_with_dots_ends_at_the_last_one(folder):
    members = [(f"a.b/photo.{n}.{kind}", kind.encode()) for n in "12" for kind in ("jpg", "txt")]
    members += [("c.jpg", b"3"), ("c.mask.png", b"4")]
    members.append(("c.txt", "caf\u00e9".encode("utf-8-sig")))
    write_members(folder / "00002.tar", members)
    source = open_tars(folder)
    ids = [source[i].id for i in range(10, len(source))]
    assert ids == ["00002/c", "00002/a.b/photo.1", "00002/a.b/photo.2"]
    assert [source[i].image for i in range(10, 13)] == [b"3", b"jpg", b"jpg"]
    assert [source[i].captions for i in range(10, 13)] == [["caf\u00e9"], ["txt"], ["txt"]]


OTHER_MAKERS = {
    "png and txt": ("png", {"txt": b"red"}, {}),
    "jpeg, and txt in capitals": ("JPEG", {"TXT": b"red"}, {}),
    "webp and json with the caption": ("webp", {"json": {"caption": "red", "key": "1"}}, {}),
    "txt beside json without status": ("jpg", {"txt": b"red", "json": {"url": "u"}}, {"url": "u"}),
    "labels and masks besides": ("jpg", {"txt": b"red", "cls": b"7", "mask.png": b"m"}, {}),
}


@pytest.mark.parametrize("name", ["00001", "a.b/photo.1", "./x/0001"])
@pytest.mark.parametrize("maker", OTHER_MAKERS)
def test_tars_of_other_makers_are_read_as_well(tmp_path, maker, name, caplog):
    suffix, parts, meta = OTHER_MAKERS[maker]
    write(tmp_path / "made.tar", {name: {suffix: b"1", **parts}, "b": {"jpg": b"2", "txt": b"b"}})
    source = open_tars(tmp_path)
    (record,) = [source[n] for n in range(len(source)) if source[n].id != "made/b"]
    assert len(source) == 2
    assert (record.id, record.image) == (f"made/{name.removeprefix('./')}", b"1")
    assert (record.captions, record.meta) == (["red"], meta)
    assert "left out" not in caplog.text


@pytest.fixture
def indexed(folder, table_cache):
    """A folder of tars that were opened and indexed, though small and new."""
    texts = {"txt": b"one"}
    samples = {"a.b": {"jpg": b"1", **texts}, "é": {"jpg": b"2", **texts}, "c": texts}
    write(folder / "00002.tar", samples)
    return folder, look(folder)


def look(folder):
    """All that a source says of its tars."""
    source = open_tars(folder)
    return len(source), source.fingerprint, [source[i] for i in range(len(source))]


def test_tars_that_were_opened_once_are_not_read_again(indexed, monkeypatch, caplog):
    folder, before = indexed
    monkeypatch.setattr(tar_samples, "samples", None)
    caplog.clear()
    assert look(folder) == before
    assert "of 13 samples are left out: 1 without an image (" in caplog.text


def test_a_changed_tar_is_read_again_without_a_damaged_index(indexed, table_cache):
    folder, before = indexed
    (index,) = table_cache.glob("00000.tar-*/*")
    content = index.read_bytes()
    for damaged in (content[:-9], content[:200] + b"7" + content[201:], b""):
        index.write_bytes(damaged)
        assert look(folder) == before
    write(folder / "00000.tar", {"new": {"jpg": b"1", "txt": b"two"}})
    count, fingerprint, records = look(folder)
    assert (count, records[0].captions) == (8, ["two"])
    assert fingerprint != before[1]
