"""SugarCrepe's files."""

from pathlib import Path

from tests.support.sets.files import picture, write_json
from vlc_jax.input_pipeline.benchmarks.sugarcrepe import SUBSETS


def write(root: Path) -> None:
    for subset in SUBSETS:
        entries = {}
        for key in ("0", "2"):  # keys have gaps, as in swap_obj
            name = f"{int(key):012d}.jpg"
            picture(root / "coco" / "val2017" / name)
            entries[key] = {
                "filename": name,
                "caption": f"A cat sits on its legs {subset}.",
                "negative_caption": f"A cat sits on the plant {subset} {key}.",
            }
        write_json(root / "sugar_crepe" / f"{subset}.json", entries)
