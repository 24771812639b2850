"""Scorer: functions from images and strings, which evaluators get instead of a model."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar, get_args

import numpy as np
from jaxtyping import Float

from vlc_jax.errors import UsageError, known
from vlc_jax.input_pipeline.record import ImageLike
from vlc_jax.types import ImageFeatures, TextFeatures

Features = TypeVar("Features", ImageFeatures, TextFeatures)
DecodingKind = Literal["greedy", "m3id"]
Ability = Literal["writes", "scores_answers"]


class Decoding(NamedTuple):
    """Decoding of answers: the likeliest token each time, or with M3ID's correction.

    max_tokens: the end token included.   alpha, decay, first_step: of M3ID
    (vlc_jax/models/decode.py).
    """

    kind: DecodingKind = "greedy"
    max_tokens: int = 16
    alpha: float = 0.6
    decay: float = 0.15
    first_step: int = 1

    def check(self) -> None:
        """Raises UsageError for an unknown kind and for max_tokens < 1."""
        known("decoding", self.kind, get_args(DecodingKind))
        if self.max_tokens < 1:
            raise UsageError(f"max_tokens is at least 1; got {self.max_tokens}")


# Of Abilities: what a protocol says of a model that lacks one.
REFUSALS = {
    "writes": (
        "this protocol reads what a model writes, and this one writes nothing: take a captioner"
    ),
    "scores_answers": (
        "this protocol scores answers to questions, and this model's scores are none: take a "
        "captioner with the tokenizer 'conversation' and config.model.head.scores='answer', "
        "such as LLaVA"
    ),
}


class Abilities(NamedTuple):
    """Abilities of a model that is asked a question about an image.

    writes: it writes an answer.   scores_answers: its scores are of answers to questions.
    """

    writes: bool
    scores_answers: bool

    def require(self, ability: Ability) -> None:
        """Raises UsageError for a model that cannot do it."""
        if not getattr(self, ability):
            raise UsageError(REFUSALS[ability])


class Scorer(NamedTuple):
    """Functions of a model; features and scores are numpy arrays on the host.

    embed_images   n pictures -> ImageFeatures of n rows
    embed_texts    n strings -> TextFeatures of n rows
    score          ImageFeatures n, TextFeatures m -> (n, m), every image with every text
    score_options  ImageFeatures n, TextFeatures n * k -> (n, k): image i with texts
                   i * k ... i * k + k - 1
    image_tokens   n pictures -> ImageFeatures of the tower, with projected tokens of its patches
    text_tokens    n strings -> TextFeatures of the tower, with projected tokens and `mask`; None of
                   a model whose texts are vectors
    answers        ImageFeatures n, n questions, a Decoding -> n strings; None of a model that
                   writes no text
    prompt         how a question reaches the model ("template"), and what is asked about a caption
                   alone ("question", "answer"), for the results; None of a model whose scores are
                   not those of answers to questions (`asked`)
    """

    embed_images: Callable[[Sequence[ImageLike]], ImageFeatures]
    embed_texts: Callable[[Sequence[str]], TextFeatures]
    score: Callable[[ImageFeatures, TextFeatures], Float[np.ndarray, "images texts"]]
    score_options: Callable[[ImageFeatures, TextFeatures], Float[np.ndarray, "images options"]]
    image_tokens: Callable[[Sequence[ImageLike]], ImageFeatures] | None = None
    text_tokens: Callable[[Sequence[str]], TextFeatures] | None = None
    answers: Callable[[ImageFeatures, Sequence[str], Decoding], list[str]] | None = None
    prompt: Mapping[str, str] | None = None

    @property
    def abilities(self) -> Abilities:
        """Abilities of the model, by what it has functions for."""
        return Abilities(self.answers is not None, self.prompt is not None)


def require_questions(scorer: Scorer) -> Mapping[str, str]:
    """The prompt around questions. Raises UsageError for a model that answers none."""
    scorer.abilities.require("scores_answers")
    return scorer.prompt


def answers(
    scorer: Scorer, images: ImageFeatures, questions: Sequence[str], how: Decoding
) -> list[str]:
    """The answer to question i about image i, in words. Raises UsageError for a model that writes
    none."""
    how.check()
    scorer.abilities.require("writes")
    return scorer.answers(images, questions, how)


def take(features: Features, rows: np.ndarray | slice) -> Features:
    """Selects rows of every array of an ImageFeatures or TextFeatures."""
    return type(features)(*(None if array is None else array[rows] for array in features))


def embed_texts_once(scorer: Scorer, texts: Sequence[str]) -> TextFeatures:
    """Features of all texts, in order, each different string embedded once."""
    # Not only for speed: in another batch or row a string may be rounded otherwise, and equal
    # captions must tie.
    row = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    features = scorer.embed_texts(list(row))
    return take(features, np.array([row[text] for text in texts], np.int64))
