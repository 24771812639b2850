"""NegBench's files."""

from pathlib import Path

from tests.support.sets.files import picture, write_table
from vlc_jax.input_pipeline.benchmarks.negbench import FILES, IMAGES, RETRIEVAL_FILES

TEMPLATES = ("positive", "negative", "hybrid")
AUTHORS = "data/coco/images/val2017"  # where the images are on the authors' machine


def write(root: Path) -> None:
    folder = root / "negbench" / "images"
    for subset, file in FILES.items():
        picture(root / IMAGES[subset] / "000007.jpg")
        rows = [
            {
                "": n,
                "image_path": f"{AUTHORS}/000007.jpg",
                "correct_answer": 0,
                "correct_answer_template": template,
                **{f"caption_{k}": f'There is "a" {template} cup, no pan {k}.' for k in range(4)},
            }
            for n, template in enumerate(TEMPLATES)
        ]
        write_table(folder / file, rows)
    for negated, file in RETRIEVAL_FILES.items():
        rows = []
        for n in range(6):
            picture(root / "coco" / "val2017" / f"{n:012d}.jpg")
            captions = [f"A cup {n} beside a pot {k}." for k in range(5)]
            if negated:
                captions = [f"No pan is there. {caption}" for caption in captions]
            rows.append(
                {"image_id": n, "filepath": f"{AUTHORS}/{n:012d}.jpg", "captions": captions}
            )
        write_table(folder / file, rows)
