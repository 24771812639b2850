"""Files of the benchmark of reporting bias."""

from pathlib import Path

from tests.support.sets.files import picture, write_json

ROWS = {
    "spatial": [("controlled_images/mug.jpeg", ["A mug under a table", "A mug on a table"], 1)],
    "counting": [("count_bench/cleaned_images/0_3_cups.jpg", ["2 cups", "3 cups", "4 cups"], 1)],
    "negation": [
        ("negation_val/1.jpg", ["A cup that is NOT red", "A cup that is NOT big"], 1),
        ("negation_val/2.jpg", ["A lid that is NOT dry", "A lid that is NOT big"], 0),
    ],
    "temporal": [
        ("val2017/000000000001.jpg", ["A street after rain", "A street before rain"], 0),
        ("val2017/000000000002.jpg", ["A street after rain", "A street before rain"], 1),
    ],
}


def write(root: Path) -> None:
    folder = root / "reporting_bias" / "data" / "benchmarks"
    for subset, rows in ROWS.items():
        for name, *_ in rows:
            # the repository's folder has another name than the file says
            picture(folder / name.replace("val2017", "val_2017"))
        keys = ("filename", "caption_options", "gold_index")
        write_json(folder / f"{subset}.json", [dict(zip(keys, row, strict=True)) for row in rows])
