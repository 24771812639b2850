"""Greedy completion of prompts by a language model in this process, to write hard texts."""

import collections
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Int

from vlc_jax.encode.batches import padded
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.hard_texts.llm.answers import TOO_LONG, Answer
from vlc_jax.input_pipeline.tokenizers.decoder import DecoderTokenizer
from vlc_jax.models import continuation, decode, lm

# Prompts are padded on the left to multiples of it, and each length compiles a program.
_LENGTHS = 32


class LanguageModel(NamedTuple):
    """A decoder with parameters and tokenizer.

    ends: ids that end an answer.   positions: maximum number of tokens of prompt and answer.
    """

    name: str
    decoder: lm.Decoder
    params: Any
    tokenizer: DecoderTokenizer
    ends: Sequence[int]
    positions: int


class Question(NamedTuple):
    """A prompt to continue.   stop: strings before which an answer ends."""

    name: str
    prompt: str
    max_tokens: int
    stop: tuple[str, ...]


def answers(
    model: LanguageModel, questions: Iterable[Question], batch_size: int
) -> Iterator[tuple[str, Answer]]:
    """Yields the name of each question and its answer, `batch_size` of similar length at a time.

    An answer does not depend on the other prompts of its batch. A prompt that leaves no room for an
    answer gets TOO_LONG. Raises UsageError if the tokenizer has more ids than the model.
    """
    if model.tokenizer.vocab_size > model.decoder.vocab:
        raise UsageError(
            f"{model.tokenizer.path} has {model.tokenizer.vocab_size} tokens and the model only "
            f"{model.decoder.vocab}: it is another model's tokenizer"
        )
    tokenizer = model.tokenizer
    # BPE has many tokens with a line break, such as ".\n"
    line_ends = [i for i in range(tokenizer.vocab_size) if "\n" in tokenizer.decode([i])]
    waiting: dict[Any, list[tuple[Question, list[int]]]] = collections.defaultdict(list)

    def answer(kind: tuple[int, int, tuple[str, ...]]) -> Iterator[tuple[str, Answer]]:
        ends = [*model.ends, *(line_ends if "\n" in kind[-1] else ())]
        yield from _answers(model, waiting.pop(kind), kind[0], batch_size, ends)

    for question in questions:
        ids = model.tokenizer.encode(question.prompt, has_start=True)
        length = -(-len(ids) // _LENGTHS) * _LENGTHS
        if length + question.max_tokens > model.positions:
            yield question.name, Answer(None, TOO_LONG, len(ids), 0, model.name)
            continue
        kind = length, question.max_tokens, question.stop
        waiting[kind].append((question, ids))
        if len(waiting[kind]) == batch_size:
            yield from answer(kind)
    for kind in sorted(waiting):
        yield from answer(kind)


def _answers(
    model: LanguageModel,
    rows: Sequence[tuple[Question, list[int]]],
    length: int,
    batch_size: int,
    ends: Sequence[int],
) -> Iterator[tuple[str, Answer]]:
    """Yields (name, answer) of each question; the batch is padded with copies of the first row."""
    filled = [*rows, *[rows[0]] * (batch_size - len(rows))]
    tokens, valid = padded([ids for _, ids in filled], length, is_left=True)
    decoded = np.asarray(
        _greedy(
            model.decoder,
            model.params,
            ids=tokens,
            valid=valid,
            ends=np.asarray(ends, np.int32),
            steps=rows[0][0].max_tokens,
        )
    )
    for (question, prompt), ids in zip(rows, decoded, strict=False):
        is_end = np.isin(ids, ends)
        count = int(is_end.argmax()) + 1 if is_end.any() else len(ids)
        # the model's embedding may have more rows than the tokenizer has ids
        known = [i for i in ids[:count].tolist() if i < model.tokenizer.vocab_size]
        text, finish = model.tokenizer.decode(known), "stop" if is_end.any() else "length"
        for stop in question.stop:
            if stop in text:
                text, finish = text.partition(stop)[0], "stop"
        yield question.name, Answer(text, finish, len(prompt), count, model.name)


@partial(jax.jit, static_argnames=("decoder", "steps"))
def _greedy(
    decoder: lm.Decoder,
    params: Any,
    ids: Int[Array, "batch length"],
    valid: Bool[Array, "batch length"],
    ends: Int[Array, " ends"],
    *,
    steps: int,
) -> Int[Array, "batch steps"]:
    embeds = continuation.apply(decoder, params, ids, method="embed")
    prompt = continuation.Prompt(embeds, valid)
    return decode.generate(decoder, params, (prompt,), ends, steps=steps)
