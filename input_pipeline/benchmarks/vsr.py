"""VSR: a caption of two objects' spatial relation, true or false of an image of COCO.

Liu et al., "Visual Spatial Reasoning" (TACL 2023), github.com/cambridgeltl/visual-spatial-reasoning
(data/splits); the files since March 2023, which have other cases than the first version's.
"""

import functools
import re
from collections.abc import Iterator
from typing import Any

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

CASES = published.ORIGINS["vsr"].cases  # subset, a split of the authors -> its test cases
# the only verbs of its captions -> their negations
_VERBS = {
    "is": "is not",
    "are": "are not",
    "contains": "does not contain",
    "consists of": "does not consist of",
    "has as a part": "does not have as a part",
}
_VERB = re.compile(rf"\b(?:{'|'.join(_VERBS)})\b")
# InstructBLIP's question
QUESTION = "Based on the image, is this statement true or false? {}"


@published.reader
def vsr(
    files: published.Files,
    subsets: tuple[str, ...] = tuple(CASES),
    part: str = "test",
    flat: bool = False,
) -> Benchmark:
    """Each caption against its negation, "The cat is behind the laptop." and "The cat is not behind
    the laptop."; the right one is first.

    accuracy/subset=random, /subset=zeroshot, the headlines: of the authors' two splits, which share
      cases. accuracy/relation=behind: by relation; accuracy/label=true, /label=false.
    The negations are ours: the authors classify a caption as true or false, and similarities have
      no threshold for that. The option protocol="keywords" asks a generative model whether the
      statement is true or false.
    part: file of a split, test, dev or train.   flat: the images lie in one folder, as in the
      authors' archive vsr_images.zip, and not in coco/train2017 and coco/val2017.
    count: number of cases per subset.
    """
    published.check_options("part", [part], ("test", "dev", "train"))
    read = functools.partial(_cases, part=part, flat=flat)
    summary = (*(f"accuracy/subset={subset}" for subset in subsets), "accuracy")
    return files.by_subset(subsets, CASES, read, averages={}, summary=summary)


def _cases(files: published.Files, subset: str, part: str, flat: bool) -> Iterator[Case]:
    name = f"{subset}/{part}.jsonl"
    rows = files.json_lines(
        name, "image_link", "caption", "relation", image=fields.image_name, label=fields.anything
    )
    for number, row in enumerate(rows):
        where = f"{files.folder / name}: case {number}"
        verb = _VERB.search(row["caption"])
        if not verb:
            raise DataError(
                f"{where} has one of the verbs {', '.join(_VERBS)}; got {row['caption']!r:.80}"
            )
        if isinstance(row["label"], bool) or row["label"] not in (0, 1):
            raise DataError(f"{where}: label is 0 or 1; got {fields.shown(row['label'])}")
        image = row["image"] if flat else _in_coco(row, where)
        caption = row["caption"]
        captions = caption, f"{caption[: verb.start()]}{_VERBS[verb[0]]}{caption[verb.end() :]}"
        # the correct caption first
        order, label = (1, "true") if row["label"] else (-1, "false")
        group = {"subset": subset, "relation": row["relation"], "label": label}
        short = {"question": QUESTION.format(caption), "answers": ("true", "false")[::order]}
        yield files.case(number, image, captions[::order], group, prefix=subset, short=short)


def _in_coco(row: dict[str, Any], where: str) -> str:
    """The image as "train2017/NAME.jpg", from its address."""
    folder = row["image_link"].rsplit("/", 2)[-2:][0]
    if folder not in ("train2017", "val2017"):
        raise DataError(
            f"{where}: image_link is the address of an image of train2017 or val2017; got "
            f"{row['image_link']!r:.80}"
        )
    return f"{folder}/{row['image']}"
