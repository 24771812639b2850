"""POPE: is an object in an image of COCO? Half of the questions are about absent objects.

Li et al., "Evaluating Object Hallucination in Large Vision-Language Models" (EMNLP 2023); the three
files of github.com/AoiDragon/POPE (output/coco).
"""

import re
from collections.abc import Iterator

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

FILES = {  # subset, by the choice of absent objects -> file
    subset: f"coco_pope_{subset}.json" for subset in ("random", "popular", "adversarial")
}
_QUESTION = re.compile(r"Is there (an? (.+)) in the image\?")


@published.reader
def pope(files: published.Files, subsets: tuple[str, ...] = tuple(FILES)) -> Benchmark:
    """3,000 questions per subset, as the captions "There is a dog in the image." and "There is no
    dog in the image."

    accuracy_macro, the headline: mean over subsets. accuracy/answer=yes: the authors' recall r;
      accuracy/answer=no: s. Their precision is r / (r + 1 - s), their share of "yes"
      (r + 1 - s) / 2, as half of the answers are yes.
    The captions are ours. The option protocol="keywords" asks a generative model the authors'
      questions; an answer with both or neither of "yes" and "no" is wrong, where the authors count
      it as no or yes.
    count: number of cases per subset.
    """
    return files.by_subset(subsets, FILES, _cases)


def _cases(files: published.Files, subset: str) -> Iterator[Case]:
    name = FILES[subset]
    for number, row in enumerate(files.json_lines(name, "text", "label", image=fields.image_name)):
        asked, label = _QUESTION.fullmatch(row["text"]), row["label"]
        if not asked or label not in ("yes", "no"):
            raise DataError(
                f"{files.folder / name}: case {number} asks 'Is there a ... in the image?' with "
                f"the label yes or no; got {row['text']!r:.80}, {label!r:.20}"
            )
        texts = [f"There is {each} in the image." for each in (asked[1], f"no {asked[2]}")]
        order = (0, 1) if label == "yes" else (1, 0)  # the correct caption first
        answers = tuple(("yes", "no")[k] for k in order)
        yield files.case(
            number,
            row["image"],
            [texts[k] for k in order],
            {"subset": subset, "answer": label},
            name=f"{row['image']}_{asked[2]}",
            prefix=subset,
            short={"question": row["text"], "answers": answers},
        )
