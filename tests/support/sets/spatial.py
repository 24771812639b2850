"""The files of COCO-spatial and GQA-spatial."""

from pathlib import Path

from tests.support.sets.files import picture, write_json

ONE = [("left", "right"), ("right", "left"), ("top", "bottom"), ("bottom", "top")]
TWO = {
    "coco": [("to the left of", "to the right of"), ("above", "below"), ("below", "above")],
    "vg": [
        ("to the right of", "to the left of"),
        ("in front of", "behind"),
        ("on top of", "under"),
    ],
}
IDS = {"coco": [139, 285, 632, 724], "vg": ["2317", "61", "498", "7"]}


def write(root: Path) -> None:
    for data, ids in IDS.items():
        for number, image in enumerate(ids):
            if data == "coco":
                picture(root / "coco" / "val2017" / f"{image:012d}.jpg")
            else:
                folder = "VG_100K_2" if number % 2 else "VG_100K"
                picture(root / "vg" / folder / f"{image}.jpg")
        one = [
            [image, f"A photo of a lamp on the {a}", f"A photo of a lamp on the {b}"]
            for image, (a, b) in zip(ids, ONE, strict=True)
        ]
        two = [
            [image, f"A photo of a lamp {a} a sofa", f"A photo of a lamp {b} a sofa"]
            for image, (a, b) in zip(ids, TWO[data], strict=False)
        ]
        write_json(root / "whatsup" / f"{data}_qa_one_obj.json", one)
        write_json(root / "whatsup" / f"{data}_qa_two_obj.json", two)
