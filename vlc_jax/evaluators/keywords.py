"""Keywords: generated short answers, matched against the possible answers of each question.

"On Erroneous Agreements of CLIP Image Embeddings" (2024) generates answers on What'sUp,
COCO-spatial and GQA-spatial and matches keywords, but does not print its rules. Ours are:

two-way   the answer names one of the two prepositions and not the other
four-way  the answer names exactly one of under, left, right, front, behind; "on" counts only if it
          names none of these, since "on the left" means left

Whole words count, in any case: "front" does not contain "on". An option inside a longer one does
not count: "dark red" does not name "red". An answer that names no option or several, or denies one
("not on the left", "left is wrong"), is unparsed and counts as wrong.

A case may bring its own question with one short answer per caption, such as "blue and red", in
`meta["short"]`. It follows the two-way rule.
"""

import dataclasses
import itertools
import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from vlc_jax.errors import known
from vlc_jax.evaluators import groups, prompts, stats
from vlc_jax.evaluators.cases import chunked, image_name, row
from vlc_jax.evaluators.scorer import Decoding, Scorer, answers
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError, ImageLike, ImageQuestion

# part of other answers: "on the left", "on the right side"
WEAK = "on"
_NOT = re.compile(r"\b(not|cannot|never|neither|nor)\b")
_IS_NOT = re.compile(r"[^\w.,;:!?]+((is|are|was|can?|does) )?(not|cannot|wrong|incorrect|false)\b")


def check(*, decoding: str, max_tokens: int, style: str, **others: Any) -> None:
    """Raises UsageError for invalid options of `evaluate`."""
    del others
    Decoding(decoding, max_tokens).check()
    known("style of questions", style, prompts.STYLES)


def needs(**options: Any) -> Literal["writes"]:
    """Ability of a model that `evaluate` requires."""
    del options
    return "writes"


def evaluate(
    benchmark: Benchmark,
    scorer: Scorer,
    *,
    decoding: str = "greedy",
    max_tokens: int = 16,
    alpha: float = 0.6,
    decay: float = 0.15,
    first_step: int = 1,
    style: str = "generate",
    seed: int = 0,
    chunk: int = 256,
) -> stats.EvalResult:
    """Accuracy of answers over all cases, per group, as means over groups, and of groups as units.

    accuracy        the answer names the preposition (or short answer) of the correct caption;
                    chance: a model that always names one of the options at random
    KIND_accuracy   all cases of a group of that kind are right: pair_accuracy, set_accuracy
    unparsed        share of answers that name no option, or several

    decoding: greedy, or m3id with its alpha, decay and first_step (vlc_jax/models/decode.py).
    style, seed: of the questions (`prompts`); unused for cases with their own, such as the scenes.
    chunk: cases at a time.

    Cases without a question in the papers (two objects on top of one another) are left out
    and counted in details. Raises UsageError for a model that generates no text, DataError for a
    benchmark without any usable case.
    """
    check(decoding=decoding, max_tokens=max_tokens, style=style)
    how = Decoding(decoding, max_tokens, alpha, decay, first_step)
    cases = [case for case in benchmark.cases if has_question(case)]
    if not cases:
        raise DataError(
            f"benchmark {benchmark.name!r} has no case of What'sUp's kind, and none with a "
            'question and short answers, meta["short"]'
        )
    questions = [question_of(case, style, seed) for case in cases]
    written: list[str] = []
    for part in chunked([*zip(cases, questions, strict=True)], chunk):
        images, texts = zip(*itertools.starmap(_inputs, part), strict=True)
        written += answers(scorer, scorer.embed_images(images), texts, how)
    rows = [_row(*parts) for parts in zip(cases, questions, written, strict=True)]
    right = np.array([row["correct"] for row in rows])
    clusters, labels = stats.images_of(cases), [case.group for case in cases]
    chance = np.array([1 / len(case.captions) for case in cases])
    decisions = groups.Decisions(labels, right, chance, np.zeros(len(cases), bool), clusters)
    evaluated = dataclasses.replace(benchmark, cases=cases)
    metrics = groups.metrics("accuracy", decisions, evaluated)
    metrics |= groups.together(decisions, evaluated)
    # answers in words cannot tie
    metrics = {name: metric._replace(ties=None) for name, metric in metrics.items()}
    unparsed = np.array([row["parsed"] is None for row in rows])
    metrics["unparsed"] = stats.proportion(unparsed, None, None, clusters)
    details = {"decoding": how._asdict(), "left_out": len(benchmark.cases) - len(cases)}
    template = (scorer.prompt or {}).get("template")
    details["prompt"] = {"template": template, "question": questions[0], "style": style}
    return stats.EvalResult(metrics, rows, details | {"swap_seed": seed})


def _inputs(case: Case, question: str) -> tuple[ImageLike, str]:
    """(image, question); question is "" if the image already carries it (`ImageQuestion`)."""
    (image,) = case.images
    if isinstance(image, ImageQuestion):
        return ImageQuestion(image.image, question), ""
    return image, question


def question_of(case: Case, style: str, seed: int) -> str:
    """The case's own question, or else the papers' question."""
    if "short" in case.meta:
        return case.meta["short"]["question"]
    return case.meta.get("question") or prompts.question_of_case(case, style, seed)


def has_question(case: Case) -> bool:
    """True if a case can be evaluated.

    It has one image, and `meta["short"]` or two or four captions of What'sUp's kind with a question
    of the case or of the papers. Raises DataError for short answers that do not match the captions.
    """
    if "short" in case.meta:
        count = len(case.meta["short"]["answers"])
        if count != len(case.captions):
            raise DataError(
                f"case {case.id} has {len(case.captions)} captions and {count} short answers: each "
                "caption needs one"
            )
        return len(case.images) == 1
    subset = case.group.get("subset") if isinstance(case.group, dict) else None
    if subset not in prompts.PAIRS or len(case.images) != 1 or len(case.captions) not in (2, 4):
        return False
    if "question" in case.meta:
        return True
    try:
        return prompts.has_question(case)
    except DataError:
        return False


def parse(answer: str, options: Sequence[str]) -> str | None:
    """Option that an answer names; None if it names none or several, or denies one."""
    named = [options[k] for k in sorted(options_in(answer, options))]
    # "on the left" names left; a bare "on the table" names on
    if len(options) > 2 and named != [WEAK]:
        named = [option for option in named if option != WEAK]
    return named[0] if len(named) == 1 else None


def options_in(answer: str, options: Sequence[str]) -> set[int]:
    """Indices of the options whose words an answer has in a row; {} if it denies one of them.

    An option inside a longer one does not count. Denied: behind "not" in the same clause, or right
    before "is not" or "is wrong".
    """
    answer = _lower(answer)
    spans = [
        (match.start(), match.end(), k)
        for k, option in enumerate(options)
        if (words := words_of(option))
        for match in re.finditer(rf"(?<![^\W_]){r'[^a-z0-9]+'.join(words)}(?![^\W_])", answer)
    ]
    longest = [
        (start, end, k)
        for start, end, k in spans
        if not any(a <= start and end <= b and (a, b) != (start, end) for a, b, _ in spans)
    ]
    for start, end, _ in longest:
        clause = re.split(r"[.,;:!?\n]", answer[:start])[-1]
        if _NOT.search(clause) or _IS_NOT.match(answer[end:]):
            return set()
    return {k for _, _, k in longest}


def words_of(text: str) -> list[str]:
    """Words and numbers of a text, in lower case; "isn't" is two, "is not"."""
    return re.findall(r"[a-z0-9]+", _lower(text))


def _lower(text: str) -> str:
    return re.sub(r"n['’]t\b", " not", text.lower())


def options_of(case: Case) -> tuple[str, ...]:
    """Possible answers: the case's short answers, the two prepositions of its subset, or those of
    its four captions."""
    if "short" in case.meta:
        return tuple(case.meta["short"]["answers"])
    if len(case.captions) == 2:
        return prompts.PAIRS[case.group["subset"]]
    words = {word for caption in case.captions for word in caption.lower().split()}
    return tuple(word for pair in prompts.PAIRS.values() for word in pair if word in words)


def _row(case: Case, question: str, answer: str) -> dict[str, object]:
    options = options_of(case)
    parsed = parse(answer, options)
    named = options
    if "short" not in case.meta:
        named = tuple(parse(caption, options) for caption in case.captions)
    scores = [float(parsed is not None and parsed == each) for each in named]
    facts = {"image": image_name(case), "question": question, "answer": answer, "parsed": parsed}
    return row(case, case.captions, scores, scores[0] == 1, tie=False, **facts)
