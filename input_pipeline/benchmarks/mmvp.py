"""MMVP and MMVP-VLM: pairs of images with similar CLIP embeddings, each with its own statement.

Tong et al., "Eyes wide shut? Exploring the visual shortcomings of multimodal LLMs" (CVPR 2024),
github.com/tsb0601/MMVP. Its code for CLIP picks one of two images per statement, and both
statements of a pair must be right: `image_score` here. A tie goes to the second image, so with two
ties one statement is right and the pair is wrong.

MMVP's file has questions with two answers each, MMVP-VLM's has statements. Two files of
github.com/lst627/CLIP-Embeds (additional_questions) complement them: Questions-clip.csv with
statements for MMVP and Questions-llava.csv with questions for MMVP-VLM.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from vlc_jax.input_pipeline.benchmarks.published_files import (
    Origin,
    PublishedFiles,
    amended,
    case_id,
    published,
)
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError

MMVP = Origin(
    protocol="pairs",
    folder="mmvp",
    files=("Questions-clip.csv",),
    images="mmvp",
    source="huggingface.co/datasets/MMVP/MMVP (folder MMVP Images, and Questions.csv with "
    "questions) and github.com/lst627/CLIP-Embeds (additional_questions)",
    licence="MIT; none stated for the statements",
    cases=150,
    overlap="ImageNet and LAION-Aesthetics",
)
MMVP_VLM = Origin(
    protocol="pairs",
    folder="mmvp_vlm",
    files=("Questions.csv",),
    images="mmvp_vlm",
    source="huggingface.co/datasets/MMVP/MMVP_VLM (Questions.csv, folder MLLM_VLM Images)",
    licence="MIT",
    cases=135,
    overlap="ImageNet and LAION-Aesthetics",
)
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
_SWAPPED = (279, 280)  # sits/stands are the wrong way round
_DROPPED = (99, 100)  # both elephants have long tusks


@published(MMVP)
def mmvp(
    files: PublishedFiles,
    texts: str = "statements",
    prompt: str | None = None,
    asked: bool = False,
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
    asked: add meta["question"] to statements, the pair's first question in Questions.csv, for
      embedders that read a question after both images (VLM2Vec in "Exploring How Generative MLLMs
      Perceive More Than CLIP with the Same Vision Encoder", ACL 2025).
    label_fixes: fix two disputed labels: swap texts 279 and 280, and drop the pair 99 and 100,
      whose texts contradict each other about the same length.
    """
    prompt = _prompt(texts, prompt)
    name = "Questions-clip.csv" if texts == "statements" else "Questions.csv"
    rows = _rows(files, name, texts)
    image_folder = files.image_folder(*_MMVP_IMAGES)
    cases = [
        Case(
            case_id(n, a, b),
            tuple(files.image(f"{image_folder}/{number}.jpg") for number in (a, b)),
            (prompt.format(first.text), prompt.format(second.text)),
            meta=_meta(first, second, question),
        )
        for n, (((a, first), (b, second)), question) in enumerate(
            zip(rows, _shared(files, "Questions.csv", asked, texts, rows), strict=True)
        )
        if not (label_fixes and a in _DROPPED)
    ]
    if label_fixes:
        cases = [_swapped(case) if case.id.endswith("279_280") else case for case in cases]
    benchmark = files.benchmark("mmvp", cases, summary=_SUMMARY)
    if not label_fixes:
        return amended(benchmark, version=prompt)
    note = f"label fixes: texts {_SWAPPED} have changed places, pair {_DROPPED} is left out"
    return amended(benchmark, note, version=f"{prompt}/label_fixes")


@published(MMVP_VLM)
def mmvp_vlm(
    files: PublishedFiles, texts: str = "statements", prompt: str | None = None, asked: bool = False
) -> Benchmark:
    """135 pairs in nine categories of visual patterns.

    image_score, the headline: both statements rank their image first; all categories have 15
    pairs, so it equals the paper's mean over categories. image_score/category=NAME: of one.

    texts, prompt, asked: as in `mmvp`, with questions from Questions-llava.csv. Questions.csv is
      always needed: it names the folders of the images.
    """
    prompt = _prompt(texts, prompt)
    statements = _rows(files, "Questions.csv", "statements")
    types = [row["Type"] for row in files.table("Questions.csv", "Type")][::2]  # as the authors
    rows = statements if texts == "statements" else _rows(files, "Questions-llava.csv", texts)
    image_folder = files.image_folder(*_MMVP_VLM_IMAGES)
    if len(rows) != len(types):
        raise DataError(
            f"{files.folder}: Questions-llava.csv has {len(rows)} pairs and Questions.csv "
            f"{len(types)}; they belong together row by row"
        )

    shared = _shared(files, "Questions-llava.csv", asked, texts, rows)

    def cases() -> Iterator[Case]:
        for n, (pair, kind, question) in enumerate(zip(rows, types, shared, strict=True)):
            (a, first), (b, second) = pair
            category = CATEGORIES[min(n // PAIRS_OF_CATEGORY, len(CATEGORIES) - 1)]
            yield Case(
                case_id(n, a, b),
                tuple(files.image(f"{image_folder}/{kind}/{number}.jpg") for number in (a, b)),
                (prompt.format(first.text), prompt.format(second.text)),
                {"category": category},
                _meta(first, second, question),
            )

    benchmark = files.benchmark("mmvp_vlm", cases(), summary=_SUMMARY)
    return amended(benchmark, version=prompt)


class Text(NamedTuple):
    """A statement, or a question with its answer.

    question: for the protocol multiple_choice: {"question", "text": the options as written,
      "options": the options alone, "answer": index of the right one}.
    """

    text: str
    question: dict[str, Any] | None = None


Row = tuple[int, Text]  # number of the image file, and text


def _rows(files: PublishedFiles, name: str, texts: str) -> list[tuple[Row, Row]]:
    """Pairs of rows of a file of statements or questions."""
    fields = ("Statement",) if texts == "statements" else ("Question", "Options", "Correct Answer")
    rows: list[Row] = []
    for row in files.table(name, *fields):
        where, number = f"{files.folder / name}: case {len(rows)}", next(iter(row.values()))
        if len(rows) % 2:
            is_expected = number == str(rows[-1][0] + 1)
        else:
            is_expected = number.isdigit() and int(number) % 2 == 1
        if not is_expected:
            raise DataError(
                f"{where}: pairs have consecutive numbers, the first of them odd; got {number!r}"
            )
        is_statement = texts == "statements"
        text = Text(row["Statement"].strip()) if is_statement else _answered(where, row)
        rows.append((int(number), text))
    if len(rows) % 2:
        raise DataError(f"{files.folder / name} has {len(rows)} rows, which make no pairs")
    return list(zip(rows[::2], rows[1::2], strict=True))


def _answered(where: str, row: dict[str, Any]) -> Text:
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
    return Text(f"{question} {options[1 + right]}", multiple_choice)


def _shared(
    files: PublishedFiles, name: str, asked: bool, texts: str, rows: list[tuple[Row, Row]]
) -> list[str]:
    """The first question of each pair in the table `name`, for both images; "" unless `asked`.

    Raises DataError unless the table has the pairs of `rows` in the same order."""
    if not asked:
        return [""] * len(rows)
    if texts != "statements":
        raise ValueError(f"asked goes with texts='statements'; got texts={texts!r}")
    questions = _rows(files, name, "questions")
    if (numbers := [pair[0][0] for pair in questions]) != [pair[0][0] for pair in rows]:
        raise DataError(
            f"{files.folder / name} has questions of other pairs than the statements: "
            f"{len(numbers)} pairs from {numbers[:1]}, and {len(rows)} from {rows[0][0][0]}"
        )
    return [first.question["question"] for (_, first), _ in questions]


def _meta(first: Text, second: Text, question: str) -> dict[str, Any]:
    if question:
        return {"question": question}
    return {"questions": (first.question, second.question)} if first.question else {}


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


READERS = {"mmvp": (mmvp, MMVP), "mmvp_vlm": (mmvp_vlm, MMVP_VLM)}
