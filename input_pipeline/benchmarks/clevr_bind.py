"""CLEVR-bind: a rendered scene of two objects, its description and four wrong descriptions.

Lewis et al., "Does CLIP Bind Concepts? Probing Compositionality in Large Image Models" (EACL
Findings 2024), github.com/marthaflinderslewis/clip-binding; the two-object set, as in "Is CLIP
Ideal? No. Can We Fix It? Yes!" (ICCV 2025), github.com/Raphoo/DCSM_Ideal_CLIP. Unverified: the
files were not available, the format is from the code, and the numbers of cases are unknown. The
argmax there counts ties as correct ("first_index" here).
"""

import functools
from collections.abc import Iterator

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case

# gen: colour-shape pairs that are not in train
SUBSETS = ("train", "val", "gen")
WRONG = tuple(f"neg_{n}" for n in range(4))
# of the ICCV paper, for texts such as "red cube"
PROMPT = "An image of a {}"


@published.reader
def clevr_bind(
    files: published.Files, subsets: tuple[str, ...] = SUBSETS, prompt: str = PROMPT
) -> Benchmark:
    """Cases of five captions, in three subsets; the EACL paper trains on the subset train.

    accuracy/subset=gen etc., as in the papers' tables; accuracy_macro, the headline: their mean.
    prompt: template with {} for the text. The EACL paper's code has "a photo of{}", without the
      space.
    """
    if prompt.count("{}") != 1:
        raise ValueError(f"prompt needs one {{}}, which stands for the text; got {prompt!r}")
    read = functools.partial(_subset, prompt=prompt)
    summary = ("accuracy_macro", *(f"accuracy/subset={subset}" for subset in subsets))
    return files.by_subset(subsets, SUBSETS, read, summary=summary)


def _subset(files: published.Files, subset: str, prompt: str) -> Iterator[Case]:
    for number, row in enumerate(
        files.table(f"{subset}.csv", "pos", *WRONG, file_name=fields.image_name)
    ):
        # names of images repeat from subset to subset
        image = f"{subset}/{row['file_name']}"
        texts = [row[column] for column in ("pos", *WRONG)]
        yield Case(
            f"{subset}_{published.case_id(number, row['file_name'])}",
            (files.image(image),),
            tuple(prompt.format(text) for text in texts),
            {"subset": subset},
            {"record": image},
        )
