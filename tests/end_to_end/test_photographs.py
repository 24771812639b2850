"""Published sets with their photographs, Flickr8k and sets of classes, read by every command."""

import collections
import csv
import io
import json
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image, ImageEnhance

from tests.support import helpers
from vlc_jax.configs.common import classification
from vlc_jax.input_pipeline.benchmarks import PUBLISHED, READERS, nulls, protocol_of
from vlc_jax.input_pipeline.commands import benchmarks, check, leaks, prepare
from vlc_jax.input_pipeline.sources.image_identity import image_identity
from vlc_jax.input_pipeline.sources.shards import ShardsSource

FOLDERS = {name: os.environ.get(name) for name in ("VLC_PHOTOGRAPHS", "VLC_BENCHMARK_DATA")}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not all(FOLDERS.values()), reason=f"{' or '.join(FOLDERS)} is not set"),
]
PHOTOGRAPHS, DATA = (Path(folder or "") for folder in FOLDERS.values())
FLICKR = PHOTOGRAPHS / "flickr8k"
PIECES = ("plurals", "relations", "coreference-standard", "foil-it")  # of VALSE that are there
CASES = {  # set -> cases, different images, those among NegCLIP's 143 of validation
    "colorfoil": (152, 152, 13),
    "pope": (252, 14, 2),
    "reporting_bias": (1921, 1837, 9),
    "sugarcrepe": (458, 88, 3),
    "sugarcrepe_pp": (285, 86, 3),
    "vsr": (179, 119, 3),
    "whatsup_a": (412, 412, 0),
    "whatsup_a_two_way": (412, 412, 0),
}
COPIES = {
    "resized": lambda image: image.resize((120, 150)),
    "recompressed": lambda image: image,
    "cropped": lambda image: image.crop((2, 1, 220, 221)),
    "brighter": lambda image: ImageEnhance.Brightness(image).enhance(1.15),
    "mirrored": lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """The sets, without the caches that are there; a file that names a folder, as git writes a link
    where it may not, is the link."""

    def link(source, target):
        place = Path(source)
        os.symlink(place if place.suffix else place.parent / place.read_text(), target)

    folder = tmp_path_factory.mktemp("photographs") / "sets"
    options = {"copy_function": link, "ignore": shutil.ignore_patterns(".*")}
    return shutil.copytree(PHOTOGRAPHS / "sets", folder, **options)


def test_the_command_counts_every_set_and_its_images(root, capsys):
    train = str(root / "negclip/valid_neg_clip.tsv")
    assert benchmarks.main(["--root", str(root), "--train", train]) == 0
    printed = capsys.readouterr().out
    rows = re.findall(r"^  (\w+) +\w+" + 4 * r" +([\d,]+)", printed, re.MULTILINE)
    counts = {name: tuple(int(n.replace(",", "")) for n in row) for name, *row in rows}
    there = {name: (number, images, 0, shared) for name, (number, images, shared) in CASES.items()}
    assert counts == there | dict.fromkeys(("whatsup_b", "whatsup_b_two_way"), (408, 408, 408, 0))
    assert "8 of 51 sets can be evaluated, 5 of them with the notes above" in printed
    assert printed.endswith(f"sets={'+'.join(CASES)}\n")


@pytest.mark.parametrize(
    ("name", "options", "least"),
    [
        ("sugarcrepe", {}, 1.0),
        ("colorfoil", {}, 1.0),
        ("valse", {"subsets": ("relations",)}, 1.0),
        ("sugarcrepe_pp", {}, 0.76),  # its authors wrote "person" for some men and women
    ],
)
def test_the_correct_caption_is_one_of_cocos_of_the_image(name, options, least, root):
    captions = collections.defaultdict(set)
    path = root / "coco/annotations/captions_val2017.json"
    for row in json.loads(path.read_text())["annotations"]:
        captions[f"{row['image_id']:012}.jpg"].add(words(row["caption"]))
    cases = PUBLISHED[name][0](root, **options).cases
    known = [[words(text) in captions[case.images[0].name] for text in case.captions]
             for case in cases]  # fmt: skip
    assert sum(right for right, *_ in known) >= least * len(cases)
    assert not any(wrong for _, *others in known for wrong in others)


def words(text):
    return tuple(re.findall(r"\w+", text.lower()))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("reporting_bias", {}),
        *((f"whatsup_{kind}", {}) for kind in ("a", "b", "a_two_way", "b_two_way")),
        ("sugarcrepe", {"root": DATA, "subsets": ("swap_att", "swap_obj")}),
        ("valse", {"root": DATA, "subsets": ("coreference-hard", "relations")}),
        ("cola", {"root": DATA}),
    ],
)
def test_nulls_of_the_table_are_those_of_the_files(name, options, root, monkeypatch):
    benchmark = PUBLISHED[name][0](**{"root": root, **options})
    frozen = nulls.benchmark_nulls(benchmark, protocol_of(name))
    assert {row.sha256 for row in frozen} & {sha256 for *_, sha256 in nulls.table()}
    monkeypatch.setattr(nulls, "table", dict)
    for row, made in zip(frozen, nulls.benchmark_nulls(benchmark, protocol_of(name)), strict=True):
        assert row[:3] == made[:3]
        assert row[3:-1] == pytest.approx(made[3:-1], abs=1e-5)


def test_one_run_trains_on_photographs_and_evaluates_all_sets(root, tmp_path):
    evals = {name: {"root": str(root)} for name in CASES}
    evals["valse"] = {"root": str(root), "subsets": PIECES}
    evals["flickr8k"] = {"reader": "retrieval", "split": "test", "count": 300}
    coco = {"path": str(root / "coco/annotations/captions_val2017.json"), "split": "all"}
    coco |= {"image_folder": str(root / "coco/val2017")}
    evals["coco"] = {"reader": "retrieval", "source": "records", **coco}
    options = {"root": str(PHOTOGRAPHS / "labelled"), "names": str(DATA / "clip_benchmark")}
    options |= {"sets": "imagenet1k+cifar10+cifar100+caltech101", "count": 300}
    evals |= classification.evals(SimpleNamespace(**(classification.ARGUMENTS | options)))
    evals["imagenet1k"]["templates"] = ["a photo of a {}."]  # the published ones are 80
    helpers.run(
        f"configs/records.py:path={FLICKR / 'captions.csv'},size=32,steps=2",
        tmp_path / "run",
        "--config.input.source_options.split_column=split",
        f"--config.evals={evals}",
        *("--config.batch_size=8", "--config.optimizer.warmup_steps=1", "--config.eval.examples=1"),
        *(f"--config.model.{x}={{'depth': 1, 'width': 32}}" for x in ("image", "text")),
        *("--config.text.context_length=32", "--config.input.preview=8"),
        timeout=900,
        code=0,
    )
    results = {path.parent.name: json.loads(path.read_text())["metrics"]
               for path in (tmp_path / "run/evals").glob("*/2.json")}  # fmt: skip
    assert results.keys() == evals.keys()
    expected = {name: {"accuracy": number} for name, (number, *_) in CASES.items()}
    expected["sugarcrepe_pp"] = {"augmented_accuracy": 285}
    expected["valse"] = {"accuracy": 137}  # the validated ones of 161
    expected["flickr8k"] = {"image_to_text_r1": 300, "text_to_image_r1": 1500}
    expected["coco"] = {"image_to_text_r1": 285, "text_to_image_r1": 1427}
    expected |= {name: {"accuracy": 300} for name in ("imagenet1k", "cifar10", "cifar100")}
    expected["caltech101"] = {"accuracy": 204}
    counts = {name: {metric: results[name][metric]["count"] for metric in metrics}
              for name, metrics in expected.items()}  # fmt: skip
    assert counts == expected


def test_folders_of_imagenet_have_the_names_of_their_files():
    """The files are n01440764_tench.JPEG and so on, below n01440764."""
    names = f"{DATA / 'clip_benchmark' / 'en_classnames.json'}:imagenet1k"
    options = {"path": PHOTOGRAPHS / "labelled/imagenet1k", "class_names": names}
    found = READERS["zeroshot"](source="labelled", templates=["a {}"], **options)
    known = [{*words(case.images[0].stem.replace("_", " "))} & {*words(case.group)}
             for case in found.cases]  # fmt: skip
    assert len(known) == 1000
    assert sum(map(bool, known)) > 850  # others have a synonym


def test_originals_of_any_size_are_prepared(tmp_path):
    paths = sorted((PHOTOGRAPHS / "fullres").iterdir())
    helpers.write_rows(
        tmp_path / "ten.jsonl", [{"image": path.name, "caption": path.stem} for path in paths]
    )
    options = f"--option path={tmp_path}/ten.jsonl --option image_folder={PHOTOGRAPHS / 'fullres'}"
    arguments = ["--source", "records", *options.split(), "--split", "all", "--size", "224"]
    assert prepare.main([*arguments, "--out", str(tmp_path / "out")]) == 0
    records = ShardsSource(path=tmp_path / "out")
    sizes = [Image.open(io.BytesIO(record.image)).size for record in records]
    assert [min(size) for size in sizes] == [224] * 10


def test_photographs_are_checked_prepared_and_found_again(tmp_path, capsys):
    table = FLICKR / "captions.csv"
    assert check.main([str(table), "--option", "split_column=split", "--count", "50"]) == 0
    printed = capsys.readouterr().out
    assert "40,455 rows of 8,091 images" in printed
    assert "dev 1,000, test 1,000, train 6,000, unassigned 91" in printed
    with table.open() as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == "dev"][:1000]
    copies = []
    for number, row in enumerate(rows[:500:5]):
        copy = [*COPIES.values()][number % len(COPIES)](Image.open(FLICKR / row["image"]))
        copy.save(tmp_path / f"{number}.jpg", quality=60)
        copies.append({"image": f"{number}.jpg", "caption": row["image"]})
    for name, lines in (("some", rows), ("copies", copies)):
        helpers.write_rows(tmp_path / f"{name}.jsonl", lines)
    options = f"--option path={tmp_path}/some.jsonl --option image_folder={FLICKR} --split all"
    out = ["--size", "96", "--out", str(tmp_path / "out")]
    assert prepare.main(["--source", "records", *options.split(), *out]) == 0
    shards = ShardsSource(path=tmp_path / "out")
    assert len(shards) == 200
    assert shards[7].captions == [row["caption"] for row in rows[35:40]]
    capsys.readouterr()
    evaluation = ["--eval", f"{tmp_path}/some.jsonl", "--eval-images", str(FLICKR)]
    assert leaks.main(["--pixels", "--train", f"{tmp_path}/copies.jsonl", *evaluation]) == 1
    assert re.search(r"\n +100 of +200  .*80 near, 20 near when mirrored", capsys.readouterr().out)


def test_names_and_pixels_agree_on_images_of_training(root, capsys):
    """Images of COCO val2014 and 2017 have the same ids, and here other sizes."""

    def found(*arguments):
        columns = ["--option", "image_column=filepath", "--option", "caption_column=title"]
        columns += ["--train-images", str(root)]
        train = ["--train", str(root / "negclip/valid_neg_clip.tsv")]
        assert leaks.main([*train, *arguments, *columns[: 6 * ("--pixels" in arguments)]]) == 1
        pairs = re.findall(r"(\S+) is (\S+) of training", capsys.readouterr().out)
        assert all(image_identity(a) in (b, image_identity(b)) for a, b in pairs)
        return {image_identity(image) for image, _ in pairs}

    files = ("sugar_crepe", "pope", "vsr/data/splits/random/test.jsonl")
    by_name = found("--eval", *(str(root / file) for file in files))
    assert len(by_name) == 8
    assert by_name == found("--pixels", "--root", str(root), "--sets", "sugarcrepe", "pope", "vsr")
