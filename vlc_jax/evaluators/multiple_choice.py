"""Multiple choice: two images, each with a question and two options, "(a) Open (b) Closed" (MMVP).

The answer is the option of the lowest perplexity, or generated text, in which we look for the
letter (Tong et al., CVPR 2024, have it judged by a person or GPT-4). The relaxed pair is from "On
Erroneous Agreements of CLIP Image Embeddings" (2024, section 5.2).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float, Int

from vlc_jax.errors import UsageError, known
from vlc_jax.evaluators import groups, prompts, stats, ties
from vlc_jax.evaluators.cases import check_cases, chunked, image_name, row
from vlc_jax.evaluators.keywords import options_in, words_of
from vlc_jax.evaluators.scorer import (
    Decoding,
    DecodingKind,
    Scorer,
    answers,
    embed_texts_once,
    require_questions,
)
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import Conversation

LETTERS = ("A", "B")
ANSWERS = ("letters", "options")
# not of a word, "A's" or a tag "</b>"
_LETTER = re.compile(r"(?<![^\W_])(?<!\w['’])(?<!<)(?<!</)[ab](?![^\W_]|['’]\w)", re.I)
_NOUN = re.compile(r"\s+[\"'“‘]?(?!(and|as|because|but|is|or|since|[ab])\b)\w", re.I)
PERPLEXITY = "perplexity"  # value of `decoding`: score both options, generate nothing


def check(*, decoding: str, answer: str, tie: str, max_tokens: int, **others: Any) -> None:
    """Raises UsageError for invalid options of `evaluate`."""
    del others
    ties.check(tie)
    known("answer", answer, ANSWERS)
    known("decoding", decoding, (PERPLEXITY, *get_args(DecodingKind)))
    if decoding != PERPLEXITY:
        Decoding(decoding, max_tokens).check()
        if answer != "letters":
            raise UsageError(
                f"answer={answer!r} is of decoding='perplexity'; generated text is read as letters"
            )


def needs(*, decoding: str, **others: Any) -> Literal["writes", "scores_answers"]:
    """Ability of a model that `evaluate` requires."""
    del others
    return "scores_answers" if decoding == PERPLEXITY else "writes"


def evaluate(
    benchmark: Benchmark,
    scorer: Scorer,
    *,
    decoding: str = "perplexity",
    answer: str = "letters",
    tie: str = "strict",
    max_tokens: int = 16,
    alpha: float = 0.6,
    decay: float = 0.15,
    first_step: int = 1,
    chunk: int = 128,
) -> stats.EvalResult:
    """Individual and pair accuracy, over all cases, per group and as means.

    individual_accuracy   an image gets its correct option; chance 1/2
    pair_accuracy         both images of a pair do; chance 1/4
    relaxed_pair          with perplexity only, see `relaxed`; chance 1/2
    relaxed_pair_literal  the same as printed in the paper, which is the opposite
    unparsed              with generated text only: share of answers that name no letter, or several

    decoding: perplexity (of both options), or text generated with greedy or m3id (its alpha, decay
      and first_step).
    tie: see `ties`; first_index takes (a), last_index (b). Generated text is always read strictly.
    answer: texts of the perplexity: letters, "A" and "B", or options, "(a) Open" and "(b) Closed",
      each with an end token. Letters have equal numbers of tokens, so the lowest perplexity is also
      the highest probability.

    The prompt is always MMVP's question, its options, and "Answer with the option's letter from the
    given choices directly." Raises UsageError for a model that answers no questions, DataError for
    cases without questions (MMVP and MMVP-VLM have them with `texts="questions"`).
    """
    check(decoding=decoding, answer=answer, tie=tie, max_tokens=max_tokens)
    check_cases(
        benchmark,
        "multiple choice needs two images and a question about each (of MMVP and MMVP-VLM set "
        "texts='questions')",
        lambda case: len(case.images) == len(case.meta.get("questions", ())) == 2,
    )
    parts = chunked(benchmark.cases, chunk)
    if decoding == PERPLEXITY:
        return _by_perplexity(benchmark, parts, scorer, answer, tie)
    how = Decoding(decoding, max_tokens, alpha, decay, first_step)
    return _by_written_text(benchmark, parts, scorer, how)


def _by_perplexity(
    benchmark: Benchmark, parts: Sequence[Sequence[Case]], scorer: Scorer, answer: str, tie: str
) -> stats.EvalResult:
    template = require_questions(scorer)
    scores = np.concatenate([_log_scores(part, scorer, answer) for part in parts])
    stats.require_finite(scores, benchmark.name)
    details = {"decoding": PERPLEXITY, "answer": answer}
    details |= {"tie": tie, "prompt": _prompt(benchmark, template)}
    metrics = _metrics(scores, benchmark, tie, is_written=False)
    return stats.EvalResult(metrics, [*map(_row, benchmark.cases, scores)], details)


def _by_written_text(
    benchmark: Benchmark, parts: Sequence[Sequence[Case]], scorer: Scorer, how: Decoding
) -> stats.EvalResult:
    # an unparsed answer earns nothing, rather than a share of a draw
    tie = "strict"
    written = [each for part in parts for each in _written(part, scorer, how)]
    scores = _named(benchmark.cases, written)
    details = {"decoding": how._asdict(), "answer": "letters"}
    details |= {"tie": tie, "prompt": _prompt(benchmark, scorer.prompt or {})}
    metrics = _metrics(scores, benchmark, tie, is_written=True)
    pairs = np.array(written, dtype=object).reshape(-1, 2)
    rows = [
        _row(*case) | {"answers": list(pair)}
        for *case, pair in zip(benchmark.cases, scores, pairs, strict=True)
    ]
    # an answer without a letter has 0 for both options
    unparsed = scores.reshape(-1, 2, 2).max(axis=2).ravel() == 0
    clusters = np.repeat(stats.images_of(benchmark.cases), 2)
    metrics["unparsed"] = stats.proportion(unparsed, None, None, clusters)
    return stats.EvalResult(metrics, rows, details)


def _prompt(benchmark: Benchmark, template: Mapping[str, Any]) -> dict[str, Any]:
    first = _prompt_text(_questions(benchmark.cases[0])[0])
    return {"template": template.get("template"), "question": first}


def relaxed(scores: Float[np.ndarray, "cases 2 2"]) -> dict[str, Float[np.ndarray, "cases 2"]]:
    """Both sides of the relaxed comparison of a pair; the pair is right if the first is larger.

    scores: S / n, the mean log probability of option c given image i; c = i is right. With the
    perplexity ppl = exp(-S / n) the paper prints

        ppl_00 / (ppl_00 + ppl_01) > ppl_10 / (ppl_10 + ppl_11)

    and explains that option 0 should be more probable for image 0. But a probable text has a low
    perplexity: as printed (relaxed_pair_literal), a pair is right if image 0 prefers option 0
    less than image 1 does. relaxed_pair replaces ppl by 1 / ppl, which reverses the inequality.
    Both are compared as logarithms of the ratios, which cannot overflow:

        S_00 / n_00 - S_01 / n_01 > S_10 / n_10 - S_11 / n_11
    """
    # logarithms of the ratios: exp(-S / n) may overflow
    preference = scores[:, :, 0] - scores[:, :, 1]
    return {"relaxed_pair": preference, "relaxed_pair_literal": -preference}


def letter(answer: str, options: Sequence[str]) -> int | None:
    """Index of the option that an answer names; None if it names none or several, or denies one.

    A letter that stands alone names its option: "(b)", "**B**", "B. Closed", "The answer is B". An
    "a" before another word is an article ("A dog is ..."), except in "Option A shows" or before
    "is", "because" and other words that follow no article; so is a last "a", where the answer may
    have been cut, except behind "answer" or "answer is". Without a letter, the words of an option
    name it (`keywords.options_in`). "A. Closed" names none if Closed is B.
    """
    words = words_of(answer)[1:]
    marked = _LETTER.sub(lambda match: "" if _is_article(match) else f" option{match[0]} ", answer)
    named = options_in(marked, [f"option{each}" for each in LETTERS])
    if marked == _LETTER.sub("", answer):
        named = options_in(answer, options)
    elif any(words == words_of(option) for k, option in enumerate(options) if k not in named):
        return None
    return named.pop() if len(named) == 1 else None


def _is_article(match: re.Match[str]) -> bool:
    """True for an "a" that is an article, or the last word of an answer that was cut."""
    before, after = match.string[: match.start()], match.string[match.end() :]
    if match[0] not in "aA" or re.search(r"\b(choice|letter|option)\s+$", before, re.I):
        return False
    if after.strip():
        return bool(_NOUN.match(after))
    is_answer = re.search(r"\b(answer|choice|letter|option)(\s+is)?\s+$", before, re.I)
    return match[0] == "a" and bool(re.search(r"\w\s+$", before)) and not is_answer


def _log_scores(
    cases: Sequence[Case], scorer: Scorer, answer: str
) -> Float[np.ndarray, "cases 2 2"]:
    """S / n of both images with both options; option i is the correct one of image i."""
    images = scorer.embed_images([image for case in cases for image in case.images])
    texts = []
    for question in (each for case in cases for each in _questions(case)):
        options = [f"({'ab'[k]}) {option}" for k, option in enumerate(question["options"])]
        texts += [
            Conversation.scored(_prompt_text(question), each)
            for each in (LETTERS, options)[ANSWERS.index(answer)]
        ]
    scores = np.array(scorer.score_options(images, embed_texts_once(scorer, texts)), np.float64)
    return _by_own_option(cases, scores.reshape(-1, 2, 2))


def _written(cases: Sequence[Case], scorer: Scorer, how: Decoding) -> list[str]:
    images = scorer.embed_images([image for case in cases for image in case.images])
    questions = [_prompt_text(question) for case in cases for question in _questions(case)]
    return answers(scorer, images, questions, how)


def _named(cases: Sequence[Case], written: Sequence[str]) -> Float[np.ndarray, "cases 2 2"]:
    """1 for the option that an answer names, 0 for the others."""
    scores = np.zeros((2 * len(cases), 2))
    questions = [question for case in cases for question in _questions(case)]
    for image_scores, text, question in zip(scores, written, questions, strict=True):
        named = letter(text, question["options"])
        if named is not None:
            image_scores[named] = 1
    return _by_own_option(cases, scores.reshape(-1, 2, 2))


def _by_own_option(
    cases: Sequence[Case], scores: Float[np.ndarray, "cases 2 2"]
) -> Float[np.ndarray, "cases 2 2"]:
    """Scores of options (a) and (b) of each image -> [i, j]: option j is correct for image j.

    Column j of image i != j is the wrong option of image i: the same text as the correct option of
    image j if both images have the same options.
    """
    index = _right(cases)[:, :, None]
    right = np.take_along_axis(scores, index, axis=2)[:, :, 0]
    wrong = np.take_along_axis(scores, 1 - index, axis=2)[:, :, 0]
    return np.stack(
        [np.stack([right[:, 0], wrong[:, 0]], 1), np.stack([wrong[:, 1], right[:, 1]], 1)], 1
    )


def _right(cases: Sequence[Case]) -> Int[np.ndarray, "cases 2"]:
    """Index of each image's correct option; (a) is 0."""
    return np.array([[question["answer"] for question in _questions(case)] for case in cases])


def _metrics(
    scores: Float[np.ndarray, "cases 2 2"], benchmark: Benchmark, tie: str, is_written: bool
) -> dict[str, stats.Estimate]:
    labels, clusters = [c.group for c in benchmark.cases], stats.images_of(benchmark.cases)
    right, wrong = scores[:, [0, 1], [0, 1]], scores[:, [0, 1], [1, 0]]
    credit = np.stack([_credit(right[:, i], wrong[:, i], tie) for i in (0, 1)], axis=1)
    if tie in ("first_index", "last_index"):  # takes (a), or (b)
        chosen = ("first_index", "last_index").index(tie)
        credit = np.where(right == wrong, _right(benchmark.cases) == chosen, credit)
    tied = (right == wrong) & (not is_written)
    twice = [group for group in labels for _ in (0, 1)]
    per_metric = {
        "pair_accuracy": (labels, credit.prod(axis=1), 1 / 4, tied.any(axis=1), clusters),
        "individual_accuracy": (twice, credit.ravel(), 1 / 2, tied.ravel(), np.repeat(clusters, 2)),
    }
    for name, sides in () if is_written else relaxed(scores).items():
        first, second = sides.T
        per_metric[name] = (labels, _credit(first, second, tie), 1 / 2, first == second, clusters)
    metrics: dict[str, stats.Estimate] = {}
    for name, (group, each, chance, is_tie, cluster) in per_metric.items():
        decisions = groups.Decisions(group, each, np.full(len(each), chance), is_tie, cluster)
        metrics |= groups.metrics(name, decisions, benchmark)
    return metrics


def _credit(
    first: Float[np.ndarray, " cases"], second: Float[np.ndarray, " cases"], tie: str
) -> Float[np.ndarray, " cases"]:
    """1 where the first is larger; equal scores earn the tie policy's credit."""
    return ties.credit(np.stack([first, second], axis=1), lambda s: s[:, 0] > s[:, 1], tie)


def _row(case: Case, scores: Float[np.ndarray, "2 2"]) -> dict[str, object]:
    is_right = [bool(scores[i, i] > scores[i, 1 - i]) for i in (0, 1)]
    return row(
        case,
        case.captions,
        scores.tolist(),  # one row per image
        all(is_right),
        tie=(scores[:, 0] == scores[:, 1]).any(),
        image=image_name(case),
        individual=is_right,
        questions=[_prompt_text(question) for question in _questions(case)],
    )


def _prompt_text(question: Mapping[str, Any]) -> str:
    return prompts.multiple_choice_question(question["question"], question["text"])


def _questions(case: Case) -> Sequence[Mapping[str, Any]]:
    return case.meta["questions"]
