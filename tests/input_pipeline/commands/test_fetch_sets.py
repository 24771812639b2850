"""vlc-jax benchmarks --fetch: sizes first, whole files, archives unpacked, the rest in words."""

import hashlib
import io
import json
import shutil
import stat
import zipfile

import pytest

from tests.support import sets
from tests.support.archives import zipped
from vlc_jax.input_pipeline.benchmarks import PUBLISHED
from vlc_jax.input_pipeline.benchmarks.downloads import DOWNLOADS, Download
from vlc_jax.input_pipeline.commands import benchmarks, fetch_sets
from vlc_jax.input_pipeline.record import DataError

SUGARCREPE = ("--fetch", "sugarcrepe", "--yes")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    root = tmp_path_factory.mktemp("sets")
    for each in sets.SETS:
        if each.__name__.rpartition(".")[2] in ("sugarcrepe", "cola", "winoground"):
            each.write(root)
    return root


@pytest.fixture
def served(hub, original, monkeypatch, tmp_path):
    """The server of SugarCrepe's files and COCO's images, and an empty folder of sets."""
    sources = []
    for path in sorted((original / "sugar_crepe").glob("*.json")):
        content = path.read_bytes()
        hub.files[f"/plain/{path.name}"] = content
        url, to = f"{hub.address}/plain/{path.name}", f"sugar_crepe/{path.name}"
        sources.append(Download(url, to, digest=hashlib.sha256(content).hexdigest()))
    images = {f"val2017/{path.name}": path.read_bytes()
              for path in (original / "coco" / "val2017").iterdir()}  # fmt: skip
    hub.files["/plain/val2017.zip"] = zipped(images)
    url = f"{hub.address}/plain/val2017.zip"
    sources.append(Download(url, "coco/val2017", is_archive=True))
    monkeypatch.setitem(DOWNLOADS, "sugarcrepe", tuple(sources))
    return hub, tmp_path / "root"


def main(root, *words):
    return benchmarks.main(["--root", str(root), *words])


def test_a_set_is_fetched_with_its_images_and_only_once(served, original, capsys):
    hub, root = served
    assert main(root, *SUGARCREPE) == 0
    printed = capsys.readouterr().out
    assert f"kB from {hub.address}/plain/val2017.zip" in printed
    assert printed.splitlines()[-1] == "sets=sugarcrepe"
    names = sorted(path.name for path in (original / "coco/val2017").iterdir())
    assert sorted(path.name for path in (root / "coco/val2017").iterdir()) == names
    record = json.loads((root / fetch_sets.RECORD).read_text())
    for url, entry in record.items():
        content = hub.files[url.removeprefix(hub.address)]
        assert entry == {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    assert sorted(path.name for path in root.iterdir()) == [".fetched.json", "coco", "sugar_crepe"]
    hub.requests.clear()
    assert main(root, *SUGARCREPE) == 0
    assert hub.requests == []


def test_only_what_is_missing_is_fetched(served, capsys):
    hub, root = served
    assert main(root, *SUGARCREPE) == 0
    (root / "sugar_crepe" / "add_att.json").unlink()
    next((root / "coco/val2017").iterdir()).unlink()
    hub.requests.clear()
    assert main(root, *SUGARCREPE) == 0
    assert [path for method, path, _ in hub.requests if method == "GET"] == [
        "/plain/add_att.json", "/plain/val2017.zip"
    ]  # fmt: skip


def test_a_cut_download_goes_on(served, capsys):
    hub, root = served
    hub.cut["/plain/val2017.zip"] = 300
    assert main(root, *SUGARCREPE) == 30
    assert "peer closed" in capsys.readouterr().err
    hub.cut.clear()
    hub.requests.clear()
    assert main(root, *SUGARCREPE) == 0
    spans = [(path, span) for method, path, span in hub.requests if method == "GET"]
    assert spans == [("/plain/val2017.zip", "bytes=300-")]


def test_a_file_that_changed_meanwhile_is_not_continued(served):
    hub, root = served
    hub.cut["/plain/val2017.zip"] = 300
    assert main(root, *SUGARCREPE) == 30
    hub.cut.clear()
    with zipfile.ZipFile(io.BytesIO(hub.files["/plain/val2017.zip"])) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    hub.files["/plain/val2017.zip"] = zipped({"val2017/another.txt": b"1", **files})
    assert main(root, *SUGARCREPE) == 0
    assert (root / "coco/val2017/another.txt").exists()
    assert not (root / ".archives").exists()


def test_unpacking_is_repeated_without_a_download(served, monkeypatch):
    hub, root = served
    moved, move = [], shutil.move

    def stopped(file, to):
        moved.append(file)
        if len(moved) == 2:
            raise KeyboardInterrupt
        move(file, to)

    monkeypatch.setattr(shutil, "move", stopped)
    with pytest.raises(KeyboardInterrupt):
        main(root, *SUGARCREPE)
    monkeypatch.setattr(shutil, "move", move)
    hub.requests.clear()
    assert main(root, *SUGARCREPE) == 0
    assert [path for method, path, _ in hub.requests if method == "GET"] == []


def test_other_bytes_than_the_authors_are_refused(served, capsys):
    hub, root = served
    hub.files["/plain/add_obj.json"] = b"{}"
    assert main(root, *SUGARCREPE) == 30
    assert "add_obj.json: the bytes that came have another hash than" in capsys.readouterr().err
    assert not (root / "sugar_crepe" / "add_obj.json").exists()


def test_nothing_is_fetched_without_a_yes(served, monkeypatch, capsys):
    hub, root = served
    assert main(root, *SUGARCREPE[:2]) == 2
    assert "agree with --yes" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert main(root, *SUGARCREPE[:2]) == 1
    assert "[y/N]" in capsys.readouterr().out
    assert {method for method, _, _ in hub.requests} == {"HEAD"}
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert main(root, *SUGARCREPE[:2]) == 0


def test_gated_and_drive_hosted_sets_say_what_to_do(served, capsys):
    hub, root = served
    hub.put("facebook/winoground", {"data/images.zip": b"1"}, "dataset")
    hub.closed.add("facebook/winoground")
    assert main(root, "--fetch", "sugarcrepe", "winoground", "vg_relation", "--yes") == 1
    lines = capsys.readouterr().out.splitlines()
    gated = [line for line in lines if line.startswith("winoground: hf://")]
    assert all("its owner gives access on its page; then set HF_TOKEN" in line for line in gated)
    assert len(gated) == 2
    (line,) = [line for line in lines if line.startswith("vg_relation: not there")]
    assert f"there is no {root}/aro/visual_genome_relation.json; put visual_genome_r" in line
    assert "by hand: annotations and vgr_vga_images.zip" in line
    assert lines[-1] == "sets=sugarcrepe"


def test_files_of_the_hub_are_fetched_into_the_folder_of_the_set(hub, original, tmp_path):
    files = {"data/examples.jsonl": (original / "winoground/data/examples.jsonl").read_bytes()}
    images = {path.name: path.read_bytes() for path in (original / "winoground/images").iterdir()}
    hub.put("facebook/winoground", {**files, "data/images.zip": zipped(images)}, "dataset")
    assert main(tmp_path / "root", "--fetch", "winoground", "--yes") == 0


@pytest.mark.parametrize(
    "names",
    [
        ("images/a/1.jpg", "images/2.jpg", "__MACOSX/x"),
        ("data/a/1.jpg", "data/2.jpg", "__MACOSX/x"),
        ("a/1.jpg", "2.jpg"),
        ("a/1.jpg", "../2.jpg"),
        ("a/1.jpg", "/2.jpg"),
    ],
)
def test_archives_of_every_layout_fill_the_same_folder(names, tmp_path):
    path = tmp_path / "archives" / "x.zip"
    path.parent.mkdir()
    path.write_bytes(zipped(dict.fromkeys(names, b"1")))
    folder = tmp_path / "set" / "images"
    fetch_sets.unpack(path, folder)
    files = sorted(p.relative_to(tmp_path / "set").as_posix() for p in folder.rglob("*.jpg"))
    assert files == ["images/2.jpg", "images/a/1.jpg"]
    assert [*tmp_path.rglob("*.jpg")] == [*folder.rglob("*.jpg")]


LINK = zipfile.ZipInfo("a")
LINK.external_attr = (stat.S_IFLNK | 0o777) << 16
WHOLE = zipped({"a": bytes(range(256)) * 9})
DAMAGED = {
    "no zip": b"<html>",
    "cut": WHOLE[:999],
    "other bytes": WHOLE.replace(b"abc", b"abd"),
    "cut inside": WHOLE[:99] + WHOLE[999:],
    "a file below a link": zipped({LINK: b"/tmp", "a/b.jpg": b"1"}),
    "a file below a file": zipped({"a": b"1", "a/b.jpg": b"1"}),
    "a file in place of a folder": zipped({"a/b.jpg": b"1", "a": b"1"}),
    "a long name": zipped({"a" * 300: b"1"}),
    "a long path": zipped({"/".join(["a" * 100] * 50): b"1"}),
    "no name": zipped({".": b"1", "..": b"1"}),
    "a bomb": zipped({"a": bytes(10**6)}, zipfile.ZIP_DEFLATED),
    "another method": zipped({"a": b"1" * 99}, zipfile.ZIP_LZMA),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_archive_is_removed(tmp_path, kind):
    path = tmp_path / "x.zip"
    path.write_bytes(DAMAGED[kind])
    with pytest.raises(DataError, match=r"x\.zip: .*; it is removed: fetch it again"):
        fetch_sets.unpack(path, tmp_path / "images")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("name", ["images/a/b.jpg", "images/a"])
def test_an_archive_replaces_no_folder_by_a_file_or_back(tmp_path, name):
    (tmp_path / name).mkdir(parents=True)
    (tmp_path / "x.zip").write_bytes(zipped({"a/b.jpg": b"1", "c": b"1"}))
    if name == "images/a":
        (tmp_path / name).rmdir()
        (tmp_path / name).touch()
    with pytest.raises(DataError, match=f"{name} is a f.* where .*zip has a f"):
        fetch_sets.unpack(tmp_path / "x.zip", tmp_path / "images")


def test_images_of_one_of_two_archives_are_looked_for_in_both(tmp_path):
    (tmp_path / "vg" / "VG_100K").mkdir(parents=True)
    lacking = [tmp_path / "vg" / "VG_100K" / "1.jpg"]
    first, second = genome = DOWNLOADS["vl_checklist"]
    assert fetch_sets.needed(tmp_path, genome, lacking, True) == [second]
    (tmp_path / "vg" / "VG_100K_2").mkdir()
    assert fetch_sets.needed(tmp_path, genome, lacking, True) == [first]
    assert fetch_sets.needed(tmp_path, genome, [], True) == []
    other = [tmp_path / "swig" / "1.jpg"]
    assert fetch_sets.needed(tmp_path, genome, other, True) == []


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_set_has_addresses_or_says_what_to_do(name):
    origin = PUBLISHED[name][1]
    assert name in DOWNLOADS or origin.by_hand
    for source in DOWNLOADS.get(name, ()):
        assert source.url.startswith(("https://", "http://images.cocodataset.org/", "hf://"))
        assert len(source.digest) in (0, 40, 64)
        places = [origin.folder, *(() if origin.images == "." else (origin.images,))]
        assert any(source.to == each or source.to.startswith(f"{each}/") or
                   each.startswith(f"{source.to}/") for each in places) or (
            origin.images == "." and source.to.startswith(("coco/", "vg/"))
        )  # fmt: skip
