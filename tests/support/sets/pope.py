"""POPE's files: JSON lines."""

import json
from pathlib import Path

from tests.support.sets.files import picture
from vlc_jax.input_pipeline.benchmarks.pope import FILES

QUESTIONS = (("a cup", "yes"), ("an apple", "no"), ("a dining table", "yes"), ("a bus", "no"))


def write(root: Path) -> None:
    image = picture(root / "coco" / "val2014" / "COCO_val2014_000000000007.jpg").name
    for number, name in enumerate(FILES.values()):
        rows = [
            {"question_id": n, "image": image, "text": f"Is there {what} in the image?", "label": x}
            for n, (what, x) in enumerate(QUESTIONS[: 4 - number], 1)
        ]
        path = root / "pope" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # a file ends without a line feed, as the authors' do
        path.write_text("\n".join(map(json.dumps, rows)))
