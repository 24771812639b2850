"""Copies of evaluation images in training data are found by pixels, however it is computed."""

import io
import json
import re

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from tests.input_pipeline.commands import test_engines
from tests.input_pipeline.images.test_perceptual_hash import picture
from tests.support.sets import sugarcrepe, whatsup, winoground
from vlc_jax.input_pipeline.commands import leaks, near_leaks, parts, prepare
from vlc_jax.input_pipeline.record import Crop, ShuffledImage

COUNT = 24
COPIES = {  # record of training -> image below `benchmarks`, its copy
    3: ("coco/val2017/000000000002.jpg", lambda image: image.resize((90, 90))),
    9: (
        "whatsup/controlled_images/pillow_on_chair.jpeg",
        lambda image: ImageEnhance.Brightness(image.crop((1, 1, 119, 119))).enhance(0.9),
    ),
    17: (
        "winoground/images/ex_1_img_0.png",
        lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    ),
    18: ("winoground/images/ex_0_img_1.png", lambda image: image),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three published sets in `benchmarks`, and `prepared`, of which four records are copies."""
    for each in (sugarcrepe, whatsup, winoground):
        each.write(tmp_path / "benchmarks")
    for number, path in enumerate(sorted(tmp_path.glob("benchmarks/**/*.*g"))):
        picture(1000 + number).save(path)
    (tmp_path / "photos").mkdir()
    rows = []
    for number in range(COUNT):
        image = picture(number)
        if number in COPIES:
            name, copy = COPIES[number]
            image = copy(Image.open(tmp_path / "benchmarks" / name))
        image.save(tmp_path / f"photos/{number}.png")
        rows.append(json.dumps({"image": f"{number}.png", "caption": f"caption {number}"}))
    (tmp_path / "photos/t.jsonl").write_text("\n".join(rows))
    monkeypatch.chdir(tmp_path)
    words = "--source records --option path=photos/t.jsonl --option id_column=image --split all"
    prepare.main([*words.split(), "--size", "120", "--shard-size", "5", "--out", "prepared"])
    return tmp_path


SETS = ["--root", "benchmarks", "--sets", "sugarcrepe", "whatsup_a", "winoground"]


def run(*words):
    return leaks.main(["--pixels", "--train", "prepared", *SETS, "--write", "leaks.txt", *words])


def counts(text):
    """Set -> (images in training, images)."""
    lines = re.findall(r"^ *(\d+) of +(\d+)  (\w+)", text, re.MULTILINE)
    return {name: (int(shared), int(number)) for shared, number, name in lines}


def test_copies_in_three_sets_are_found_and_left_out(folder, capsys):
    assert run() == 1
    said = capsys.readouterr().out
    assert counts(said) == {"sugarcrepe": (1, 2), "whatsup_a": (1, 8), "winoground": (2, 4)}
    assert "winoground (1 near, 1 near when mirrored)" in said  # JPEG's pixels are not the same
    assert "pillow_on_chair.jpeg is 9.png of training, near" in said
    assert (folder / "leaks.txt").read_text().split() == ["3.png", "9.png", "17.png", "18.png"]
    words = "--source shards --option path=prepared --exclude leaks.txt --split all --size 120"
    assert prepare.main([*words.split(), "--out", "clean"]) == 0
    assert "20 records" in (said := capsys.readouterr().out)
    assert "4 captions and with them 4 records did not pass the filters (4 excluded)" in said
    assert leaks.main(["--pixels", "--train", "clean", *SETS]) == 0


def test_tables_are_compared_and_equal_pixels_are_told(folder, capsys):
    words = ["--pixels", "--train", "photos/t.jsonl", "--eval", "benchmarks/winoground"]
    assert leaks.main([*words, "--distance", "0", "--write", "leaks.txt"]) == 1
    assert "2 of       4  benchmarks/winoground (1 the same pixels, 1 near" in (
        capsys.readouterr().out
    )
    assert (folder / "leaks.txt").read_text() == "file:17.png\nfile:18.png\n"
    (folder / "photos/5.png").write_bytes(b"torn")
    (folder / "benchmarks/winoground/images/ex_0_img_0.png").write_bytes(b"torn")
    assert leaks.main(words) == 1
    said = capsys.readouterr().out
    assert "1 of them have no image that can be read" in said
    assert "1 images of evaluations are not compared, the first: image file" in said


def test_any_number_of_parts_workers_and_stops_finds_the_same(folder, capsys, monkeypatch):
    assert run() == 1
    expected = capsys.readouterr().out, (folder / "leaks.txt").read_bytes()
    whole, calls = near_leaks.Join.__call__, []

    def stopped(self, records):
        calls.append(records)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return whole(self, records)

    monkeypatch.setattr(near_leaks.Join, "__call__", stopped)
    words = ["--parts", "parts", "--part-size", "7"]
    with pytest.raises(KeyboardInterrupt):
        run(*words)
    monkeypatch.setattr(near_leaks.Join, "__call__", whole)
    computed = []
    monkeypatch.setattr(near_leaks.OfTraining, "__call__", lambda self, r: computed.append(r))
    monkeypatch.setattr(parts, "engine", lambda *_: test_engines.workers)
    capsys.readouterr()
    assert run(*words) == 1
    assert (capsys.readouterr().out, (folder / "leaks.txt").read_bytes()) == expected
    words = ["--pixels", "--train", "prepared", "--eval", "benchmarks/winoground", *words]
    assert leaks.main(words) == 1
    assert "2 of       4  benchmarks/winoground" in capsys.readouterr().out
    assert not computed  # the hashes of training are there


def test_beam_finds_the_same(folder, capsys):
    pytest.importorskip("apache_beam", reason=test_engines.NEEDS_BEAM)
    assert run() == 1
    expected = capsys.readouterr().out
    flags = ["--", "--direct_num_workers=2", "--direct_running_mode=multi_threading"]
    assert run("--part-size", "7", "--runner", "DirectRunner", *flags) == 1
    assert capsys.readouterr().out == expected


def test_regions_are_looked_for_as_their_whole_image():
    positions, images = {}, []
    whole = b"encoded"
    for image in (whole, Crop(whole, (0, 0, 2, 2)), ShuffledImage(whole, "rows_4", (0, 1, 2, 3))):
        assert near_leaks._position(image, positions, images) == 0
    assert images == [whole]


def test_requests_that_cannot_be_compared_are_refused(folder, capsys):
    for words, said in (
        (["--train", "photos/t.jsonl", "--root", "x"], "--root belongs to --pixels"),
        (["--train", "photos/t.jsonl", "--distance", "0"], "--distance belongs to --pixels"),
        (["--train", "photos/t.jsonl", "--eval-images", "x"], "--eval-images belongs to --pixels"),
        (["--pixels", "--train", "x", "--vg-image-data", "x"], "--vg-image-data is for names"),
        (["--train", "photos/t.jsonl"], "name annotations of evaluations in --eval"),
        (["--pixels", "--train", "prepared"], "no evaluation images"),
        (
            ["--pixels", "--train", "prepared", *SETS[:3], "nothing"],
            "unknown published set 'nothing'",
        ),
        (["--pixels", "--train", "photos/t.jsonl", "--train-images", "x"], "set --train-images"),
        (["--train", "photos/t.jsonl", "--", "--flag"], "--flag behind -- is a flag of a runner"),
    ):
        assert leaks.main(words) == 2
        assert said in capsys.readouterr().err
    picture(0).save(buffer := io.BytesIO(), "PNG")
    rows = near_leaks.hash_rows([buffer.getvalue(), b"torn", None].__getitem__, range(3), 1, True)
    assert np.array_equal(rows.any(axis=1), [True, False, False])
