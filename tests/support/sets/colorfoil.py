"""What ColorFoil is made of: COCO's captions of val2017."""

from pathlib import Path

from tests.support.sets.files import picture, write_json

CAPTIONS = {
    1: ["A cup on a table.", "a red cup and a gray pan", "a white cup"],
    2: ["A White cup.", "a cup, red, and a pan"],  # no colour between spaces in lower case
    3: ["a red cup covered by a white pan"],
    4: ["a blue cup"],
}


def write(root: Path) -> None:
    images = [{"id": n, "file_name": f"{n:012d}.jpg"} for n in CAPTIONS]
    for row in images:
        picture(root / "coco" / "val2017" / row["file_name"])
    annotations = [
        {"id": 10 * n + k, "image_id": n, "caption": caption}
        for n, captions in CAPTIONS.items()
        for k, caption in enumerate(captions)
    ]
    document = {"images": images, "annotations": annotations}
    write_json(root / "coco" / "annotations" / "captions_val2017.json", document)
