"""The datasets that `vlc-jax prepare` knows, formed like the real ones, with few images."""

import csv
import io
import json
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vlc_jax.input_pipeline.record import Source
from vlc_jax.input_pipeline.sources import make_source

Texts = Callable[[int], list[str]]  # number of an image -> its captions
KARPATHY = {"train": 8, "restval": 4, "val": 3, "test": 2}  # images per split


def picture(number: int, size: int = 40) -> bytes:
    """A JPEG file of its own colour."""
    pixels = np.full((size, size + number % 7, 3), (10 * number % 256, 90, 200), np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "JPEG")
    return data.getvalue()


def write(folder: Path) -> None:
    """Every dataset under the names that the documentation uses."""
    write_coco(folder / "coco")
    write_flickr30k(folder / "flickr30k")
    write_cc3m(folder / "cc3m")
    write_tars(folder / "cc3m_tars")
    write_llava(folder / "llava")


def coco(folder: Path, split: str = "train", **options: Any) -> Source:
    given = {"annotations": folder / "coco/dataset_coco.json", "images": folder / "coco"}
    return make_source("coco", split, **(given | options))


def flickr30k(folder: Path, split: str = "train", **options: Any) -> Source:
    at = folder / "flickr30k"
    given = {"annotations": at / "dataset_flickr30k.json", "images": at / "flickr30k-images"}
    return make_source("flickr30k", split, **(given | options))


def negclip(folder: Path, split: str = "train", **options: Any) -> Source:
    given = {"annotations": folder / "coco/train_neg_clip.tsv", "images": folder}
    return make_source("negclip", split, **(given | options))


def cc3m(folder: Path, split: str = "train", **options: Any) -> Source:
    given = {"annotations": folder / "cc3m/train.tsv", "images": folder / "cc3m"}
    return make_source("cc3m", split, **(given | options))


def llava(folder: Path, split: str = "train", **options: Any) -> Source:
    path, images = folder / "llava/llava_instruct_150k.json", folder / "coco/train2017"
    return make_source("llava", split, **({"annotations": path, "images": images} | options))


SOURCES = (coco, flickr30k, negclip, cc3m, llava)  # of the files that `write` writes


def ids(source: Source) -> list[str]:
    return [source[index].id for index in range(len(source))]


def captions(number: int, count: int = 5) -> list[str]:
    return [f"caption {k} of picture {number}" for k in range(count)]


def karpathy(dataset: str, splits: dict[str, int], texts: Texts = captions) -> dict:
    """The document; images of `train` lie in train2014, all others in val2014."""
    images = []
    for split, count in splits.items():
        for _ in range(count):
            number = len(images)
            part = "train2014" if split == "train" else "val2014"
            name = {"filename": f"{1000 + number}.jpg"}
            if dataset == "coco":
                name = {"filepath": part, "filename": f"COCO_{part}_{number:012d}.jpg"}
                name["cocoid"] = number
            sentences = [
                {"tokens": raw.split(), "raw": raw, "imgid": number, "sentid": 5 * number + k}
                for k, raw in enumerate(texts(number))
            ]
            images.append(name | {"imgid": number, "split": split, "sentences": sentences})
    return {"images": images, "dataset": dataset}


def write_coco(folder: Path) -> None:
    document = karpathy("coco", KARPATHY)
    for part in ("train2014", "val2014", "train2017", "val2017", "annotations"):
        (folder / part).mkdir(parents=True)
    (folder / "dataset_coco.json").write_text(json.dumps(document))
    official: dict[str, list] = {"train": [], "val": []}
    for number, image in enumerate(document["images"]):
        (folder / image["filepath"] / image["filename"]).write_bytes(picture(number))
        official["val" if image["split"] == "val" else "train"].append(number)
    for split, numbers in official.items():
        for number in numbers:
            (folder / f"{split}2017" / f"{number:012d}.jpg").write_bytes(picture(number))
        (folder / "annotations" / f"captions_{split}2017.json").write_text(
            json.dumps(coco_captions(f"{split}2017", numbers))
        )
    write_negclip(folder / "train_neg_clip.tsv", document["images"][:12])


def coco_captions(part: str, numbers: Sequence[int], texts: Texts = captions) -> dict:
    """COCO's own document of one part, such as val2017 or train2014."""
    prefix = f"COCO_{part}_" if part.endswith("2014") else ""
    images = [
        {"id": n, "file_name": f"{prefix}{n:012d}.jpg", "height": 40, "width": 40}
        | {"coco_url": f"http://images.cocodataset.org/{part}/{prefix}{n:012d}.jpg"}
        for n in numbers
    ]
    annotations = [
        {"id": 5 * n + k, "image_id": n, "caption": text}
        for n in numbers
        for k, text in enumerate(texts(n))
    ]
    return {"info": {}, "licenses": [], "images": images, "annotations": annotations}


def write_negclip(path: Path, images: list[dict]) -> None:
    """As pandas writes it: an index, list literals, a title with a line break."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(["", "title", "filepath", "neg_caption", "neg_image"])
        for row, image in enumerate(images):
            title = f"caption 0 of\npicture {row}" if row == 3 else f"caption 0 of picture {row}"
            negatives = [f"picture {row} of caption 0", 'a caption\'s "other" words'][: 1 + row % 2]
            near = [(row + step) % len(images) for step in (1, 2, 3)]
            name = f"coco/{image['filepath']}/{image['filename']}"
            writer.writerow([row, title, name, repr(negatives), repr(near)])


def write_flickr30k(folder: Path) -> None:
    document = karpathy("flickr30k", {"train": 6, "val": 2, "test": 2})
    (folder / "flickr30k-images").mkdir(parents=True)
    (folder / "dataset_flickr30k.json").write_text(json.dumps(document))
    token, table = [], ["image_name| comment_number| comment"]
    for number, image in enumerate(document["images"]):
        name = image["filename"]
        (folder / "flickr30k-images" / name).write_bytes(picture(number))
        token += [f"{name}#{k}\t{text}" for k, text in enumerate(captions(number))]
        table += [f"{name}| {k}| {text}" for k, text in enumerate(captions(number))]
    table[5] = table[5].replace("| 4| ", "| 4   ")  # the real table has one such line
    (folder / "results_20130124.token").write_text("\n".join(token) + "\n")
    (folder / "results.csv").write_text("\n".join(table) + "\n")


def write_cc3m(folder: Path, count: int = 8) -> None:
    (folder / "train").mkdir(parents=True)
    lines = ["title\tfilepath"]
    for number in range(count):
        (folder / "train" / f"{number}.jpg").write_bytes(picture(number))
        lines.append(f"{captions(number)[0]}\ttrain/{number}.jpg")
    (folder / "train.tsv").write_text("\n".join(lines) + "\n")


def write_tars(folder: Path, tars: int = 2, samples: int = 5) -> None:
    """KEY.jpg, KEY.txt, KEY.json per sample, as img2dataset packs them."""
    folder.mkdir(parents=True)
    for shard in range(tars):
        with tarfile.open(folder / f"{shard:05d}.tar", "w") as tar:
            for index in range(samples):
                number = samples * shard + index
                key = f"{shard:05d}{index:04d}"
                meta = {"url": f"http://a.b/{number}.jpg", "key": key, "status": "success"}
                meta |= {"caption": captions(number)[0], "error_message": None, "exif": "{}"}
                add(tar, f"{key}.jpg", picture(number))
                add(tar, f"{key}.txt", captions(number)[0].encode())
                add(tar, f"{key}.json", json.dumps(meta).encode())


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def write_llava(folder: Path) -> None:
    """Conversations about the pictures of coco/train2017, one of them about none."""
    folder.mkdir(parents=True)
    entries = [
        {
            "id": f"{number:012d}",
            "image": f"{number:012d}.jpg",
            "conversations": talk(
                "<image>\nWhat is this?", captions(number)[0], "And else?", "Nothing."
            ),
        }
        for number in range(6)
    ]
    del entries[2]["image"]
    (folder / "llava_instruct_150k.json").write_text(json.dumps(entries))
    write_llava_training(folder)


def write_llava_training(folder: Path) -> None:
    """What LLaVA is trained on: short captions of web pictures (LCS-558K), and a mixture of
    conversations, some without a picture (mix-665K); in images and data.
    """
    web, mixed = [], []
    for number in range(4):
        name = f"{number:05d}/{number:05d}1000.jpg"
        (folder / "images" / name).parent.mkdir(parents=True)
        (folder / "images" / name).write_bytes(picture(number))
        question = "Say briefly what is shown."
        asked = f"{question}\n<image>" if number % 2 else f"<image>\n{question}"
        turns = talk(asked, f"a wooden chair in front of picture {number}")
        web.append({"id": f"{number:05d}1000", "image": name, "conversations": turns})
    (folder / "data/coco/train2017").mkdir(parents=True)
    for number in range(4, 8):
        name = f"coco/train2017/{number:012d}.jpg"
        (folder / "data" / name).write_bytes(picture(number))
        turns = talk(
            *("<image>\nWhat stands on the left of the table?", f"The lamp of picture {number}."),
            *("Is it lit?", "Yes"),
            *("And where is the cup?\nChoose a letter.", "B"),
        )
        mixed.append({"id": f"{number:012d}", "image": name, "conversations": turns})
    mixed.insert(2, {"id": "q7Zx_0", "conversations": talk("Write a verse.", "Rain, rain.")})
    mixed.append({"id": 99, "model": "", "conversations": talk("Thanks!", "You are welcome.")})
    (folder / "blip_laion_cc_sbu_558k.json").write_text(json.dumps(web))
    (folder / "llava_v1_5_mix665k.json").write_text(json.dumps(mixed))


def talk(*texts: str) -> list[dict[str, str]]:
    """A conversation: questions and answers in turn."""
    speakers = ("human", "gpt")
    return [{"from": speakers[turn % 2], "value": text} for turn, text in enumerate(texts)]
