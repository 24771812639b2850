"""VisMin's files."""

from pathlib import Path

from tests.support.sets.files import picture_bytes, write_parquet

CATEGORIES = ("object", "attribute", "relation", "counting")


def write(root: Path) -> None:
    rows = []
    for category in CATEGORIES:
        for n in (0, 1):  # numbers begin anew with each category
            images = {
                f"image_{k}": {"bytes": picture_bytes(f"{category}{n}{k}"), "path": None}
                for k in (0, 1)
            }
            texts = {"text_0": f"{category} {n}: a cup", "text_1": f"{category} {n}: a pan"}
            rows.append({"id": n, "category": category, **texts, **images})
    write_parquet(root / "vismin" / "0000.parquet", rows[:5])
    write_parquet(root / "vismin" / "0001.parquet", rows[5:])
