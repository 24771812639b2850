"""SugarCrepe++'s files."""

from pathlib import Path

from tests.support.sets.files import picture, write_json
from vlc_jax.input_pipeline.benchmarks.sugarcrepe import PP_SUBSETS


def write(root: Path) -> None:
    for subset in PP_SUBSETS:
        rows = []
        for number in (0, 2):  # ids have gaps, as in swap_obj
            name = f"{number:012d}.jpg"
            picture(root / "coco" / "val2017" / name)
            rows.append(
                {
                    "id": number,
                    "filename": name,
                    "caption": f"A dog {subset} chases a cat {number}.",
                    "caption2": f"A cat {subset} is chased by a dog {number}.",
                    "negative_caption": f"A cat {subset} chases a dog {number}.",
                }
            )
        write_json(root / "sugarcrepe_pp" / f"{subset}.json", rows)
