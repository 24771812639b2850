"""`prepare DATASET`: what lands in the shards; damaged images, killed runs, wrong words."""

import hashlib
import json
import re
import signal
import subprocess
import sys
import tarfile
import time

import numpy as np
import pytest

from tests.support import helpers, miniature
from vlc_jax.input_pipeline.commands import parts, prepare, shard_job
from vlc_jax.input_pipeline.hard_texts.sampling import HardTexts
from vlc_jax.input_pipeline.images.transforms import ImageTransform
from vlc_jax.input_pipeline.loader.loader import make_train
from vlc_jax.input_pipeline.sources import SOURCES, make_source
from vlc_jax.input_pipeline.sources.shards import ShardsSource
from vlc_jax.input_pipeline.tokenizers.byte_level import BytesTokenizer

RECORDS = {  # name -> records and captions of its example on the miniature
    "coco": (12, 60),
    "flickr30k": (2, 10),
    "negclip": (12, 12),
    "cc3m": (8, 8),
    "img2dataset": (10, 10),
    "llava": (5, 5),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The datasets in the working directory."""
    miniature.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def example(name, *more):
    return [name, *prepare.DATASETS[name].example.split(), "--out", "out", *more]


def original(name):
    words = prepare.DATASETS[name].example.split()
    options = {
        key.removeprefix("--"): value for key, value in zip(words[::2], words[1::2], strict=True)
    }
    return make_source(name, options.pop("split", "train"), **options)


def manifest(folder="out"):
    with open(f"{folder}/manifest.json") as file:
        return json.load(file)


@pytest.mark.parametrize("name", prepare.DATASETS)
def test_every_example_is_prepared_counted_and_hashed(name, folder, capsys):
    assert prepare.main(example(name)) == 0
    records, captions = RECORDS[name]
    said = f"{records} records ({captions} captions, {records} different images) in 1 shards"
    assert said in capsys.readouterr().out
    made = manifest()
    assert (made["count"], made["captions"], made["images"]) == (records, captions, records)
    assert made["complete"]
    for path, digest in made["request"]["annotations"].items():
        assert hashlib.sha256((folder / path).read_bytes()).hexdigest() == digest
    assert len(made["request"]["annotations"]) == (name != "img2dataset")
    for shard in made["shards"]:
        content = (folder / "out" / shard["name"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == shard["sha256"]


@pytest.mark.parametrize("name", prepare.DATASETS)
def test_training_batches_from_shards_equal_those_from_the_files(name, folder):
    """Bit for bit where the images were small enough to be stored as they are."""
    assert prepare.main(example(name, "--format", "png", "--shard-size", "3")) == 0
    made_of = manifest()["request"]["split"]
    before, after = original(name), ShardsSource(made_of, path="out")
    assert len(before) == len(after)
    for index in range(len(before)):
        for field in ("id", "group", "meta", "captions", "negatives", "positives", "hard_images"):
            values = (getattr(source[index], field) for source in (before, after))
            assert len({json.dumps(value) for value in values}) == 1, field
    batches = []
    for source in (before, after):
        loader = make_train(
            source,
            BytesTokenizer(32),
            ImageTransform(32, crop="random_resized"),
            batch_size=8,
            seed=3,
            negatives=HardTexts(2),
            positives=HardTexts(1),
        )
        with loader:
            batches.append([next(loader) for _ in range(4)])
    for before, after in zip(*batches, strict=True):
        assert before.keys() == after.keys()
        for key in before:
            np.testing.assert_array_equal(before[key], after[key], err_msg=key)
    assert any(batch["negative_mask"].any() for batch in batches[0]) == (name == "negclip")


@pytest.mark.parametrize(
    ("name", "words", "stored", "split", "refused"),
    [
        ("coco", (), "train+restval", "train", "val"),  # the usual training split is one for train
        ("negclip", ("--split", "validation"), "validation", "validation", "train"),
    ],
)
def test_shards_answer_for_their_split_alone(folder, name, words, stored, split, refused):
    assert prepare.main(example(name, *words)) == 0
    assert manifest()["request"]["split"] == stored
    assert len(ShardsSource(split, path="out")) == 12
    with pytest.raises(ValueError, match=re.escape(f"holds the split '{stored}'; got '{refused}'")):
        ShardsSource(refused, path="out")


def test_an_image_of_many_records_is_counted_once(folder, monkeypatch):
    path = folder / "coco/train_neg_clip.tsv"
    path.write_text(path.read_text().replace("00005.jpg", "00004.jpg"))
    words = example("negclip", "--shard-size", "4")
    assert prepare.main(words) == 0
    assert (manifest()["count"], manifest()["images"]) == (12, 11)
    words[words.index("out")] = "second"

    def one_shard(job, report, advance):
        job.write(1)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(parts, "in_this_process", one_shard)
        with pytest.raises(KeyboardInterrupt):
            prepare.main(words)
    assert prepare.main(words) == 0
    assert manifest("second") == manifest()


def test_corrupt_images_are_listed_by_id_and_too_many_end_with_3(folder, capsys):
    bad = [folder / f"coco/train2014/COCO_train2014_{number:012d}.jpg" for number in (1, 6)]
    bad[0].write_bytes(bad[0].read_bytes()[:200])
    bad[1].write_bytes(b"")
    assert prepare.main(example("coco", "--max-bad-share", "0.2")) == 0
    rows = [(row["id"], row["reason"]) for row in helpers.rows(folder / "out/skipped.jsonl")]
    assert [name for name, _ in rows] == ["1", "6"]
    assert "cannot be decoded" in rows[0][1]
    assert "is empty" in rows[1][1]
    assert manifest()["count"] == 10
    assert "2 left out" in capsys.readouterr().out

    assert prepare.main([*example("coco", "--max-bad-share", "0.1"), "--out", "second"]) == 3
    assert re.search(
        r"2 of 12 records cannot be used.*last is 6: .*second/", capsys.readouterr().err
    )


def run(words, folder):
    return subprocess.Popen(
        [sys.executable, "-m", "vlc_jax.input_pipeline.commands.prepare", *words],
        cwd=folder,
        env=helpers.environment() | {"PYTHONPATH": str(helpers.ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )


def big_tars(folder):
    """Sixteen photographs that take a while to shrink."""
    folder.mkdir()
    with tarfile.open(folder / "00000.tar", "w") as tar:
        for number in range(16):
            miniature.add(tar, f"{number}.jpg", miniature.picture(number, size=2500))
            miniature.add(tar, f"{number}.txt", b"a photograph")


@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGKILL, marks=pytest.mark.slow), signal.SIGINT]
)
def test_a_run_that_is_stopped_continues_with_the_same_command(how, tmp_path):
    big_tars(tmp_path / "tars")
    words = ["img2dataset", "--tars", "tars", "--shard-size", "2", "--threads", "1", "--out"]
    started = run([*words, "broken"], tmp_path)
    deadline = time.monotonic() + 60
    while not (done := sorted(tmp_path.glob("broken/*.done"))):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    started.send_signal(how)
    stderr = started.communicate(timeout=60)[1]
    if how == signal.SIGINT:
        assert started.returncode == 130
        assert "the same command continues" in stderr
        assert "Traceback" not in stderr
    assert len([*tmp_path.glob("broken/*.done")]) < 8
    first = done[0].with_suffix(".array_record")
    before = first.stat().st_mtime_ns
    for name in ("broken", "whole"):
        again = run([*words, name], tmp_path)
        lines = again.communicate(timeout=60)[1].splitlines()
        # on a busy machine its progress
        assert [line for line in lines if not line.startswith("preparing: ")] == []
        assert again.returncode == 0
    assert first.stat().st_mtime_ns == before
    names = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "broken").iterdir())
    for name in names:
        content = (tmp_path / "broken" / name).read_bytes()
        assert content == (tmp_path / "whole" / name).read_bytes(), name


def test_another_annotation_file_under_the_same_name_is_refused(folder, capsys):
    assert prepare.main(example("llava")) == 0
    path = folder / "llava/llava_instruct_150k.json"
    path.write_text(path.read_text().replace("picture 1", "photo 1"))
    assert prepare.main(example("llava")) == 2
    assert re.search("was begun with annotations .*use the same options", capsys.readouterr().err)


def test_answers_and_several_files_of_llava_reach_the_shards(folder, capsys):
    files = "llava/blip_laion_cc_sbu_558k.json+llava/llava_v1_5_mix665k.json"
    words = ["llava", "--annotations", files, "--images", "llava/images+llava/data", "--out", "out"]
    assert prepare.main([*words, "--answers", "each"]) == 0
    source = ShardsSource(path="out")
    assert [len(source[index].captions) for index in range(8)] == [1] * 4 + [3] * 4
    assert manifest()["request"]["options"]["answers"] == "each"
    assert set(manifest()["request"]["annotations"]) == set(files.split("+"))
    assert prepare.main([*words, "--answers", "joined"]) == 2
    assert "was begun with options" in capsys.readouterr().err
    with pytest.raises(SystemExit) as end:
        prepare.main([*words, "--answers", "all"])
    assert end.value.code == 2


def test_conversations_without_an_image_are_texts_in_shards(folder, capsys):
    words = ["llava", "--annotations", "llava/llava_v1_5_mix665k.json", "--images", "llava/data"]
    words += ["--answers", "conversation", "--text-only", "--out"]
    assert prepare.main([*words, "out"]) == 0
    assert "6 records (6 captions, 4 different images) in 1 shards" in capsys.readouterr().out
    source = ShardsSource(path="out")
    assert source.has_text_only
    records = [source[index] for index in range(6)]
    assert [record.image is None for record in records] == [*[False] * 2, True, *[False] * 2, True]
    assert [*map(str, records[2].captions)] == [
        '{"text_only": [["Write a verse.", "Rain, rain."]]}'
    ]
    split = [*words, "split", "--shard-size", "3"]  # continued behind a shard with a text alone
    assert prepare.main(split) == 0
    whole = manifest("split")
    stopped = dict(whole, complete=False, shards=whole["shards"][:1], count=3, captions=3)
    del stopped["images"]
    (folder / "split/manifest.json").write_text(json.dumps(stopped))
    assert prepare.main(split) == 0
    assert manifest("split") == whole
    assert whole["images"] == 4
    assert prepare.main([*words[:-2], "--out", "other"]) == 0
    assert not ShardsSource(path="other").has_text_only
    assert "text_only" not in json.dumps(manifest("other")["request"])


@pytest.mark.parametrize("name", prepare.DATASETS)
def test_help_says_which_files_to_bring_and_shows_the_example(name, capsys):
    with pytest.raises(SystemExit) as end:
        prepare.main([name, "--help"])
    assert end.value.code == 0
    said = capsys.readouterr().out
    options = prepare._dataset_options(name)
    assert all(f"--{option.replace('_', '-')}" in said for option in options)
    assert prepare.DATASETS[name].example in said
    assert SOURCES[name].__doc__.splitlines()[0] in said


def test_wrong_words_exit_with_2_and_write_nothing(folder, capsys):
    assert prepare.main(["cocoo", "--out", "out"]) == 2
    assert "did you mean 'coco'?" in capsys.readouterr().err
    assert prepare.main(example("coco", "--split", "dev")) == 2
    assert "splits: train (8), restval (4)" in capsys.readouterr().err
    assert prepare.main(example("coco", "--annotations", "llava/llava_instruct_150k.json")) == 2
    assert "LLaVA conversations (vlc-jax prepare llava)" in capsys.readouterr().err
    assert prepare.main(example("coco", "--annotations", "coco/none.json")) == 2
    assert "coco/none.json is no file" in capsys.readouterr().err
    assert prepare.main(example("coco", "--images", "cc3m")) == 3
    assert "looked for as cc3m/train2014/COCO_train2014_000000000000.jpg" in capsys.readouterr().err
    for words in (["coco", "--out", "out"], example("img2dataset", "--images", "coco")):
        with pytest.raises(SystemExit) as end:
            prepare.main(words)
        assert end.value.code == 2
    assert not (folder / "out").exists()


def test_images_are_shrunk_to_256_pixels_unless_told_otherwise(folder):
    path = folder / "coco/val2014/COCO_val2014_000000000012.jpg"
    path.write_bytes(miniature.picture(12, size=300))
    sizes = {}
    for size in (None, 20):
        words = ["coco", "--annotations", "coco/dataset_coco.json", "--images", "coco"]
        words += ["--split", "val", "--out", f"out{size}"]
        assert prepare.main([*words, *(["--size", str(size)] if size else [])]) == 0
        source = ShardsSource("val", path=f"out{size}")
        sizes[size] = [shard_job.image_ops.decode(source[i].image).shape[0] for i in range(3)]
    assert sizes == {None: [256, 40, 40], 20: [20, 20, 20]}
