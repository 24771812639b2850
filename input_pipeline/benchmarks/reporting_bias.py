"""Reasoning that captions of the web seldom mention: places, number, negation and time.

Kamath et al., "Scale Can't Overcome Pragmatics: The Impact of Reporting Bias on Vision-Language
Reasoning" (TACL 2026); read like eval/clip_eval.py of github.com/amitakamath/reporting_bias. Places
are those of What'sUp A, numbers those of CountBench, negations those of attributes of VAW, and
times ("before", "after") the temporal part of ControlledImCaps (EMNLP 2023), which is not published
elsewhere.
"""

from collections.abc import Iterator
from typing import Any

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case

SUBSETS = published.ORIGINS["reporting_bias"].cases


@published.reader
def reporting_bias(files: published.Files, subsets: tuple[str, ...] = tuple(SUBSETS)) -> Benchmark:
    """Images with two to nine captions, one of them correct, in lower case as in the authors' code.

    accuracy/subset=spatial, counting, negation, temporal: as in the paper; accuracy_macro, the
      headline: their mean. The authors' argmax takes the first of equal options in their order.
    count: number of cases per subset.
    """
    return files.by_subset(subsets, SUBSETS, _cases)


def _cases(files: published.Files, subset: str) -> Iterator[Case]:
    kinds: dict[str, Any] = {"filename": fields.image_name, "caption_options": fields.texts}
    # the file says val2017/, the repository's folder is val_2017
    coco = files.image_folder("val_2017", "val2017")
    for number, row in enumerate(
        files.objects(f"{subset}.json", **kinds, gold_index=fields.anything)
    ):
        texts = [text.lower() for text in row["caption_options"]]
        captions = files.correct_first(number, texts, "gold_index", row["gold_index"])
        name = row["filename"].replace("val2017/", f"{coco}/")
        yield files.case(number, name, captions, {"subset": subset}, prefix=subset)
