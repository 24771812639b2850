"""BLA: two correct and two wrong sentences per image, in active and passive voice, coordinated, or
with relative clauses.

Chen et al., "The BLA Benchmark: Investigating Basic Language Abilities of Pre-Trained Multimodal
Models" (EMNLP 2023), github.com/shin-ee-chen/BLA. Partly unverified: only the file of relative
clauses was available; the format of the other two is from the authors' and other evaluations, and
the numbers of cases are unknown. A case is a correct and a wrong sentence, as in
github.com/kargibora/CS-CLIP, compared strictly; the authors rank all four.
"""

from collections.abc import Iterator
from typing import Any

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

SUBSETS = ("active_passive", "coordination", "relative_clause")
# The false sentence of a number has the words of the true one in another role: only these two
# compare like with like.
PAIRS = (("True1", "False1"), ("True2", "False2"))


@published.reader
def bla(files: published.Files, subsets: tuple[str, ...] = SUBSETS) -> Benchmark:
    """Two cases of two captions per group of four sentences.

    accuracy_macro, the headline: mean over subsets. accuracy/subset=coordination etc.: per subset.
    four_accuracy: both cases of a group are right; four_accuracy_macro: mean over subsets.
    count: total number of cases. The authors' CLIP script reads the first group of an image alone.
    """
    summary = ("accuracy_macro", "four_accuracy_macro", "accuracy")
    return files.by_subset(subsets, SUBSETS, _subset, together=("four",), summary=summary)


def _subset(files: published.Files, subset: str) -> Iterator[Case]:
    name = f"{subset}_captions.json"
    for number, row in enumerate(
        files.objects(name, image_id=fields.image_id, caption_group=fields.anything)
    ):
        image = f"{row['image_id']}.jpg"
        groups = _groups(f"{files.folder / name}: case {number}", row["caption_group"])
        for index, group in enumerate(groups):
            four = f"{subset}_{published.case_id(number, image, index)}"
            for pair, (right, wrong) in enumerate(PAIRS, 1):
                yield Case(
                    f"{four}_{pair}",
                    (files.image(image),),
                    (group[right], group[wrong]),
                    {"subset": subset, "four": four},
                    {"record": image},
                )


def _groups(where: str, groups: Any) -> list[dict[str, str]]:
    sentences = [sentence for pair in PAIRS for sentence in pair]
    if not isinstance(groups, list) or not all(
        isinstance(group, dict) and isinstance(group.get(sentence), str)
        for group in groups
        for sentence in sentences
    ):
        raise DataError(
            f"{where} needs a list of groups with the texts {sentences} in 'caption_group'; got "
            f"{groups!r:.80}"
        )
    return groups
