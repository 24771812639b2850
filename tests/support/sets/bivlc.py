"""BiVLC's file."""

from pathlib import Path

from tests.support.sets.files import picture_bytes, write_parquet

TYPES = [("replace", "att"), ("swap", "obj"), ("add", "att"), ("replace", "rel")]


def write(root: Path) -> None:
    rows = [
        {
            "image": {"bytes": picture_bytes(f"{n}.jpg"), "path": f"{n}.jpg"},
            "caption": f"{n} cups on a table",
            "negative_caption": f"a table on {n} cups",
            "negative_image": {"bytes": picture_bytes(f"{n}_made.jpg"), "path": None},
            "type": kind,
            "subtype": subtype,
        }
        for n, (kind, subtype) in enumerate(TYPES)
    ]
    write_parquet(root / "bivlc" / "data" / "test-00000-of-00001.parquet", rows)
