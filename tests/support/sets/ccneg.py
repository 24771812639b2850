"""CC-Neg's file, as torch.save writes it, and images."""

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

from tests.support.sets.files import picture
from vlc_jax.input_pipeline.benchmarks.published import ORIGINS

PROMPTS = [
    ("a cup on a table", "a cup, but not on a table"),
    ("actor with a hat", "actor, without a hat"),
    ("a dog and a cat", "a dog and no cat"),
]


def document(edition: str = "hub") -> dict[str, Any]:
    folder = "/workspace/datasets/cc3m/ccneg_images/cc3m_subset_images_extracted_final"
    rows: list[dict[str, Any]] = []
    for caption, negated in PROMPTS:
        own = {"caption": caption}
        row = own if edition == "hub" else {"json": own}
        rows.append(row | {"sop_data": {"negative-prompt": negated, "sop_chosen_object": "x"}})
    return {
        "image_paths": [f"{folder}/{number:09d}.jpg" for number in range(len(PROMPTS))],
        "annotations": rows,
        "num_ops": {1: [0, 1], 2: [2]},
    }


def write(root: Path, content: Any = None) -> None:
    content = document() if content is None else content
    for number in range(len(PROMPTS)):
        picture(root / ORIGINS["ccneg"].images / f"{number:09d}.jpg")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("ccneg_preprocessed/data.pkl", pickle.dumps(content, protocol=2))
        archive.writestr("ccneg_preprocessed/version", "3\n")
    (root / "ccneg/ccneg_preprocessed.pt").write_bytes(file.getvalue())
