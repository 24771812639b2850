"""ImageCoDe's files."""

from pathlib import Path

from tests.support.sets.files import picture, write_json

FRAMES = tuple(range(0, 20, 2))  # numbers of frames, in whose order indices count
SETS = {
    "open-images-7_00a1": {"3": "A cup, seen from above. ", "0": "Two cups near the edge."},
    "MSR-VTT-videoTestVideo_video1-shot1_0": {"9": " The man turns to the left"},
}


def write(root: Path) -> None:
    for name in SETS:
        static = name.startswith("open-images")
        for number in range(10) if static else FRAMES:
            picture(root / "imagecode" / "image-sets" / name / f"img{number}.jpg")
    write_json(root / "imagecode" / "valid_data.json", SETS)
