"""DOCCI's descriptions and Urban1k's folders."""

import json
from pathlib import Path

from tests.support.sets.files import picture


def write(root: Path) -> None:
    rows = []
    for number, split in enumerate(("train", "test", "test", "qual_test")):
        name = f"{split}_{number:05d}.jpg"
        picture(root / "docci" / "images" / name)
        text = f"A photograph of {number} cups. They stand on a table."
        row = {"example_id": name.removesuffix(".jpg"), "split": split, "image_file": name}
        rows.append(json.dumps(row | {"description": text}))
    (root / "docci" / "docci_descriptions.jsonlines").write_text("\n".join(rows))
    (root / "Urban1k" / "caption").mkdir(parents=True)
    for number in (1, 2, 10):
        picture(root / "Urban1k" / "image" / f"{number}.jpg")
        text = f"A street with {number} cars. The sky is blue.\n\nA second line.\n"
        (root / "Urban1k" / "caption" / f"{number}.txt").write_text(text)
