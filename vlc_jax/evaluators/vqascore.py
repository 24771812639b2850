"""VQAScore (Lin et al. 2024, arXiv:2404.01291): the score of an image and a caption is the log
probability of "Yes" after a question about the caption.

    score = 1/n sum_t log p(y_t | image, question, y_<t),    y = "Yes", end token

The code of "Exploring How Generative MLLMs Perceive More Than CLIP with the Same Vision Encoder"
(ACL 2025) prints its exponential, sqrt(p(Yes) p(end | Yes)), with the same ranking; without the end
token the exponential is p(Yes).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vlc_jax.errors import UsageError, known
from vlc_jax.evaluators import prompts
from vlc_jax.evaluators.scorer import Scorer, require_questions
from vlc_jax.input_pipeline.record import Caption, Conversation
from vlc_jax.types import TextFeatures

OPTIONS = ("question", "answer", "eos")


def check(options: Any) -> None:
    """Raises UsageError for invalid options of `asking`, and for a question without {}."""
    if not isinstance(options, Mapping):
        raise UsageError(
            f"vqascore is a mapping of some of {OPTIONS}, {{}} for none; got {options!r}"
        )
    for option in options:
        known("option of vqascore", option, OPTIONS)
    question = options.get("question")
    if question and "{}" not in question:
        raise UsageError(f"a question has {{}} in the place of the caption; got {question!r}")


def asking(scorer: Scorer, question: str = "", answer: str = "", eos: bool = True) -> Scorer:
    """A Scorer whose score is log p(answer | image, question about the caption).

    question: with {} in place of the caption.   answer: the scored answer.
    Default: the tokenizer's question and answer (config.text.tokenizer_options) if it has a
    question, else prompts.VQASCORE and "Yes".   eos: whether the end token counts.
    Raises UsageError for a question without {}, and for a model that answers no questions.
    """
    check({"question": question})
    prompt = require_questions(scorer)
    if not prompt["question"]:
        prompt = {**prompt, "question": prompts.VQASCORE, "answer": "Yes"}
    question, answer = question or prompt["question"], answer or prompt["answer"]
    facts = {**prompt, "question": question, "answer": answer, "eos": eos}

    # the head scores the answer alone: the question is context, not a part of the score
    def embed_texts(texts: Sequence[Caption]) -> TextFeatures:
        questions = [question.replace("{}", str(text)) for text in texts]
        return scorer.embed_texts([Conversation.scored(q, answer, eos) for q in questions])

    return scorer._replace(embed_texts=embed_texts, prompt=facts)
