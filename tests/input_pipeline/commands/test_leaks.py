"""Images that training shares with evaluations: found, written, and left out."""

import json

import pytest

from tests.support import miniature
from vlc_jax.input_pipeline.commands import leaks, prepare
from vlc_jax.input_pipeline.record import Crop, DataError
from vlc_jax.input_pipeline.sources import make_source
from vlc_jax.input_pipeline.sources.image_identity import image_identity
from vlc_jax.input_pipeline.sources.shards import ShardsSource


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("coco/val2014/COCO_val2014_000000184613.jpg", "coco:184613"),
        ("000000184613.jpg", "coco:184613"),
        ("train2017/000000184613.jpg", "coco:184613"),
        ("data/VG_100K_2/2401814.jpg", "vg:2401814"),
        ("VG_100K\\12.jpg", "vg:12"),
        ("2401814.jpg", "file:2401814.jpg"),
        ("a/b/0000184613.jpg", "file:0000184613.jpg"),
        ("XVG_100K/12.jpg", "file:12.jpg"),
    ],
)
def test_an_image_is_known_by_its_id_wherever_it_lies(name, expected):
    assert image_identity(name) == expected


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """COCO, whose NegCLIP table has the first 12 images, and evaluations in `benchmarks`."""
    miniature.write_coco(tmp_path / "coco")
    out = tmp_path / "benchmarks"
    out.mkdir()
    entry = {"caption": "a", "negative_caption": "b.jpg?"}
    names = ["000000000009.jpg", "000000000010.jpg", "000000000099.jpg", "000000000009.jpg"]
    sugar = {str(i): entry | {"filename": name} for i, name in enumerate(names)}
    (out / "swap.json").write_text(json.dumps(sugar))
    pairs = [["VG_100K/7.jpg", {"POS": ["a"], "NEG": ["b"]}], ["VG_100K_2/8.jpg", {"POS": ["c"]}]]
    (out / "checklist.json").write_text(json.dumps(pairs))
    (out / "crepe.csv").write_text("image_id,caption,hard_negs\n7,a,['b']\n7,c,['d']\n")
    (out / "pope.json").write_text('{"image": "000000000009.jpg"}\n\n{"image": "1.jpg"}\n')
    (out / "words.json").write_text('["no image"]')
    (out / "torn.json").write_text("[")
    (tmp_path / "image_data.json").write_text(
        json.dumps([{"image_id": 7, "coco_id": 3}, {"image_id": 8, "coco_id": None}])
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words):
    return leaks.main(["--train", "coco/train_neg_clip.tsv", "--eval", *words])


def test_the_overlap_of_every_set_is_counted_in_different_images(folder, capsys):
    assert run("benchmarks", "coco/dataset_coco.json", "--write", "leaks.txt") == 1
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    counts = {line[-1]: (line[0], line[2]) for line in lines if line[1:2] == ["of"]}
    assert counts["benchmarks/swap.json"] == ("2", "3")
    assert counts["benchmarks/checklist.json"] == ("0", "2")
    assert counts["benchmarks/crepe.csv"] == ("0", "1")
    assert counts["benchmarks/pope.json"] == ("1", "2")  # an object per line
    assert counts["val"] == ("0", "3")
    assert counts["test"] == ("0", "2")
    said = " ".join(map(" ".join, lines))
    assert "train restval" not in counts
    assert "names no image: benchmarks/words.json" in said
    assert "not read: benchmarks/torn.json is not JSON" in said
    assert (folder / "leaks.txt").read_text() == "coco:10\ncoco:9\n"


def test_visual_genomes_images_are_also_known_as_cocos(folder, capsys):
    assert run("benchmarks/checklist.json") == 0
    assert "are COCO's, too: give --vg-image-data" in capsys.readouterr().out
    assert run("benchmarks/checklist.json", "--vg-image-data", "image_data.json") == 1
    assert "VG_100K/7.jpg is coco/train2014/COCO_train2014_000000000003" in capsys.readouterr().out


def test_files_of_training_are_known_by_links_copies_and_regions(tmp_path):
    files = {"a": "1", "b": "2", "copy": "2", "other": "3", "longer": "11"}
    a, b, copy, *others = (tmp_path / name for name in files)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (link := tmp_path / "link").symlink_to(a)
    region, gone = Crop(copy, (0, 0, 1, 1)), tmp_path / "gone"
    assert leaks.shared_files({a, b, gone}, [link, region, region, *others, gone, b"2"]) == (5, 2)


def test_karpathys_training_set_is_compared_by_its_splits(folder, capsys):
    words = ["--train", "coco/dataset_coco.json", "--eval", "coco"]
    assert leaks.main(words) == 1  # the table of NegCLIP and the official files hold the same
    assert " 0 of       3  coco/dataset_coco.json val" in capsys.readouterr().out
    assert leaks.main([*words[:3], "coco/dataset_coco.json", "--train-split", "val"]) == 1
    assert "3 of       3  coco/dataset_coco.json val" in capsys.readouterr().out
    assert leaks.main([*words, "--train-split", "vall"]) == 2
    assert "names no image of split 'vall'; splits: ['train'" in capsys.readouterr().err


def test_files_that_cannot_be_compared_are_said(folder, capsys):
    assert run("absent.json") in (2, 3)
    assert run("benchmarks/torn.json") == 3
    assert run("benchmarks/words.json") == 2
    assert "no evaluation images are named" in capsys.readouterr().err


def negclip(folder, **options):
    path = folder / "coco" / "train_neg_clip.tsv"
    return make_source("negclip", "train", annotations=path, images=folder, **options)


def test_excluded_images_are_neither_trained_on_nor_hard(folder, caplog):
    assert run("benchmarks", "--write", "leaks.txt") == 1
    source, whole = negclip(folder, exclude="leaks.txt"), negclip(folder)
    assert [record.id for record in source] == [*map(str, range(9)), "11"]
    assert "2 of 12 rows are excluded" in caplog.text
    assert source.fingerprint != whole.fingerprint
    assert source.find("11") == whole[11]
    for excluded in ("9", "10"):
        with pytest.raises(DataError, match=f"no row '{excluded}', or it is excluded"):
            source.find(excluded)
    path = folder / "coco" / "train_neg_clip.tsv"
    path.write_text(path.read_text().replace("[0, 1, 2]", "[0, 1, 12]"))
    with pytest.raises(DataError, match=r"row 12 of .*: 'neg_image' .* got 12"):
        negclip(folder, exclude="leaks.txt")[9]


def test_prepare_leaves_out_the_same_images(folder):
    (folder / "leaks.txt").write_text("coco:9\nCOCO_train2014_000000000000.jpg\n\n")
    words = prepare.DATASETS["negclip"].example.split()
    assert prepare.main(["negclip", *words, "--out", "out", "--exclude", "leaks.txt"]) == 0
    assert [record.id for record in ShardsSource(path="out")] == [
        *map(str, range(1, 9)), "10", "11",
    ]  # fmt: skip


def test_regions_of_an_excluded_image_are_left_out(folder):
    (folder / "VG_100K").mkdir()
    (folder / "VG_100K" / "8.jpg").write_bytes(miniature.picture(8))
    (folder / "t.csv").write_text("image_id,caption,hard_negs\n7,a,[]\n8,b,[]\n7,c,[]\n")
    (folder / "leaks.txt").write_text("vg:7\n")
    source = make_source("crepe", "train", annotations="t.csv", images=folder, exclude="leaks.txt")
    assert [record.captions for record in source] == [["b"]]


def test_wrong_lists_are_refused(folder):
    with pytest.raises(ValueError, match="exclude: no file absent"):
        negclip(folder, exclude="absent")
    (folder / "none.txt").write_bytes(b"\xff\n")
    with pytest.raises(DataError, match=r"none\.txt is not UTF-8"):
        negclip(folder, exclude="none.txt")
    (folder / "none.txt").write_text("\n")
    assert len(negclip(folder, exclude="none.txt")) == 12
    everything = "".join(f"coco:{i}\n" for i in range(12))
    (folder / "all.txt").write_text(everything)
    with pytest.raises(ValueError, match="`exclude` leaves no row of 'train'"):
        negclip(folder, exclude="all.txt")
