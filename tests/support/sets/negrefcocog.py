"""NegRefCOCOg's file."""

from pathlib import Path

from tests.support.sets.files import picture, write_json

ROWS = [
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


def write(root: Path) -> None:
    for row in ROWS:
        picture(root / "coco" / "train2014" / row["image"])
    write_json(root / "negrefcocog" / "NegRefCOCOg.json", ROWS)
