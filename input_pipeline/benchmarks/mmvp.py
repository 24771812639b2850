"""MMVP and MMVP-VLM: pairs of images with similar CLIP embeddings, each with its own statement.

Tong et al., "Eyes wide shut? Exploring the visual shortcomings of multimodal LLMs" (CVPR 2024),
github.com/tsb0601/MMVP. Its code for CLIP picks one of two images per statement, and both
statements of a pair must be right: `image_score` here. A tie goes to the second image:
`tie="last_index"` here.

MMVP's file has questions with two answers each, MMVP-VLM's has statements. Two files of
github.com/lst627/CLIP-Embeds (additional_questions) complement them: Questions-clip.csv with
statements for MMVP and Questions-llava.csv with questions for MMVP-VLM.
"""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

CATEGORIES = (  # 15 pairs each, by position, as in the authors' code
    "Orientation and Direction",
    "Presence of Specific Features",
    "State and Condition",
    "Quantity and Count",
    "Positional and Relational Context",
    "Color and Appearance",
    "Structural Characteristics",
    "Texts",
    "Viewpoint and Perspective",
)
PAIRS_OF_CATEGORY = 15
TEXTS = {"statements": "a photo of {}", "questions": "{}"}  # kind of captions -> default prompt
_SUMMARY = ("image_score", "image_individual_accuracy", "pair_accuracy", "group_score")
# Spellings of the folders in the archives and in public code.
_MMVP_IMAGES = ("MMVP Images", "MMVP_Images")
_MMVP_VLM_IMAGES = ("MLLM_VLM Images", "MLLM_VLM_Images", "MMVP_VLM Images", "MMVP_VLM_Images")
# Disputed in issues 14 and 30 of the authors' repository.
# sits/stands are the wrong way round
_SWAPPED = (279, 280)
# both elephants have long tusks
_DROPPED = (99, 100)


@published.reader
def mmvp(
    files: published.Files,
    texts: str = "statements",
    prompt: str | None = None,
    pair_question: bool = False,
    label_fixes: bool = False,
) -> Benchmark:
    """150 pairs: "a butterfly with wings open", "a butterfly with wings closed".

    image_score, the headline: both statements rank their image first. pair_accuracy: both images
    rank their statement first.

    count: number of pairs.
    texts: statements (Questions-clip.csv), or questions with their answer (Questions.csv): "Are
      the wings open or closed? Open"; with questions, meta["questions"] of a case has both, for
      the protocol multiple_choice.
    prompt: template with {} for the text; default "a photo of {}" for statements, as in the
      authors' code, and "{}" for questions.
    pair_question: add meta["question"] to statements, the pair's first question in Questions.csv,
      for embedders that read a question after both images (VLM2Vec in "Exploring How Generative
      MLLMs Perceive More Than CLIP with the Same Vision Encoder", ACL 2025).
    label_fixes: fix two disputed labels: swap texts 279 and 280, and drop the pair 99 and 100,
      whose texts contradict each other about the same length.
    """
    prompt = _prompt(texts, prompt)
    name = "Questions-clip.csv" if texts == "statements" else "Questions.csv"
    rows = _rows(files, name, texts)
    image_folder = files.image_folder(*_MMVP_IMAGES)
    questions = _pair_questions(files, "Questions.csv", texts, rows) if pair_question else []
    cases = [
        _case(files, n, pair, prompt, image_folder, questions=questions)
        for n, pair in enumerate(rows)
        if not (label_fixes and pair[0].number in _DROPPED)
    ]
    if label_fixes:
        cases = [_swapped(case) if case.id.endswith("279_280") else case for case in cases]
    benchmark = files.benchmark(cases, summary=_SUMMARY)
    if not label_fixes:
        return published.amended(benchmark, version=prompt)
    # fixed labels are another benchmark: their results must not replace the published ones
    note = f"label fixes: texts {_SWAPPED} have changed places, pair {_DROPPED} is left out"
    return published.amended(benchmark, note, version=f"{prompt}/label_fixes")


@published.reader
def mmvp_vlm(
    files: published.Files,
    texts: str = "statements",
    prompt: str | None = None,
    pair_question: bool = False,
) -> Benchmark:
    """135 pairs in nine categories of visual patterns.

    image_score, the headline: both statements rank their image first; all categories have 15
    pairs, so it equals the paper's mean over categories. image_score/category=NAME: of one.

    texts, prompt, pair_question: as in `mmvp`, with questions from Questions-llava.csv.
      Questions.csv is always needed: it names the folders of the images.
    """
    prompt = _prompt(texts, prompt)
    statements = _rows(files, "Questions.csv", "statements")
    types = [row["Type"] for row in files.table("Questions.csv", Type=fields.image_name)][
        ::2
    ]  # as the authors
    rows = statements if texts == "statements" else _rows(files, "Questions-llava.csv", texts)
    image_folder = files.image_folder(*_MMVP_VLM_IMAGES)
    if len(rows) != len(types):
        raise DataError(
            f"{files.folder}: Questions-llava.csv has {len(rows)} pairs and Questions.csv "
            f"{len(types)}; they belong together row by row"
        )
    questions = _pair_questions(files, "Questions-llava.csv", texts, rows) if pair_question else []
    cases = []
    for n, (pair, kind) in enumerate(zip(rows, types, strict=True)):
        group = {"category": CATEGORIES[min(n // PAIRS_OF_CATEGORY, len(CATEGORIES) - 1)]}
        folder = f"{image_folder}/{kind}"
        cases.append(_case(files, n, pair, prompt, folder, group, questions=questions))
    return published.amended(files.benchmark(cases, summary=_SUMMARY), version=prompt)


class Row(NamedTuple):
    """The number of an image file, with a statement, or with a question and its answer.

    question: for the protocol multiple_choice: {"question", "text": the options as written,
      "options": the options alone, "answer": index of the right one}.
    """

    number: int
    text: str
    question: dict[str, Any] | None = None


def _case(
    files: published.Files,
    n: int,
    pair: tuple[Row, Row],
    prompt: str,
    folder: str,
    group: dict[str, str] | None = None,
    *,
    questions: Sequence[str],
) -> Case:
    """questions: of pairs, for both images of each; empty: none."""
    first, second = pair
    meta: dict[str, Any] = {"question": questions[n]} if questions else {}
    if first.question:
        meta["questions"] = (first.question, second.question)
    return Case(
        published.case_id(n, first.number, second.number),
        tuple(files.image(f"{folder}/{row.number}.jpg") for row in pair),
        tuple(prompt.format(row.text) for row in pair),
        group,
        meta,
    )


def _rows(files: published.Files, name: str, texts: str) -> list[tuple[Row, Row]]:
    """Pairs of rows of a file of statements or questions."""
    statements = texts == "statements"
    columns = ("Statement",) if statements else ("Question", "Options", "Correct Answer")
    rows: list[Row] = []
    for row in files.table(name, *columns):
        where, number = f"{files.folder / name}: case {len(rows)}", next(iter(row.values()))
        if len(rows) % 2:
            is_expected = number == str(rows[-1].number + 1)
        else:
            is_expected = number.isdecimal() and int(number) % 2 == 1
        if not is_expected:
            raise DataError(
                f"{where}: pairs have consecutive numbers, the first of them odd; got {number!r}"
            )
        if statements:
            rows.append(Row(int(number), row["Statement"].strip()))
        else:
            rows.append(_answered(where, int(number), row))
    if len(rows) % 2:
        raise DataError(f"{files.folder / name} has {len(rows)} rows, which make no pairs")
    return list(zip(rows[::2], rows[1::2], strict=True))


def _answered(where: str, number: int, row: dict[str, Any]) -> Row:
    """A question with its answer; options are written "(a) Open (b) Closed"."""
    options = re.fullmatch(r"\s*\(a\)\s*(.+?)\s*\(b\)\s*(.+?)\s*", row["Options"])
    answers = ("(a)", "(b)")
    if options is None or row["Correct Answer"].strip() not in answers:
        raise DataError(
            f"{where} has no options '(a) ... (b) ...' of which one is correct; got "
            f"{row['Options']!r} and {row['Correct Answer']!r}"
        )
    question, right = row["Question"].strip(), answers.index(row["Correct Answer"].strip())
    multiple_choice = {
        "question": question,
        "text": row["Options"].strip(),
        "options": options.groups(),
        "answer": right,
    }
    return Row(number, f"{question} {options[1 + right]}", multiple_choice)


def _pair_questions(
    files: published.Files, name: str, texts: str, rows: list[tuple[Row, Row]]
) -> list[str]:
    """The first question of each pair in the table `name`, for both images.

    Raises DataError unless the table has the pairs of `rows` in the same order."""
    if texts != "statements":
        raise ValueError(f"pair_question goes with texts='statements'; got texts={texts!r}")
    questions = _rows(files, name, "questions")
    if (numbers := [pair[0].number for pair in questions]) != [pair[0].number for pair in rows]:
        raise DataError(
            f"{files.folder / name} has questions of other pairs than the statements: "
            f"{len(numbers)} pairs from {numbers[:1]}, and {len(rows)} from {rows[0][0].number}"
        )
    return [first.question["question"] for first, _ in questions]


def _prompt(texts: str, prompt: str | None) -> str:
    if texts not in TEXTS:
        raise ValueError(f"texts are one of {list(TEXTS)}; got {texts!r}")
    if prompt is not None and prompt.count("{}") != 1:
        raise ValueError(f"a prompt holds one {{}} for the text; got {prompt!r}")
    return TEXTS[texts] if prompt is None else prompt


def _swapped(case: Case) -> Case:
    meta = dict(case.meta)
    if "questions" in meta:
        meta["questions"] = meta["questions"][::-1]
    return Case(case.id, case.images, case.captions[::-1], case.group, meta)
