"""VSR's splits."""

import json
from pathlib import Path

from tests.support.sets.files import picture
from vlc_jax.input_pipeline.benchmarks.vsr import CASES

ROWS = [
    ("train2017", "The cat is behind the laptop.", 1, "behind"),
    ("val2017", "The bowl contains the apple.", 0, "contains"),
    ("train2017", "The bed has as a part the couch.", 1, "has as a part"),
    ("train2017", "The dogs are near the cake.", 0, "near"),
]


def write(root: Path) -> None:
    for subset in CASES:
        lines = []
        for number, (folder, caption, label, relation) in enumerate(ROWS):
            name = f"{number:012d}.jpg"
            picture(root / "coco" / folder / name)
            link = f"http://images.cocodataset.org/{folder}/{name}"
            row = {"image": name, "image_link": link, "caption": caption, "label": label}
            lines.append(json.dumps(row | {"relation": relation, "reference_frame": None}))
        path = root / "vsr" / "data" / "splits" / subset / "test.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines))
