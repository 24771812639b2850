"""SugarCrepe: an image, its caption and a fluent hard negative, in seven subsets.

Hsieh et al., "SugarCrepe: Fixing hackable benchmarks for vision-language compositionality" (NeurIPS
2023), github.com/RAIVNLab/sugar-crepe; all comparisons are strict, as in its code.
"""

from vlc_jax.input_pipeline.benchmarks.published_files import (
    Origin,
    PublishedFiles,
    case_id,
    check_subsets,
    published,
)
from vlc_jax.input_pipeline.case import Average, Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

SUBSETS = {  # subset -> published number of cases
    "add_att": 692,
    "add_obj": 2062,
    "replace_att": 788,
    "replace_obj": 1652,
    "replace_rel": 1406,
    "swap_att": 666,
    "swap_obj": 245,  # 246 before an update of the authors, and still in other copies
}
ORIGIN = Origin(
    protocol="choice",
    folder="sugar_crepe",
    files=tuple(f"{subset}.json" for subset in SUBSETS),
    images="coco/val2017",
    source="github.com/RAIVNLab/sugar-crepe (data/) and cocodataset.org (val2017)",
    licence="MIT",
    cases=SUBSETS,
    overlap="COCO val2017",
)


@published(ORIGIN)
def sugarcrepe(files: PublishedFiles, subsets: tuple[str, ...] = tuple(SUBSETS)) -> Benchmark:
    """7,511 cases of two captions.

    accuracy, the headline: over all cases. accuracy_macro: mean over subsets.
    accuracy/edit=swap etc.: over swap_att and swap_obj, the groups of the paper's tables.
    count: number of cases per subset.
    """
    check_subsets(subsets, SUBSETS)
    cases = (case for subset in subsets for case in _subset(files, subset))
    return files.benchmark("sugarcrepe", cases, {"macro": Average(("subset",))})


def _subset(files: PublishedFiles, subset: str) -> list[Case]:
    document = files.json(f"{subset}.json")
    if not isinstance(document, dict):
        raise DataError(f"{files.folder / subset}.json is no object of cases; {ORIGIN.how_to_get}")
    fields = ("filename", "caption", "negative_caption")
    rows = files.check(f"{subset}.json", list(document.values()), fields)
    return [
        Case(
            f"{subset}_{case_id(int(key), row['filename'])}",
            (files.image(row["filename"]),),
            (row["caption"], row["negative_caption"]),
            {"subset": subset, "edit": subset.split("_")[0]},
            {"record": row["filename"]},
        )
        for key, row in zip(document, rows, strict=True)
    ]


READERS = {"sugarcrepe": (sugarcrepe, ORIGIN)}
