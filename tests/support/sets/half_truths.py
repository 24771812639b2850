"""Half-truths' files."""

from pathlib import Path

from tests.support.sets.files import picture_bytes, write_parquet
from vlc_jax.input_pipeline.benchmarks.half_truths import SUBSETS

ROWS = [
    {
        "id": f"ht-{n}",
        "anchor": f"a cup {n}",
        "half_truth": f"a cup {n} {wrong}",
        "full_truth": f"a cup {n} {right}",
        "triplet_type": kind,
    }
    for n, (kind, wrong, right) in enumerate(
        [
            ("entity", "and a pan", "and a pot"),
            ("relation", "under a shelf", "on a shelf"),
            ("entity", "and a red hat", "and a blue hat"),
        ]
    )
]


def write(root: Path) -> None:
    for subset in SUBSETS:
        rows = [row | {"image": {"bytes": picture_bytes(row["id"]), "path": None}} for row in ROWS]
        write_parquet(root / "half_truths" / f"{subset}.parquet", rows)
