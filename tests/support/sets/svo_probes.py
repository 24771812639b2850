"""SVO-Probes' files."""

from pathlib import Path
from typing import Any

from tests.support.sets.files import picture, write_table


def row(sentence: str, right: int, wrong: int, **negatives: bool) -> dict[str, Any]:
    fields = {"subj_neg": False, "verb_neg": False, "obj_neg": False}
    return {
        "sentence": sentence,
        "pos_triplet": "cup,stand,table",
        "neg_triplet": "pan,stand,table",
        "pos_url": f"https://localhost/{right}",
        "neg_url": f"https://localhost/{wrong}",
        "pos_image_id": right,
        "neg_image_id": wrong,
        **(fields | negatives),
    }


ROWS = [
    row("A cup stands on a table.", 0, 1, subj_neg=True),
    row("A cup stands on a table.", 0, 2, verb_neg=True),
    row("A cup, red, stands on a chair.", 3, 2, obj_neg=True),
]


def write(root: Path) -> None:
    for number in range(4):
        picture(root / "svo_probes" / "images" / f"{number}.jpg")
    write_table(root / "svo_probes" / "svo_probes.csv", ROWS)
