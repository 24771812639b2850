"""VALSE's files."""

from pathlib import Path

from tests.support.sets.files import picture, write_json
from vlc_jax.input_pipeline.benchmarks.valse import SUBSETS

IMAGES = {  # piece -> data set, image, and where that is below the root
    "plurals": ("coco2017", "000000000042.jpg", "coco/val2017"),
    "relations": ("coco_2017", "000000000042.jpg", "coco/val2017"),
    "action-replacement": ("SWiG", "eating_7.jpg", "swig"),
    "actant-swap": ("SWiG", "eating_7.jpg", "swig"),
    "coreference-standard": ("VisDial_v1.0", "COCO_train2014_000000000007.jpg", "coco/train2014"),
    "coreference-hard": (
        "VisDial_v1.0",
        "VisualDialog_val2018_000000000007.jpg",
        "visdial/VisualDialog_val2018",
    ),
    "foil-it": ("FOIL dataset", "COCO_val2014_000000000042.jpg", "coco/val2014"),
}
VISUAL7W = ("visual7w", "v7w_7.jpg", "visual7w/images")


def write(root: Path) -> None:
    for subset in SUBSETS:
        dataset, image, folder = IMAGES.get(subset, VISUAL7W)
        picture(root / folder / image)
        rows = {}
        for votes in (3, 2, 1):  # the last is not valid
            rows[f"{subset}:test_{votes}"] = {
                "dataset": dataset,
                "image_file": image,
                "linguistic_phenomena": subset.split("-")[0],
                "caption": f"A cook stirs the soup {votes}.",
                "foil": f"The soup stirs a cook {votes}.",
                "mturk": {"foil": 3 - votes, "caption": votes, "other": 0},
            }
        write_json(root / "valse" / f"{subset}.json", rows)
