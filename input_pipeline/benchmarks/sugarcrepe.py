"""SugarCrepe and SugarCrepe++: an image, its caption and a fluent hard negative; ++ adds a second
caption of the same meaning.

Hsieh et al., "SugarCrepe: Fixing hackable benchmarks for vision-language compositionality" (NeurIPS
2023), github.com/RAIVNLab/sugar-crepe. Dumpala et al., "SUGARCREPE++ Dataset: Vision-Language Model
Sensitivity to Semantic and Lexical Alterations" (NeurIPS 2024): the files of
huggingface.co/datasets/Aman-J/SugarCrepe_pp (data/) or the equal ones of
github.com/Sri-Harsha/scpp (data/). All comparisons are strict, as in the authors' code.
"""

import dataclasses
import re
from collections.abc import Iterator

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

SUBSETS = {  # subset -> published number of cases
    "add_att": 692,
    "add_obj": 2062,
    "replace_att": 788,
    "replace_obj": 1652,
    "replace_rel": 1406,
    "swap_att": 666,
    # 246 before an update of the authors, and still in other copies
    "swap_obj": 245,
}
PP_SUBSETS = {subset: n for subset, n in SUBSETS.items() if not subset.startswith("add_")}
_CAPTIONS, _IMAGE = ("caption", "negative_caption"), {"filename": fields.image_name}
ORIGIN = published.Origin(
    protocol="choice",
    folder="sugar_crepe",
    files=tuple(f"{subset}.json" for subset in SUBSETS),
    images="coco/val2017",
    source="github.com/RAIVNLab/sugar-crepe (data/) and cocodataset.org (val2017)",
    licence="MIT",
    cases=SUBSETS,
    overlap="COCO val2017",
)
PP_ORIGIN = dataclasses.replace(
    ORIGIN,
    protocol="triplet",
    folder="sugarcrepe_pp",
    files=tuple(f"{subset}.json" for subset in PP_SUBSETS),
    source="huggingface.co/datasets/Aman-J/SugarCrepe_pp (data/) and cocodataset.org (val2017)",
    licence="CC BY 4.0",
    cases=PP_SUBSETS,
)


@published.reader(ORIGIN)
def sugarcrepe(files: published.Files, subsets: tuple[str, ...] = tuple(SUBSETS)) -> Benchmark:
    """7,511 cases of two captions.

    accuracy, the headline: over all cases. accuracy_macro: mean over subsets.
    accuracy/edit=swap etc.: over swap_att and swap_obj, the groups of the paper's tables.
    count: number of cases per subset.
    """
    published.check_subsets(subsets, SUBSETS)
    cases = (case for subset in subsets for case in _subset(files, subset))
    return files.benchmark(cases, published.SUBSET_MACRO)


@published.reader(PP_ORIGIN)
def sugarcrepe_pp(
    files: published.Files, subsets: tuple[str, ...] = tuple(PP_SUBSETS)
) -> Benchmark:
    """4,757 cases of a caption, a negative, and a second caption in meta["positive"].

    augmented_accuracy_macro, the headline: mean over subsets of the paper's image-to-text task
      (ITT), where both captions must beat the negative. augmented_accuracy: over cases.
    text_accuracy_macro, text_accuracy: the same for its text-only task (TOT).
    original_accuracy: first caption only, as in SugarCrepe.
    count: number of cases per subset.
    """
    published.check_subsets(subsets, PP_SUBSETS)
    cases = (case for subset in subsets for case in _pp_subset(files, subset))
    metrics = ("augmented_accuracy", "text_accuracy")
    summary = (*(f"{metric}_macro" for metric in metrics), *metrics, "original_accuracy")
    return files.benchmark(cases, published.SUBSET_MACRO, summary=summary)


def _subset(files: published.Files, subset: str) -> Iterator[Case]:
    document = files.json(f"{subset}.json")
    if not isinstance(document, dict):
        raise DataError(f"{files.folder / subset}.json is no object of cases; {ORIGIN.how_to_get}")
    rows = files.check(f"{subset}.json", list(document.values()), _CAPTIONS, **_IMAGE)
    # keys have gaps where the authors removed cases; ids keep the authors' numbers
    for key, row in zip(document, rows, strict=True):
        if not re.fullmatch("[0-9]{1,9}", key):
            raise DataError(f"{files.last_file}: keys of cases are numbers; got {key!r:.80}")
        yield _case(files, subset, int(key), row)


def _pp_subset(files: published.Files, subset: str) -> Iterator[Case]:
    rows = files.objects(f"{subset}.json", *_CAPTIONS, "caption2", **_IMAGE)
    for number, row in enumerate(rows):
        yield _case(files, subset, number, row, positive=row["caption2"])


def _case(
    files: published.Files, subset: str, number: int, row: dict[str, str], **meta: str
) -> Case:
    image = row["filename"]
    return Case(
        f"{subset}_{published.case_id(number, image)}",
        (files.image(image),),
        (row["caption"], row["negative_caption"]),
        {"subset": subset, "edit": subset.split("_")[0]},
        {"record": image, **meta},
    )
