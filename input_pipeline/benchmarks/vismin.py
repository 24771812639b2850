"""VisMin: two images and two captions that differ in an object, attribute, relation or number.

Awal et al., "VisMin: Visual Minimal-Change Understanding" (NeurIPS 2024): the pairs of
huggingface.co/datasets/mair-lab/vismin-bench, scored like github.com/rabiulcste/vismin
(vismin-bench/) since January 2025: text_0 belongs to image_0. In about half of the rows of the
files before, the first caption belonged to the *second* image, and a table of the authors,
sim_solution.csv, listed them: edition="2024".
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.benchmarks import published
from vlc_jax.input_pipeline.case import Average, Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

EDITIONS = ("2025", "2024")
SOLUTION = "sim_solution.csv"  # of edition 2024; deleted by the authors
# Condition of the text score in the table (text i, image j) -> texts are swapped.
SWAPPED = {"T0_I0 > T1_I0 & T1_I1 > T0_I1": False, "T1_I0 > T0_I0 & T0_I1 > T1_I1": True}


@published.reader
def vismin(files: published.Files, edition: str = "2025") -> Benchmark:
    """2,084 cases of two images and two captions, in matching order.

    group_score, the headline, text_score and image_score as in Winoground;
    group_score/category=counting etc., the paper's numbers; _macro: means over the four
    categories.
    The Parquet files contain the images; `images` is unused.

    edition: "2025", the files and the metric since January 2025; "2024": those before, whose
      captions sim_solution.csv assigns to their images.
    """
    if edition not in EDITIONS:
        raise ValueError(f"edition is one of {EDITIONS}; got {edition!r}")
    averages = {"macro": Average(("category",))}
    summary = ("group_score_macro", "pair_accuracy_macro", "image_score_macro", "group_score")
    if edition == "2024":
        return files.benchmark(_cases_of_2024(files), averages, summary=summary)
    cases = (_case(n, packed) for n, packed in enumerate(files.packed("*.parquet", *_FIELDS)))
    benchmark = files.benchmark(cases, averages, summary=summary)
    if not files.has(SOLUTION):
        return benchmark
    note = (
        f"{SOLUTION} is not used: it belongs to the files before January 2025 (edition='2024'), "
        "and with those files and this edition half of the captions are exchanged"
    )
    return published.amended(benchmark, note)


_FIELDS = ("text_0", "text_1", "category")


def _case(
    number: int, packed: tuple[Path, int, dict[str, Any]], *, is_swapped: bool = False
) -> Case:
    row = packed[2]
    texts = (row["text_0"], row["text_1"])
    return Case(
        published.case_id(number, row["category"]),
        published.row_images(packed, "image_0", "image_1"),
        texts[::-1] if is_swapped else texts,
        {"category": row["category"]},
    )


def _cases_of_2024(files: published.Files) -> Iterator[Case]:
    rows = files.packed("*.parquet", *_FIELDS)
    solution = files.table(SOLUTION, "Text", "category")
    if len(rows) != len(solution):
        raise DataError(
            f"{files.folder / SOLUTION} has {len(solution):,} rows and *.parquet {len(rows):,}; "
            f"they belong together row by row"
        )
    # joined by position, the only link; the category is a check of it
    for number, (packed, solved) in enumerate(zip(rows, solution, strict=True)):
        row = packed[2]
        if solved["Text"] not in SWAPPED or solved["category"] != row["category"]:
            raise DataError(
                f"{files.folder / SOLUTION}: row {number} is {solved['Text']!r} of the category "
                f"{solved['category']!r}; expected one of {list(SWAPPED)}, and "
                f"{row['category']!r}, as in {packed[0].name}"
            )
        yield _case(number, packed, is_swapped=SWAPPED[solved["Text"]])
