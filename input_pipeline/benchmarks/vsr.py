"""VSR: a caption of two objects' spatial relation, true or false of an image of COCO.

Liu et al., "Visual Spatial Reasoning" (TACL 2023), github.com/cambridgeltl/visual-spatial-reasoning
(data/splits); the files since March 2023, which have other cases than the first version's.
"""

import re
from collections.abc import Iterator
from typing import Any

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

CASES = {"random": 2_195, "zeroshot": 1_222}  # subset, a split of the authors -> its test cases
ORIGIN = published.Origin(
    protocol="choice",
    folder="vsr/data/splits",
    files=tuple(f"{subset}/test.jsonl" for subset in CASES),
    images="coco",
    source="github.com/cambridgeltl/visual-spatial-reasoning (data/splits) and cocodataset.org "
    "(train2017, val2017)",
    licence="Apache-2.0",
    cases=CASES,
    overlap="COCO train2017 and val2017",
)
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


@published.reader(ORIGIN)
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
    published.check_subsets(subsets, CASES)
    published.check_options("part", [part], ("test", "dev", "train"))
    cases = (case for subset in subsets for case in _cases(files, subset, part, flat))
    return files.benchmark(
        cases, summary=(*(f"accuracy/subset={subset}" for subset in subsets), "accuracy")
    )


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
        yield _case(f"{subset}_{published.case_id(number, image)}", files, image, row, verb, subset)


def _case(
    identity: str,
    files: published.Files,
    image: str,
    row: dict[str, Any],
    verb: re.Match[str],
    subset: str,
) -> Case:
    caption = row["caption"]
    captions = caption, f"{caption[: verb.start()]}{_VERBS[verb[0]]}{caption[verb.end() :]}"
    # the correct caption first
    order, label = ((0, 1), "true") if row["label"] else ((1, 0), "false")
    answers = tuple(("true", "false")[k] for k in order)
    return Case(
        identity,
        (files.image(image),),
        tuple(captions[k] for k in order),
        {"subset": subset, "relation": row["relation"], "label": label},
        {"record": image, "short": {"question": QUESTION.format(caption), "answers": answers}},
    )


def _in_coco(row: dict[str, Any], where: str) -> str:
    """The image as "train2017/NAME.jpg", from its address."""
    folder = row["image_link"].rsplit("/", 2)[-2:][0]
    if folder not in ("train2017", "val2017"):
        raise DataError(
            f"{where}: image_link is the address of an image of train2017 or val2017; got "
            f"{row['image_link']!r:.80}"
        )
    return f"{folder}/{row['image']}"
