"""ColorSwap's files."""

from pathlib import Path

from tests.support.sets.files import picture, picture_bytes, write_json, write_parquet

ROWS = [
    {
        "id": n,
        "caption_1": f"a red hat on a blue bench {n}",
        "caption_2": f"a blue hat on a red bench {n}",
        "image_1": f"images/img_{n}_1.png",
        "image_2": f"images/img_{n}_2.png",
        "image_source": ("midjourney", "dalle3")[n % 2],
        "caption_source": "human",
    }
    for n in range(3)
]


def write(root: Path) -> None:
    for row in ROWS:
        for column in ("image_1", "image_2"):
            picture(root / "colorswap" / row[column])
    write_json(root / "colorswap" / "test.json", ROWS)


def write_packed(root: Path) -> None:
    """The same, as Hugging Face packs it."""
    rows = [
        row
        | {
            column: {"bytes": picture_bytes(Path(row[column]).name), "path": None}
            for column in ("image_1", "image_2")
        }
        for row in ROWS
    ]
    write_parquet(root / "colorswap" / "test-00000-of-00001.parquet", rows)
