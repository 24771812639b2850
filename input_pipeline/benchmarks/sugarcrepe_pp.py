"""SugarCrepe++: an image with two captions of the same meaning, and a hard negative.

Dumpala et al., "SUGARCREPE++ Dataset: Vision-Language Model Sensitivity to Semantic and Lexical
Alterations" (NeurIPS 2024): the files of huggingface.co/datasets/Aman-J/SugarCrepe_pp (data/) or
the equal ones of github.com/Sri-Harsha/scpp (data/); all comparisons are strict, as there.
"""

from collections.abc import Iterator

from vlc_jax.input_pipeline.benchmarks.published_files import (
    Origin,
    PublishedFiles,
    case_id,
    check_subsets,
    published,
)
from vlc_jax.input_pipeline.case import Average, Benchmark, Case

SUBSETS = {  # subset -> published number of cases; SugarCrepe's without the add_ subsets
    "replace_att": 788,
    "replace_obj": 1652,
    "replace_rel": 1406,
    "swap_att": 666,
    "swap_obj": 245,
}
ORIGIN = Origin(
    protocol="triplet",
    folder="sugarcrepe_pp",
    files=tuple(f"{subset}.json" for subset in SUBSETS),
    images="coco/val2017",
    source="huggingface.co/datasets/Aman-J/SugarCrepe_pp (data/) and cocodataset.org (val2017)",
    licence="CC BY 4.0",
    cases=SUBSETS,
    overlap="COCO val2017",
)


@published(ORIGIN)
def sugarcrepe_pp(files: PublishedFiles, subsets: tuple[str, ...] = tuple(SUBSETS)) -> Benchmark:
    """4,757 cases of a caption, a negative, and a second caption in meta["positive"].

    augmented_accuracy_macro, the headline: mean over subsets of the paper's image-to-text task
      (ITT), where both captions must beat the negative. augmented_accuracy: over cases.
    text_accuracy_macro, text_accuracy: the same for its text-only task (TOT).
    original_accuracy: first caption only, as in SugarCrepe.
    count: number of cases per subset.
    """
    check_subsets(subsets, SUBSETS)
    cases = (case for subset in subsets for case in _subset(files, subset))
    metrics = ("augmented_accuracy", "text_accuracy")
    macros = tuple(f"{metric}_macro" for metric in metrics)
    summary = (*macros, *metrics, "original_accuracy")
    averages = {"macro": Average(("subset",))}
    return files.benchmark("sugarcrepe_pp", cases, averages, summary=summary)


def _subset(files: PublishedFiles, subset: str) -> Iterator[Case]:
    fields = ("filename", "caption", "caption2", "negative_caption")
    for number, row in enumerate(files.objects(f"{subset}.json", *fields)):
        yield Case(
            f"{subset}_{case_id(number, row['filename'])}",
            (files.image(row["filename"]),),
            (row["caption"], row["negative_caption"]),
            {"subset": subset, "edit": subset.split("_")[0]},
            {"record": row["filename"], "positive": row["caption2"]},
        )


READERS = {"sugarcrepe_pp": (sugarcrepe_pp, ORIGIN)}
