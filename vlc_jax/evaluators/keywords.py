"""Keywords: the model writes a short answer to a question; which of the possible ones does it name?

"On Erroneous Agreements of CLIP Image Embeddings" (2024) generates answers on What'sUp,
COCO-spatial and GQA-spatial and looks for keywords, without saying how. The rules here are ours:

two-way   the answer names one of the two prepositions and not the other
four-way  it names exactly one of under, left, right, front, behind; "on" counts only without any
          of them, since "on the left" is left

Only whole words count, of letters in any case: "front" does not say "on". An answer that names
none, or several, is unparsed, and wrong.

A benchmark may bring its own: `meta["short"]` of a case, a question and the answer of each caption,
of one word or several, "blue and red". Such a case is read as a two-way one.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from vlc_jax.errors import known
from vlc_jax.evaluators import groups, prompts, stats
from vlc_jax.evaluators.scorer import Decoding, Scorer, answers
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import AskedImage, DataError, ImageLike

WEAK = "on"  # part of other answers: "on the left", "on the right side"


def check(*, decoding: str, max_tokens: int, style: str, **others: Any) -> None:
    """Raises UsageError for options of `evaluate` that it refuses, whatever the benchmark."""
    del others
    Decoding(decoding, max_tokens).check()
    known("style of questions", style, prompts.STYLES)


def needs(**options: Any) -> Literal["writes"]:
    """The ability of a model that `evaluate` needs."""
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
    """Accuracy of answers over all cases, per group and as means, and of groups that count as one.

    accuracy        the answer names the preposition of the correct caption, or says its own answer;
                    chance is that of a model that always names one of the options
    KIND_accuracy   all cases of a group of that kind are right: pair_accuracy, set_accuracy
    unparsed        share of the answers that name none of the options, or several

    decoding: greedy, or m3id with its alpha, decay and first_step (vlc_jax/models/decode.py).
    style, seed: of the questions (generative/prompts.py), but where a case has its own, as those
      of the scenes have.   chunk: cases at a time.

    Cases for which the papers have no question (GQA's of two objects on top of one another) are
    left out, and counted. Raises UsageError for a model that writes nothing, DataError for a
    benchmark without any such case.
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
    for start in range(0, len(cases), chunk):
        part = slice(start, start + chunk)
        shown, said = zip(*map(_shown, cases[part], questions[part]), strict=True)
        written += answers(scorer, scorer.embed_images(shown), said, how)
    rows = [_row(*parts) for parts in zip(cases, questions, written, strict=True)]
    right = np.array([row["correct"] for row in rows])
    clusters, labels = stats.images_of(cases), [case.group for case in cases]
    chance = np.array([1 / len(case.captions) for case in cases])
    decisions = groups.Decisions(labels, right, chance, np.zeros(len(cases), bool), clusters)
    asked = dataclasses.replace(benchmark, cases=cases)
    metrics = groups.metrics("accuracy", decisions, asked) | groups.together(decisions, asked)
    metrics = {name: metric._replace(ties=None) for name, metric in metrics.items()}
    unparsed = np.array([row["parsed"] is None for row in rows])
    metrics["unparsed"] = stats.proportion(unparsed, None, None, clusters)
    details = {"decoding": how._asdict(), "left_out": len(benchmark.cases) - len(cases)}
    template = (scorer.prompt or {}).get("template")
    details["prompt"] = {"template": template, "question": questions[0], "style": style}
    return stats.EvalResult(metrics, rows, details | {"swap_seed": seed})


def _shown(case: Case, question: str) -> tuple[ImageLike, str]:
    """The image, and the question behind it: of a model whose images come with one, none."""
    (image,) = case.images
    if isinstance(image, AskedImage):
        return AskedImage(image.image, question), ""
    return image, question


def question_of(case: Case, style: str, seed: int) -> str:
    """The case's own question, or that of the papers."""
    if "short" in case.meta:
        return case.meta["short"]["question"]
    return case.meta.get("question") or prompts.question_of_case(case, style, seed)


def has_question(case: Case) -> bool:
    """True if a case has one image and two or four captions of What'sUp's kind, and a question of
    its own or in the papers; or a question with an answer of each caption."""
    if "short" in case.meta:
        count = len(case.meta["short"]["answers"])
        if count != len(case.captions):
            raise DataError(
                f"case {case.id} has {len(case.captions)} captions and {count} short answers: each "
                "caption has its own"
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
    """The one of the options that an answer names; None where it names none, or several."""
    words = words_of(answer)
    named = [option for option in options if contains(words, words_of(option))]
    if len(options) > 2 and named != [WEAK]:
        named = [option for option in named if option != WEAK]
    return named[0] if len(named) == 1 else None


def words_of(text: str) -> list[str]:
    """Words and numbers of a text, in small letters."""
    return re.findall(r"[a-z0-9]+", text.lower())


def contains(words: Sequence[str], part: Sequence[str]) -> bool:
    """True if `words` has `part`, one or more words, one after the other."""
    places = range(len(words) - len(part) + 1)
    return bool(part) and any(list(words[i : i + len(part)]) == list(part) for i in places)


def options_of(case: Case) -> tuple[str, ...]:
    """The prepositions to choose from: those of the subset, or of all four captions; or the case's
    own answers."""
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
    return {
        "id": case.id,
        "group": case.group,
        "image": case.meta.get("record", case.id),  # that cases may share
        "captions": list(case.captions),
        "scores": [float(parsed is not None and parsed == each) for each in named],
        "correct": parsed is not None and parsed == named[0],
        "tie": False,
        "question": question,
        "answer": answer,
        "parsed": parsed,
    }
