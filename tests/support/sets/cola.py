"""COLA's files."""

from pathlib import Path

from tests.support.sets.files import picture, write_json


def write(root: Path) -> None:
    for name, part in (("11.jpg", "VG_100K"), ("12.jpg", "VG_100K_2")):
        picture(root / "vg" / part / name)
    address = "https://example.org/vg"
    write_json(
        root / "cola" / "COLA_multiobjects_matching_benchmark.json",
        [
            [f"{address}/11.jpg", "tall tree by a hut", f"{address}/12.jpg", "hut by a tall tree"],
            [
                f"{address}/12.jpg",
                "red hut, white door",
                f"{address}/11.jpg",
                "white hut, red door",
            ],
        ],
    )
