"""Half-truths: an image, a short caption, and the caption with a wrong or a correct detail.

Kargi et al., "Half-Truths Break Similarity-Based Retrieval" (2026): the verified and released
comparisons, huggingface.co/datasets/kbora/Half-Truths; read like github.com/kargibora/CS-CLIP
(scripts/evaluate_half_truth.py). All comparisons are strict.
"""

from collections.abc import Iterator

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case

# images_model, which wrote the details -> published number of cases
SUBSETS = published.ORIGINS["half_truths"].cases


@published.reader
def half_truths(files: published.Files, subsets: tuple[str, ...] = tuple(SUBSETS)) -> Benchmark:
    """1,437 cases: a short caption, the half-truth (a wrong detail added), and the full truth (a
    correct detail added) in meta["positive"].

    original_accuracy_macro, the headline: mean over subsets of the paper's half-truth accuracy,
      s(short) > s(half-truth). original_accuracy/subset=coco_qwen: the paper's first number.
    ordered_accuracy_macro: mean of its COR, s(full truth) > s(short) > s(half-truth).
    original_accuracy/detail=entity and /detail=relation: by the kind of wrong detail.
    count: number of cases per subset.
    The Parquet files contain the images; `images` is unused.
    """
    metrics = ("original_accuracy", "ordered_accuracy")
    summary = tuple(f"{metric}{suffix}" for suffix in ("_macro", "") for metric in metrics)
    return files.by_subset(subsets, SUBSETS, _subset, summary=summary)


def _subset(files: published.Files, subset: str) -> Iterator[Case]:
    texts = ("anchor", "half_truth", "full_truth", "triplet_type")
    packed = files.packed(f"{subset}.parquet", *texts, id=fields.anything)
    for number, packed_row in enumerate(packed):
        row = packed_row[2]
        yield Case(
            f"{subset}_{published.case_id(number, row['id'])}",
            published.row_images(packed_row, "image"),
            (row["anchor"], row["half_truth"]),
            {"subset": subset, "detail": row["triplet_type"]},
            {"positive": row["full_truth"]},
        )
