"""VisMin: two images and two captions that differ in an object, attribute, relation or number.

Awal et al., "VisMin: Visual Minimal-Change Understanding" (NeurIPS 2024): the pairs of
huggingface.co/datasets/mair-lab/vismin-bench, scored like github.com/rabiulcste/vismin
(vismin-bench/) since January 2025: text_0 belongs to image_0.
"""

from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.benchmarks import published
from vlc_jax.input_pipeline.case import Average, Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

SOLUTION = "sim_solution.csv"  # the authors deleted it with the files of before


@published.reader
def vismin(files: published.Files) -> Benchmark:
    """2,084 cases of two images and two captions, in matching order.

    group_score, the headline, text_score and image_score as in Winoground;
    group_score/category=counting etc., the paper's numbers; _macro: means over the four
    categories.
    The Parquet files contain the images; `images` is unused.
    """
    if files.has(SOLUTION):
        raise DataError(
            f"{files.folder / SOLUTION} belongs to the files of before January 2025, where half of "
            "the rows have their captions exchanged: download the files anew, and delete it"
        )
    summary = ("group_score_macro", "pair_accuracy_macro", "image_score_macro", "group_score")
    rows = files.packed("*.parquet", "text_0", "text_1", "category")
    cases = (_case(number, packed) for number, packed in enumerate(rows))
    return files.benchmark(cases, {"macro": Average(("category",))}, summary=summary)


def _case(number: int, packed: tuple[Path, int, dict[str, Any]]) -> Case:
    row = packed[2]
    return Case(
        published.case_id(number, row["category"]),
        published.row_images(packed, "image_0", "image_1"),
        (row["text_0"], row["text_1"]),
        {"category": row["category"]},
    )
