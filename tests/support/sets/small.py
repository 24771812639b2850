"""The files of sets that need few lines each; each function writes those of one set."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.support.sets.files import picture, picture_bytes, write_json, write_parquet, write_table
from vlc_jax.input_pipeline.benchmarks import bla as bla_reader
from vlc_jax.input_pipeline.benchmarks import clevr_bind as clevr_reader
from vlc_jax.input_pipeline.benchmarks import half_truths as half_truths_reader
from vlc_jax.input_pipeline.benchmarks import pope as pope_reader
from vlc_jax.input_pipeline.benchmarks import spec as spec_reader
from vlc_jax.input_pipeline.benchmarks import vsr as vsr_reader


def _write_lines(path: Path, rows: Iterable[Any], end: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)) + end)


def bla(root: Path) -> None:
    folder = root / "BLA_Benchmark"
    for subset in bla_reader.SUBSETS:
        rows = []
        for image, count in ((7, 1), (8, 2)):
            picture(folder / "images" / f"{image}.jpg")
            groups = [
                {
                    "group_index": n,
                    "True1": f"{subset} {n}: the cook in white holds a pot",
                    "True2": f"{subset} {n}: the cook in blue holds a pan",
                    "False1": f"{subset} {n}: the cook in white holds a pan",
                    "False2": f"{subset} {n}: the cook in blue holds a pot",
                }
                for n in range(count)
            ]
            rows.append({"image_id": image, "index": image, "caption_group": groups})
        write_json(folder / "annotations" / f"{subset}_captions.json", rows)


def clevr_bind(root: Path) -> None:
    folder = root / "clevr_bind" / "two_object"
    for subset in clevr_reader.SUBSETS:
        rows = []
        for n in range(3):
            name = picture(folder / "images" / subset / f"CLEVR_{n}.png").name
            wrong = {f"neg_{k}": f"{subset} cube {n} {k}" for k in range(4)}
            rows.append({"file_name": name, "pos": f"{subset} cone {n}", **wrong})
        write_table(folder / f"{subset}.csv", rows)


def coco_counterfactuals(root: Path) -> None:
    folder, rows = root / "coco_counterfactuals", []
    for name in ("158_0", "158_1", "164_4"):
        texts = {f"caption_{k}": f"a {noun} cuts a cake {name}"
                 for k, noun in enumerate(("child", "baker"))}  # fmt: skip
        images = {f"image_{k}": f"{name}_img_{k}" for k in (0, 1)}
        for image in images.values():
            picture(folder / "images" / f"{image}.jpg")
        rows.append({"id": name, **texts, **images})
    _write_lines(folder / "cococounterfactuals.jsonl", rows, end="\n")


def cola(root: Path) -> None:
    for name, part in (("11.jpg", "VG_100K"), ("12.jpg", "VG_100K_2")):
        picture(root / "vg" / part / name)
    one, other = (f"https://example.org/vg/{n}.jpg" for n in (11, 12))
    rows = [
        [one, "tall tree by a hut", other, "hut by a tall tree"],
        [other, "red hut, white door", one, "white hut, red door"],
    ]
    write_json(root / "cola" / "COLA_multiobjects_matching_benchmark.json", rows)


HALF_TRUTHS = [
    {
        "id": f"ht-{n}",
        "anchor": f"a cup {n}",
        "half_truth": f"a cup {n} {wrong}",
        "full_truth": f"a cup {n} {right}",
        "triplet_type": kind,
    }
    for n, (kind, wrong, right) in enumerate(
        [
            ("entity", "and a pan", "and a pot"),
            ("relation", "under a shelf", "on a shelf"),
            ("entity", "and a red hat", "and a blue hat"),
        ]
    )
]


def half_truths(root: Path) -> None:
    packed = [
        row | {"image": {"bytes": picture_bytes(row["id"]), "path": None}} for row in HALF_TRUTHS
    ]
    for subset in half_truths_reader.SUBSETS:
        write_parquet(root / "half_truths" / f"{subset}.parquet", packed)


def docci(root: Path) -> None:
    rows = []
    for number, split in enumerate(("train", "test", "test", "qual_test")):
        name = picture(root / "docci" / "images" / f"{split}_{number:05d}.jpg").name
        text = f"A photograph of {number} cups. They stand on a table."
        row = {"example_id": name.removesuffix(".jpg"), "split": split, "image_file": name}
        rows.append(row | {"description": text})
    _write_lines(root / "docci" / "docci_descriptions.jsonlines", rows)


def urban1k(root: Path) -> None:
    (root / "Urban1k" / "caption").mkdir(parents=True)
    for number in (1, 2, 10):
        picture(root / "Urban1k" / "image" / f"{number}.jpg")
        text = f"A street with {number} cars. The sky is blue.\n\nA second line.\n"
        (root / "Urban1k" / "caption" / f"{number}.txt").write_text(text)


def naturalbench(root: Path) -> None:
    folder, rows = root / "NaturalBench-Retrieval", []
    for index in range(3):
        row = {"index": index}
        for k, verb in enumerate(("sits", "stands")):
            row[f"image_{k}"] = picture(folder / "images" / f"{2 * index + k}.jpg").name
            row[f"caption_{k}"] = f"A dog {verb} beside door {index}."
        rows.append(row)
    write_json(folder / "metadata.json", rows)


NCD_SQUARES = (  # the names are the annotations
    "blue_corn_red_plum_2.png",  # what follows the second object is a number
    "red_apple_blue_corn.png",
    "MIRROR_red_apple_blue_corn.png",
)


def ncd_squares(root: Path) -> None:
    for name in NCD_SQUARES:
        picture(root / "NCD_colorful_composite_squares" / name)


NEGREFCOCOG = [
    {
        "image": "COCO_train2014_000000000003.jpg",
        "phrase": "a cup without a handle",
        "ref_bbox": [1.74, 0, 20.26, 30],
        "bbox_list": [[0, 0, 39.41, 31], [1.74, 0, 20.26, 30]],
    },
    {
        "image": "COCO_train2014_000000000004.jpg",
        "phrase": "the zebra not eating grass",
        "ref_bbox": [5, 5.5, 10, 12.25],
        "bbox_list": [[5, 5.5, 10, 12.25], [0, 0, 40, 32]],
    },
]


def negrefcocog(root: Path) -> None:
    for row in NEGREFCOCOG:
        picture(root / "coco" / "train2014" / row["image"])
    write_json(root / "negrefcocog" / "NegRefCOCOg.json", NEGREFCOCOG)


def pope(root: Path) -> None:
    image = picture(root / "coco" / "val2014" / "COCO_val2014_000000000007.jpg").name
    asked = (("a cup", "yes"), ("an apple", "no"), ("a dining table", "yes"), ("a bus", "no"))
    for number, name in enumerate(pope_reader.FILES.values()):
        rows = [
            {"question_id": n, "image": image, "text": f"Is there {what} in the image?", "label": x}
            for n, (what, x) in enumerate(asked[: 4 - number], 1)
        ]
        _write_lines(root / "pope" / name, rows)  # without a last line feed, as the authors' files


REPORTING_BIAS = {
    "spatial": [("controlled_images/mug.jpeg", ["A mug under a table", "A mug on a table"], 1)],
    "counting": [("count_bench/cleaned_images/0_3_cups.jpg", ["2 cups", "3 cups", "4 cups"], 1)],
    "negation": [
        ("negation_val/1.jpg", ["A cup that is NOT red", "A cup that is NOT big"], 1),
        ("negation_val/2.jpg", ["A lid that is NOT dry", "A lid that is NOT big"], 0),
    ],
    "temporal": [
        ("val2017/000000000001.jpg", ["A street after rain", "A street before rain"], 0),
        ("val2017/000000000002.jpg", ["A street after rain", "A street before rain"], 1),
    ],
}


def reporting_bias(root: Path) -> None:
    folder = root / "reporting_bias" / "data" / "benchmarks"
    for subset, rows in REPORTING_BIAS.items():
        for name, *_ in rows:
            # the repository's folder has another name than the file says
            picture(folder / name.replace("val2017", "val_2017"))
        keys = ("filename", "caption_options", "gold_index")
        write_json(folder / f"{subset}.json", [dict(zip(keys, row, strict=True)) for row in rows])


def spec(root: Path) -> None:
    words = ("left", "right", "top")
    for subset in spec_reader.SUBSETS:
        folder, names = root / "spec" / subset, [f"cup_7/{word}.jpg" for word in words]
        texts = [f"{subset}: a cup is on the {word}." for word in words]
        for name in names:
            picture(folder / name)
        for file, queries, keys in (("image2text", names, texts), ("text2image", texts, names)):
            rows = [{"query": query, "keys": keys, "label": n} for n, query in enumerate(queries)]
            write_json(folder / f"{file}.json", rows)


VSR = [
    ("train2017", "The cat is behind the laptop.", 1, "behind"),
    ("val2017", "The bowl contains the apple.", 0, "contains"),
    ("train2017", "The bed has as a part the couch.", 1, "has as a part"),
    ("train2017", "The dogs are near the cake.", 0, "near"),
]


def vsr(root: Path) -> None:
    rows = []
    for number, (folder, caption, label, relation) in enumerate(VSR):
        name = picture(root / "coco" / folder / f"{number:012d}.jpg").name
        link = f"http://images.cocodataset.org/{folder}/{name}"
        row = {"image": name, "image_link": link, "caption": caption, "label": label}
        rows.append(row | {"relation": relation, "reference_frame": None})
    for subset in vsr_reader.CASES:
        _write_lines(root / "vsr" / "data" / "splits" / subset / "test.jsonl", rows)


SETS = (
    *(bla, clevr_bind, coco_counterfactuals, cola, half_truths, docci, urban1k, naturalbench),
    *(ncd_squares, negrefcocog, pope, reporting_bias, spec, vsr),
)


def write(root: Path) -> None:
    for each in SETS:
        each(root)
