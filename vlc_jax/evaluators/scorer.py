"""Scorer: the functions of images and captions that evaluators get instead of a model."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
from jaxtyping import Float

from vlc_jax.errors import UsageError, known
from vlc_jax.input_pipeline.record import Caption, ImageLike
from vlc_jax.types import ImageFeatures, TextFeatures

Features = TypeVar("Features", ImageFeatures, TextFeatures)
DecodingKind = Literal["greedy", "m3id"]
Ability = Literal["writes", "scores_answers", "embeds", "is_cosine"]


class Decoding(NamedTuple):
    """Decoding of answers: greedy, or greedy with M3ID's correction.

    max_tokens: including the end token.   alpha, decay, first_step: M3ID's
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


class Segments(NamedTuple):
    """Scores by the segments of a text, without training (vlc_jax/encode/segments.py).

    regions: parts of the image, patches of the image tower | crops that it encodes.
    weight: of the segments; 1 - weight is that of the whole text and image.
    relations: whether two phrases with the words between them are a segment, too.
    best: number of parts whose mean cosine counts for a segment.
    grids: sizes of crops, n x n of each.
    tagger: of noun phrases, "words", or as "spacy:en_core_web_sm".
    """

    regions: Literal["patches", "crops"] = "patches"
    weight: float = 0.5
    relations: bool = False
    best: int = 1
    grids: tuple[int, ...] = (1, 2, 3)
    tagger: str = "words"


SEGMENTS = {"patches": Segments(), "crops": Segments("crops", weight=1.0, relations=True)}


def segments(value: Any) -> Segments | None:
    """The option `segments`: True (patches), the name of regions, a mapping of fields of
    `Segments`, whose other fields are those of its regions, or False for none.

    Raises UsageError for anything else.
    """
    if value in (None, False, ""):
        return None
    given = {} if value is True else {"regions": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping):
        raise UsageError(f"segments is True, patches, crops or a dict of options; got {value!r}")
    for name in given:
        known("option of segments", name, Segments._fields)
    regions = str(given.get("regions", "patches"))
    how = SEGMENTS[known("regions of segments", regions, SEGMENTS)]._replace(**given)
    counts = [how.best, *how.grids] if isinstance(how.grids, tuple | list) else [0]
    if not isinstance(how.weight, int | float) or not 0 <= how.weight <= 1:
        raise UsageError(f"segments.weight is from 0 to 1; got {how.weight!r}")
    if not how.grids or not all(type(count) is int and count > 0 for count in counts):
        raise UsageError(
            "segments.best is a whole number from 1 on, and segments.grids is a list of such; got "
            f"{how.best!r} and {how.grids!r}"
        )
    for name, kind in (("relations", bool), ("tagger", str)):
        if not isinstance(value := getattr(how, name), kind):
            raise UsageError(f"segments.{name} is a {kind.__name__}; got {value!r}")
    return how._replace(grids=tuple(how.grids))


# ability -> message for a model that lacks it
REFUSALS = {
    "writes": (
        "this protocol reads generated text, and this model writes nothing: take a captioner"
    ),
    "scores_answers": (
        "this protocol scores answers to questions, and this model cannot: take a "
        "captioner with the tokenizer 'conversation' and config.model.head.scores='answer', "
        "such as LLaVA"
    ),
    "embeds": (
        "this protocol reads embeddings, and this model has only scores: take an object with the "
        "methods embed_images and embed_texts, or leave the benchmark or its option out"
    ),
    "is_cosine": (
        "negation and segments compare embeddings of texts, and the score of this model is no dot "
        "product of two embeddings: leave negation and segments out"
    ),
}


class Abilities(NamedTuple):
    """Abilities of a model that some protocols need.

    writes: generates answers.   scores_answers: its scores are those of answers to questions.
    embeds: has embeddings of images and texts, and not only scores.   is_cosine: a score is the dot
    product of two embeddings.
    """

    writes: bool
    scores_answers: bool
    embeds: bool = True
    is_cosine: bool = False

    def require(self, ability: Ability) -> None:
        """Raises UsageError if the model lacks the ability."""
        if not getattr(self, ability):
            raise UsageError(REFUSALS[ability])


class Scorer(NamedTuple):
    """Functions of a model; features and scores are numpy arrays on the host.

    embed_images   n images -> ImageFeatures of n rows
    embed_texts    n captions -> TextFeatures of n rows
    score          ImageFeatures n, TextFeatures m -> (n, m), every image with every text
    score_options  ImageFeatures n, TextFeatures n * k -> (n, k): image i with texts
                   i * k ... i * k + k - 1
    image_tokens   n images -> ImageFeatures of the tower, with projected tokens of its patches
    text_tokens    n strings -> TextFeatures of the tower, with projected tokens and `mask`; None if
                   texts are precomputed vectors
    answers        ImageFeatures n, n questions, a Decoding -> n strings; None if the model
                   generates no text
    prompt         facts for the results: the prompt format ("template"), and the question about a
                   caption with its answer ("question", "answer"); None if the model's scores are
                   not those of answers to questions
    embeds         False if `pooled` is no embedding, and only scores have a meaning
    is_cosine      True if a score is the dot product of the two `pooled`
    by_segments    Segments -> the model with scores by segments of texts; None if it has no towers
                   whose cosine is its score
    """

    embed_images: Callable[[Sequence[ImageLike]], ImageFeatures]
    embed_texts: Callable[[Sequence[Caption]], TextFeatures]
    score: Callable[[ImageFeatures, TextFeatures], Float[np.ndarray, "images texts"]]
    score_options: Callable[[ImageFeatures, TextFeatures], Float[np.ndarray, "images options"]]
    image_tokens: Callable[[Sequence[ImageLike]], ImageFeatures] | None = None
    text_tokens: Callable[[Sequence[str]], TextFeatures] | None = None
    answers: Callable[[ImageFeatures, Sequence[str], Decoding], list[str]] | None = None
    prompt: Mapping[str, str] | None = None
    embeds: bool = True
    is_cosine: bool = False
    by_segments: "Callable[[Segments], Scorer] | None" = None

    @property
    def abilities(self) -> Abilities:
        """Abilities of the model, from the functions that are not None."""
        writes, scores_answers = self.answers is not None, self.prompt is not None
        return Abilities(writes, scores_answers, self.embeds, self.is_cosine)


def require_questions(scorer: Scorer) -> Mapping[str, str]:
    """`Scorer.prompt`. Raises UsageError for a model that scores no answers."""
    scorer.abilities.require("scores_answers")
    return scorer.prompt


def answers(
    scorer: Scorer, images: ImageFeatures, questions: Sequence[str], how: Decoding
) -> list[str]:
    """Generated answer to question i about image i. Raises UsageError for a model that generates
    no text."""
    how.check()
    scorer.abilities.require("writes")
    return scorer.answers(images, questions, how)


def in_segments(scorer: Scorer, how: Segments) -> Scorer:
    """The model with scores by segments of texts. Raises UsageError for one whose score is no
    cosine, and for functions of embeddings without towers."""
    scorer.abilities.require("is_cosine")
    if scorer.by_segments is None:
        raise UsageError(
            "segments need the towers of a model of this library, and this one has only functions "
            "of whole images and texts: leave segments out"
        )
    return scorer.by_segments(how)


def take(features: Features, rows: np.ndarray | slice) -> Features:
    """Rows of every array of an ImageFeatures or TextFeatures."""
    # None: arrays that the head of this model does not read
    return type(features)(*(None if array is None else array[rows] for array in features))


def embed_texts_once(scorer: Scorer, texts: Sequence[Caption]) -> TextFeatures:
    """Features of all texts, in order; each distinct string is embedded once."""
    # Not only for speed: rounding may differ between batches and rows, and equal captions must tie.
    row = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    features = scorer.embed_texts(list(row))
    return take(features, np.array([row[text] for text in texts], np.int64))
