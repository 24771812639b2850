"""SugarCrepe and SugarCrepe++: an image, its caption and a fluent hard negative; ++ adds a second
caption of the same meaning.

Hsieh et al., "SugarCrepe: Fixing hackable benchmarks for vision-language compositionality" (NeurIPS
2023), github.com/RAIVNLab/sugar-crepe. Dumpala et al., "SUGARCREPE++ Dataset: Vision-Language Model
Sensitivity to Semantic and Lexical Alterations" (NeurIPS 2024): the files of
huggingface.co/datasets/Aman-J/SugarCrepe_pp (data/) or the equal ones of
github.com/Sri-Harsha/scpp (data/). All comparisons are strict, as in the authors' code.
"""

import re
from collections.abc import Iterator

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

# Subset -> published number of cases. swap_obj had 246 before an update of the authors, and still
# has in other copies.
SUBSETS, PP_SUBSETS = (published.ORIGINS[name].cases for name in ("sugarcrepe", "sugarcrepe_pp"))
_CAPTIONS, _IMAGE = ("caption", "negative_caption"), {"filename": fields.image_name}


@published.reader
def sugarcrepe(files: published.Files, subsets: tuple[str, ...] = tuple(SUBSETS)) -> Benchmark:
    """7,511 cases of two captions.

    accuracy, the headline: over all cases. accuracy_macro: mean over subsets.
    accuracy/edit=swap etc.: over swap_att and swap_obj, the groups of the paper's tables.
    count: number of cases per subset.
    """
    return files.by_subset(subsets, SUBSETS, _subset, summary=())


@published.reader
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
    metrics = ("augmented_accuracy", "text_accuracy")
    summary = (*(f"{metric}_macro" for metric in metrics), *metrics, "original_accuracy")
    return files.by_subset(subsets, PP_SUBSETS, _pp_subset, summary=summary)


def _subset(files: published.Files, subset: str) -> Iterator[Case]:
    # keys have gaps where the authors removed cases; ids keep the authors' numbers
    for key, row in files.named(f"{subset}.json", *_CAPTIONS, **_IMAGE):
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
    captions = (row["caption"], row["negative_caption"])
    group = {"subset": subset, "edit": subset.split("_")[0]}
    return files.case(number, row["filename"], captions, group, prefix=subset, **meta)
