"""The files of NaturalBench-Retrieval."""

from pathlib import Path

from tests.support.sets.files import picture, write_json


def write(root: Path) -> None:
    folder = root / "NaturalBench-Retrieval"
    rows = []
    for index in range(3):
        names = [picture(folder / "images" / f"{2 * index + k}.jpg").name for k in (0, 1)]
        rows.append(
            {
                "index": index,
                "image_0": names[0],
                "image_1": names[1],
                "caption_0": f"A dog sits beside door {index}.",
                "caption_1": f"A dog stands beside door {index}.",
            }
        )
    write_json(folder / "metadata.json", rows)
