"""ARO's files."""

import re
from pathlib import Path

from tests.support.helpers import write_rows
from tests.support.sets.files import picture, write_json

RELATIONS = ["eating", "near", "eating", "on top of"]  # "near" is symmetric


def write(root: Path) -> None:
    folder = root / "aro"
    box = {"bbox_x": 3, "bbox_y": 2, "bbox_w": 30, "bbox_h": 26}
    relations, attributes = [], []
    for n, relation in enumerate(RELATIONS):
        image = picture(folder / "images" / f"{n // 2}.jpg").name
        relations.append(
            {
                "image_path": image,
                **box,
                "relation_name": relation,
                "true_caption": f"the horse is {relation} the grass",
                "false_caption": f"the grass is {relation} the horse",
            }
        )
    for n in range(27):  # 25 of the first pair of attributes, 2 of another
        pair = ["paved", "white"] if n < 25 else ["old", "round"]
        attributes.append(
            {
                "image_path": f"{n % 2}.jpg",
                **box,
                "attributes": pair,
                "true_caption": f"the {pair[0]} road and the {pair[1]} house {n}",
                "false_caption": f"the {pair[1]} road and the {pair[0]} house {n}",
            }
        )
    write_json(folder / "visual_genome_relation.json", relations)
    write_json(folder / "visual_genome_attribution.json", attributes)
    captions = ["A brown dog runs on the wet sand.", "Two dogs (brown) play: one runs, one sits"]
    for name, images in (
        (
            "coco",
            ["val2014/COCO_val2014_000000000042.jpg", "val2014/COCO_val2014_000000000043.jpg"],
        ),
        ("flickr30k", ["a.jpg", "b.jpg"]),
    ):
        for image in images:
            picture(root / name / image)
        write_json(
            root / name / f"{name.replace('coco', 'coco_karpathy')}_test.json",
            [{"image": image, "caption": captions[n:]} for n, image in enumerate(images)],
        )
    write_tags(root / "tags.jsonl", captions)


def write_tags(path: Path, captions: list[str]) -> None:
    """Parts of speech as a tagger would have stored them: of four letters and more are nouns."""
    rows: list[dict[str, object]] = [{"tagger": "by length", "version": "1"}]
    for caption in captions:
        words = re.finditer(r"\w+|[^\w\s]", caption)
        tags = {True: ("NN", "NOUN"), False: ("DT", "DET")}
        tokens = [(w.group(), *tags[len(w.group()) > 3], w.start(), w.end()) for w in words]
        fields = ("text", "tag", "pos", "start", "stop")
        rows.append(
            {
                "caption": caption,
                "tokens": [dict(zip(fields, token, strict=True)) for token in tokens],
                "noun_chunks": [],
            }
        )
    write_rows(path, rows)
