"""VisMin: two images and two captions that differ in an object, attribute, relation or number.

Awal et al., "VisMin: Visual Minimal-Change Understanding" (NeurIPS 2024): the pairs of
huggingface.co/datasets/mair-lab/vismin-bench, read like github.com/rabiulcste/vismin
(vismin-bench/). In about half of the rows the first caption belongs to the *second* image: the
authors' table sim_solution.csv lists them, and without it they would count as errors.
"""

from collections.abc import Iterator

from vlc_jax.input_pipeline.benchmarks import published
from vlc_jax.input_pipeline.case import Average, Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

SOLUTION = "sim_solution.csv"
# Condition of the text score in the table (text i, image j) -> texts are swapped.
SWAPPED = {"T0_I0 > T1_I0 & T1_I1 > T0_I1": False, "T1_I0 > T0_I0 & T0_I1 > T1_I1": True}
ORIGIN = published.Origin(
    protocol="pairs",
    folder="vismin",
    files=("*.parquet", SOLUTION),
    images="vismin",
    source=(
        "huggingface.co/datasets/mair-lab/vismin-bench (revision refs/convert/parquet) and "
        "github.com/rabiulcste/vismin (vismin-bench/solutions)"
    ),
    licence="CC BY 4.0",
    cases=2_084,
    overlap="COCO, whose images and captions some cases begin with",
)


@published.reader(ORIGIN)
def vismin(files: published.Files) -> Benchmark:
    """2,084 cases of two images and two captions, in matching order.

    group_score, the headline, text_score and image_score as in Winoground;
    group_score/category=counting etc., the paper's numbers; _macro: means over the four
    categories.
    The Parquet files contain the images; `images` is unused.
    """
    averages = {"macro": Average(("category",))}
    summary = ("group_score_macro", "pair_accuracy_macro", "image_score_macro", "group_score")
    return files.benchmark(_cases(files), averages, summary=summary)


def _cases(files: published.Files) -> Iterator[Case]:
    rows = files.packed("*.parquet", "text_0", "text_1", "category")
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
        texts = (row["text_0"], row["text_1"])
        yield Case(
            published.case_id(number, row["category"]),
            published.row_images(packed, "image_0", "image_1"),
            texts[::-1] if SWAPPED[solved["Text"]] else texts,
            {"category": row["category"]},
        )
