"""COCO-Counterfactuals' files."""

import json
from pathlib import Path

from tests.support.sets.files import picture


def write(root: Path) -> None:
    folder, rows = root / "coco_counterfactuals", []
    for name in ("158_0", "158_1", "164_4"):
        images = [f"{name}_img_{k}" for k in (0, 1)]
        for image in images:
            picture(folder / "images" / f"{image}.jpg")
        captions = [f"a {noun} cuts a cake {name}" for noun in ("child", "baker")]
        texts = {f"caption_{k}": caption for k, caption in enumerate(captions)}
        rows.append({"id": name, **texts, **{f"image_{k}": i for k, i in enumerate(images)}})
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "cococounterfactuals.jsonl").write_text(text)
