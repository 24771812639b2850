"""NegBench: captions of objects that are present, absent, or both.

Alhamoud et al., "Vision-Language Models Do Not Understand Negation" (CVPR 2025): the tables of
github.com/m1k2zoo/negbench (links in datasets.md) for COCO and VOC 2007. Unverified: the tables
were not available, the columns are from the code, and the numbers of cases are those of which every
share in the authors' results (results/mcq) is a whole number. Not supported: HardNeg, whose
synthetic images were never released, videos and CheXpert. The argmax there counts ties as correct
("first_index" here), since caption 0 is always the correct one.
"""

from collections.abc import Iterator
from pathlib import PurePosixPath

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import cells

IMAGES = {  # subset -> folder; the tables have paths of the authors' machine
    "coco": "coco/val2017",
    "voc2007": "VOCdevkit/VOC2007/JPEGImages",  # as VOCtest_06-Nov-2007.tar unpacks
}
FILES = {
    "coco": "COCO_val_mcq_llama3.1_rephrased.csv",
    "voc2007": "VOC2007_mcq_llama3.1_rephrased.csv",
}
RETRIEVAL_FILES = {  # negated -> file
    False: "COCO_val_retrieval.csv",
    True: "COCO_val_negated_retrieval_llama3.1_rephrased_affneg_true.csv",
}
_CAPTIONS = [f"caption_{n}" for n in range(4)]


@published.reader
def negbench(files: published.Files, subsets: tuple[str, ...] = tuple(FILES)) -> Benchmark:
    """Questions with four captions of an image, one of them correct.

    accuracy/subset=coco, accuracy/subset=voc2007: as in the paper's tables; accuracy_macro, the
      headline: their mean. accuracy/template=positive, negative, hybrid: the correct caption names
      a present object, an absent one, or one of each.
    count: number of cases per subset.
    """
    return files.by_subset(subsets, FILES, _questions)


@published.reader
def negbench_retrieval(files: published.Files, negated: bool = True) -> Benchmark:
    """Images of COCO val2017 with about five captions each, which also name an absent object.

    text_to_image_r5, the headline: the paper's R-Neg@5; with negated=False, the original captions:
    its R@5.
    """
    name = RETRIEVAL_FILES[negated]

    def cases() -> Iterator[Case]:
        for number, row in enumerate(files.table(name, "filepath", "captions")):
            where = f"{files.folder / name}: case {number}"
            captions = cells.read(row, "captions", where)
            try:
                fields.texts(captions)
            except DataError as error:
                raise DataError(f"{where}, 'captions': {error}") from None
            yield files.case(number, _file_name(row["filepath"]), captions)

    summary = ("text_to_image_r5", "text_to_image_r1", "image_to_text_r5", "image_to_text_r1")
    return files.benchmark(cases(), summary=summary)


def _questions(files: published.Files, subset: str) -> Iterator[Case]:
    name = FILES[subset]
    rows = files.table(name, "image_path", *_CAPTIONS, "correct_answer", "correct_answer_template")
    for number, row in enumerate(rows):
        correct = row["correct_answer"]
        place = int(correct) if correct in [*"0123"] else correct
        texts = [row[column] for column in _CAPTIONS]
        captions = files.correct_first(number, texts, "correct_answer", place)
        name = _file_name(row["image_path"])
        group = {"subset": subset, "template": row["correct_answer_template"]}
        image = f"{IMAGES[subset]}/{name}"
        yield files.case(number, image, captions, group, name=name, prefix=subset)


def _file_name(path: str) -> str:
    # paths of the authors' machines, Windows among them
    return PurePosixPath(path.replace("\\", "/")).name
