"""The files of REPLACE and SWAP."""

from pathlib import Path

from tests.support.sets.files import picture, write_json

REPLACE = {  # subset -> (folder of the image, c, n, p)
    "attributes": [
        ("VG_100K", "green hat", "yellow hat", "emerald hat"),
        ("VG_100K_2", "small nose", "tiny nose", "tiny nose"),  # n is p
        ("VG_100K", "wet road", "dry road", "damp road"),
    ],
    "relations": [
        ("VG_100K_2", "cup in box", "cup out of box", "cup within box"),
        ("VG_100K", "hand holding cup", "hand holding cup", "hand grasping cup"),  # n is c
    ],
}
SWAP = [
    ("the wet road and the old car", "the old road and the wet car"),
    ("the red hat and the blue rose and the leaf", "the blue hat and the red rose and the leaf"),
]


def write(root: Path) -> None:
    folder = root / "hard_positives"
    for subset, cases in REPLACE.items():
        plain, swapped = [], []
        for number, (images, caption, negative, positive) in enumerate(cases):
            picture(root / "vg" / images / f"{number}.jpg")
            row = {"image_id": str(number), "image_path": f"data/{images}/{number}.jpg"}
            plain.append(row | {"true_caption": caption, "false_caption": negative})
            swapped.append(row | {"true_caption": positive, "false_caption": negative})
        write_json(folder / "data" / f"vl_checklist_{subset}.json", plain)
        write_json(folder / "swapped_data" / f"vl_checklist_{subset}.json", swapped)
    plain, swapped = [], []
    for number, (caption, negative) in enumerate(SWAP):
        picture(root / "aro" / "images" / f"{number}.jpg")
        box = {"bbox_x": 1, "bbox_y": 2, "bbox_w": 20, "bbox_h": 25}
        row = {"image_path": f"{number}.jpg", **box, "attributes": ["wet", "old"]}
        first, second = caption.split(" and ", 1)
        plain.append(row | {"true_caption": caption, "false_caption": negative})
        swapped.append(row | {"true_caption": f"{second} and {first}", "false_caption": negative})
    write_json(folder / "data" / "visual_genome_attribution.json", plain)
    write_json(folder / "swapped_data" / "visual_genome_attribution.json", swapped)
