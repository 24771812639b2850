"""Half-truths: an image, a short correct caption, and the same one with a wrong or a right detail.

Kargi et al., "Half-Truths Break Similarity-Based Retrieval" (2026): the comparisons that the
authors checked and released, huggingface.co/datasets/kbora/Half-Truths, read as
github.com/kargibora/CS-CLIP (scripts/evaluate_half_truth.py) does; all comparisons strict.
"""

from collections.abc import Iterator
from pathlib import Path

from vlc_jax.input_pipeline.benchmarks.published_files import (
    Origin,
    PublishedFiles,
    case_id,
    check_subsets,
    packed_image,
)
from vlc_jax.input_pipeline.case import Average, Benchmark, Case

SUBSETS = {  # images and the language model of the details -> published number of cases
    "coco_qwen": 509,
    "coco_mistral": 454,
    "cc3m_qwen": 474,
}
ORIGIN = Origin(
    protocol="triplet",
    folder="half_truths",
    files=tuple(f"{subset}.parquet" for subset in SUBSETS),
    images="half_truths",
    source="huggingface.co/datasets/kbora/Half-Truths (data/)",
    licence="see the page of the data set",
    cases=SUBSETS,
    overlap="COCO; CC3M",
)


def half_truths(
    root: str | Path = "",
    count: int | None = None,
    folder: str | Path | None = None,
    images: str | Path | None = None,
    subsets: tuple[str, ...] = tuple(SUBSETS),
) -> Benchmark:
    """1,437 cases of a short caption, of the half-truth that a wrong detail makes of it, and of the
    full truth in meta["positive"].

    original_accuracy_macro, the headline: the mean over subsets of the paper's half-truth accuracy,
      s(short) > s(half-truth). original_accuracy/subset=coco_qwen: the one that it prints first.
    ordered_accuracy_macro: of its COR, s(full truth) > s(short) > s(half-truth).
    original_accuracy/detail=entity and /detail=relation: by what is wrong.
    count: of cases of each subset.
    Images are inside the Parquet files; `images` has no use.
    """
    files = PublishedFiles(ORIGIN, root, folder, images)
    check_subsets(subsets, SUBSETS)
    cases = (case for subset in subsets for case in _subset(files, subset))
    metrics = ("original_accuracy", "ordered_accuracy")
    summary = (*(f"{metric}_macro" for metric in metrics), *metrics)
    averages = {"macro": Average(("subset",))}
    return files.benchmark("half_truths", cases, count, averages, summary=summary)


def _subset(files: PublishedFiles, subset: str) -> Iterator[Case]:
    fields = ("id", "anchor", "half_truth", "full_truth", "triplet_type")
    places = files.packed(f"{subset}.parquet", *fields)
    rows = files.check(f"{subset}.parquet", [row for _, _, row in places], fields)
    for number, (place, row) in enumerate(zip(places, rows, strict=True)):
        yield Case(
            f"{subset}_{case_id(number, row['id'])}",
            (packed_image(place, "image"),),
            (row["anchor"], row["half_truth"]),
            {"subset": subset, "detail": row["triplet_type"]},
            {"positive": row["full_truth"]},
        )


READERS = {"half_truths": (half_truths, ORIGIN)}
