"""VisMin's files."""

from pathlib import Path

from tests.support.sets.files import picture_bytes, write_parquet, write_table
from vlc_jax.input_pipeline.benchmarks.vismin import SOLUTION, SWAPPED

CATEGORIES = ("object", "attribute", "relation", "counting")


def write(root: Path, edition: str = "2025") -> None:
    """edition 2024: half of the captions are exchanged, and a table lists them."""
    rows, solution = [], []
    for category in CATEGORIES:
        for n, (rule, swapped) in enumerate(SWAPPED.items()):
            texts = [f"{category} {n}: a cup", f"{category} {n}: a pan"]  # of image 0 and 1
            texts = texts[::-1] if swapped and edition == "2024" else texts
            images = {
                f"image_{k}": {"bytes": picture_bytes(f"{category}{n}{k}"), "path": None}
                for k in (0, 1)
            }
            rows.append(
                {"id": n, "text_0": texts[0], "text_1": texts[1], "category": category, **images}
            )
            # Numbers begin anew with each category, in the authors' table too.
            solution.append({"idx": n, "Text": rule, "Image": "", "category": category})
    write_parquet(root / "vismin" / "0000.parquet", rows[:5])
    write_parquet(root / "vismin" / "0001.parquet", rows[5:])
    if edition == "2024":
        write_table(root / "vismin" / SOLUTION, solution)
