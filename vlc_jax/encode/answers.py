"""Answers of a model that writes text: images and questions in, strings out."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Bool, Int

from vlc_jax.encode.batches import by_length, compiled, padded
from vlc_jax.errors import UsageError
from vlc_jax.evaluators.scorer import Decoding, take
from vlc_jax.models import decode
from vlc_jax.models.continuation import Prompt
from vlc_jax.setup.model import abilities
from vlc_jax.types import ImageFeatures
from vlc_jax.types.setup import Setup

# Questions are padded to multiples of it, each of which compiles a program.
COLUMNS = 16


def can_answer(setup: Setup) -> bool:
    """True if the model's head writes text and its tokenizer turns ids into text."""
    return abilities(setup.model, setup.tokenizer).writes


def prompt(setup: Setup) -> dict[str, str] | None:
    """`Scorer.prompt`: the template around a question, and the tokenizer's question and answer.

    The question is about a caption. None unless the model's scores are of answers.
    """
    head, tokenizer = setup.model.head, setup.tokenizer
    if not abilities(setup.model, tokenizer).scores_answers:
        return None
    before = tokenizer.decode(head.prefix, special=True)
    texts = tokenizer.texts
    template = f"{before}<image>{texts.template}"
    return {"template": template, "question": texts.question, "answer": texts.answer}


class Answers:
    """Compiled decoding by the head of a model, from image features that are computed elsewhere.

    Raises UsageError for a model that writes no text.
    """

    def __init__(self, setup: Setup):
        if not can_answer(setup):
            model, text = setup.config["model"]["name"], setup.config["text"]["tokenizer"]
            raise UsageError(
                f"the model {model!r} with the tokenizer {text!r} writes no text: take a captioner "
                "(config.model.name='captioner') whose tokenizer turns ids into text, such as "
                "words, conversation, hf or sentencepiece"
            )
        self._setup, self.tokenizer = setup, setup.tokenizer
        self._ends = np.array(self.tokenizer.terminators, np.int32)
        # caches of this object: one on the class would keep every setup alive
        self._compiled = lru_cache(self._compile)
        self._prompts = lru_cache(lambda kind: compiled(setup, partial(_prompts, kind)))

    def __call__(
        self,
        variables: Any,
        images: ImageFeatures,
        questions: Sequence[str],
        decoding: Decoding,
        rows: int,
        count: Callable[[int], None] = lambda number: None,
    ) -> list[str]:
        """Answers to question i about image i, decoded `rows` at a time.

        The last batch is padded with copies. An answer does not depend on the others.
        count: called with the number of answers of each batch.
        """
        ids = [self.tokenizer.prompt(question) for question in questions]
        self._check(decoding, ids, images)
        decode_all = self._compiled(decoding.kind, decoding.max_tokens)
        answers = [""] * len(ids)
        for columns, batch, filled in by_length([_columns(row) for row in ids], rows):
            text = padded([ids[index] for index in filled], columns)
            image = take(images, np.array(filled))
            decoded = decode_all(variables, image, *text, _numbers(decoding))
            for index, row in zip(batch, np.asarray(decoded), strict=False):
                answers[index] = self._text(row)
            count(len(batch))
        return answers

    def stream(
        self, variables: Any, image: ImageFeatures, question: str, decoding: Decoding
    ) -> Iterator[int]:
        """Yields the ids of the answer about one image, without the end token."""
        ids = [self.tokenizer.prompt(question)]
        self._check(decoding, ids, image)
        text = padded(ids, _columns(ids[0]))
        prompts = self._prompts(decoding.kind)(variables, image, *text)
        decoder_of = nn.apply(lambda model: model.head.decoder_and_params(), self._setup.model)
        inputs = (*decoder_of(variables), prompts, jnp.asarray(self._ends), _numbers(decoding))
        tokens = decode.stream(*inputs, steps=decoding.max_tokens)
        while True:
            # inside the loop: the mesh must not be set for the caller between two tokens
            with jax.set_mesh(self._setup.mesh):
                token = next(tokens, None)
            if token is None:
                return
            yield token

    def _compile(self, kind: str, steps: int) -> Any:
        def answer(
            model: nn.Module,
            image: ImageFeatures,
            ids: Int[Array, "images length"],
            valid: Bool[Array, "images length"],
            numbers: decode.M3ID | None,
        ) -> Int[Array, "images steps"]:
            prompts = _prompts(kind, model, image, ids, valid)
            inputs = (*model.head.decoder_and_params(), prompts, jnp.asarray(self._ends), numbers)
            return decode.generate(*inputs, steps=steps)

        return compiled(self._setup, answer)

    def _check(
        self, decoding: Decoding, ids: Sequence[Sequence[int]], images: ImageFeatures
    ) -> None:
        decoding.check()
        has_text = self._setup.model.head.prefix or images.question is not None or all(ids)
        if decoding.kind == "m3id" and not has_text:
            raise UsageError(
                "M3ID compares with the answer to the question without the image, and without a "
                "question nothing is left to read: ask one, or decode greedily"
            )

    def _text(self, ids: np.ndarray) -> str:
        """The text of an answer, up to the first end token."""
        ends = np.flatnonzero(np.isin(ids, self._ends))
        return self.tokenizer.decode(ids[: ends[0]] if len(ends) else ids).strip()


def _prompts(
    kind: str,
    model: nn.Module,
    image: ImageFeatures,
    ids: Int[Array, "images length"],
    valid: Bool[Array, "images length"],
) -> tuple[Prompt, ...]:
    """The prompts with the image, and for M3ID also the prompts without it."""
    sides = (True,) if kind == "greedy" else (True, False)
    return tuple(model.head.prompt(image, ids, valid, has_image=side) for side in sides)


def _numbers(decoding: Decoding) -> decode.M3ID | None:
    if decoding.kind == "greedy":
        return None
    return decode.M3ID(decoding.alpha, decoding.decay, decoding.first_step)


def _columns(ids: Sequence[int]) -> int:
    return -(-len(ids) // COLUMNS) * COLUMNS
