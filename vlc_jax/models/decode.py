"""Greedy decoding and M3ID decoding from a cached prompt.

All functions take the embeddings of a prompt, image tokens included
(models.captioner.Captioner.prompt), and run the prompt through the language model once. Programs
are compiled once per shape, decoder and number of steps.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from vlc_jax.models import lm
from vlc_jax.models.continuation import Prompt, apply, prefill


class M3ID(NamedTuple):
    """Parameters of M3ID decoding.

    alpha: 0.6 in the paper.   decay: lambda, 0.15 in the paper.   first_step: t of the first token,
      0 or 1; the paper leaves it open. At 0 the first token is the one of greedy decoding.
    """

    alpha: float | Float[Array, ""] = 0.6
    decay: float | Float[Array, ""] = 0.15
    first_step: int | Int[Array, ""] = 1


@partial(jax.jit, static_argnames=("decoder", "steps"))
def generate(
    decoder: lm.Decoder,
    params: Any,
    prompts: tuple[Prompt, ...],
    terminators: Int[Array, " ends"],
    numbers: M3ID | None = None,
    *,
    steps: int,
) -> Int[Array, "batch steps"]:
    """Ids of the likeliest next tokens, up to and including the first of `terminators`.

    The rest of a row is filled with terminators[0]. The loop ends when every row has ended.

    prompts: one prompt per row; for M3ID a second one, the same without its image tokens.
    numbers: M3ID instead of greedy decoding (Favero et al. 2024, arXiv:2403.14003): the image gets
      more weight at uncertain and at later tokens. With l_c and l_u the log probabilities given the
      text so far, with and without the image, the next token maximises
      l_c + [max l_c < log alpha] (exp(decay t) - 1) (l_c - l_u).
    """
    # no loop of fixed length: most answers end long before `steps`
    return jax.lax.while_loop(
        lambda state: (state.step < steps) & ~state.done.all(),
        lambda state: _next_token(decoder, params, prompts, terminators, numbers, state),
        _first_token(decoder, params, prompts, terminators, numbers, steps=steps),
    ).ids


def stream(
    decoder: lm.Decoder,
    params: Any,
    prompts: tuple[Prompt, ...],
    terminators: Int[Array, " ends"],
    numbers: M3ID | None = None,
    *,
    steps: int,
) -> Iterator[int]:
    """Yields the ids of `generate` for prompts of one row, one by one, without the terminator."""
    state = _first_token(decoder, params, prompts, terminators, numbers, steps=steps)
    for _ in range(steps):
        if state.done[0]:
            return
        yield int(state.token[0])
        # the caches have no slot for another token
        if int(state.step) == steps:
            return
        # one program for all steps, since state.step is an array and no Python number
        state = _next_token(decoder, params, prompts, terminators, numbers, state)


class _State(NamedTuple):
    """State of decoding: number of tokens so far, all ids, the last id, whether a row has ended,
    and one cache per prompt of a row."""

    step: Int[Array, ""]
    ids: Int[Array, "batch steps"]
    token: Int[Array, " batch"]
    done: Bool[Array, " batch"]
    caches: tuple[lm.Cache, ...]


def m3id_weight(numbers: M3ID, step: Int[Array, ""]) -> Float[Array, ""]:
    """exp(decay t) - 1, the (1 - e^-x) / e^-x of the paper; t is `step` counted from first_step."""
    return jnp.expm1(numbers.decay * (step + numbers.first_step))


def _chosen(
    logits: tuple[Float[Array, "batch vocab"], ...], step: Int[Array, ""], numbers: M3ID | None
) -> Int[Array, " batch"]:
    if numbers is None:
        # logits: the softmax over the vocabulary does not change their order
        return jnp.argmax(logits[0], axis=-1)
    with_image, without = (jax.nn.log_softmax(x) for x in logits)
    is_unsure = with_image.max(axis=-1, keepdims=True) < jnp.log(numbers.alpha)
    weight = jnp.where(is_unsure, m3id_weight(numbers, step), 0.0)
    return jnp.argmax(with_image + weight * (with_image - without), axis=-1)


@partial(jax.jit, static_argnames=("decoder", "steps"))
def _first_token(
    decoder: lm.Decoder,
    params: Any,
    prompts: tuple[Prompt, ...],
    terminators: Int[Array, " ends"],
    numbers: M3ID | None,
    *,
    steps: int,
) -> _State:
    # steps - 1 slots: the last token is chosen, but never fed back
    prefilled = [prefill(decoder, params, p, steps - 1) for p in prompts]
    token = _chosen(tuple(logits for logits, _ in prefilled), jnp.zeros((), jnp.int32), numbers)
    # terminators, not zeros: the loop of `generate` may stop before it has written all columns
    ids = jnp.full((len(token), steps), terminators[0]).at[:, 0].set(token)
    token, done = token.astype(ids.dtype), jnp.isin(token, terminators)
    caches = tuple(cache for _, cache in prefilled)
    return _State(jnp.ones((), jnp.int32), ids, token, done, caches)


@partial(jax.jit, static_argnames="decoder")
def _next_token(
    decoder: lm.Decoder,
    params: Any,
    prompts: tuple[Prompt, ...],
    terminators: Int[Array, " ends"],
    numbers: M3ID | None,
    state: _State,
) -> _State:
    steps = state.ids.shape[1]
    embeds = apply(decoder, params, state.token[:, None], method="embed")
    logits, grown = [], []
    for prompt, cache in zip(prompts, state.caches, strict=True):
        slots = prompt.with_more_slots(steps - 1)
        # the last token is not in the cache yet: its slot is start + step - 1
        at = {"start": prompt.valid.shape[1] + state.step - 1, "media": slots["media"]}
        hidden, cache = apply(decoder, params, embeds, slots["valid"], cache=cache, **at)
        logits.append(apply(decoder, params, hidden[:, 0], method="logits"))
        grown.append(cache)
    token = _chosen(tuple(logits), state.step, numbers)
    # ended rows are still computed with the batch; their tokens are overwritten
    token = jnp.where(state.done, terminators[0], token).astype(state.ids.dtype)
    ids = state.ids.at[:, state.step].set(token)
    done = state.done | jnp.isin(token, terminators)
    return _State(state.step + 1, ids, token, done, tuple(grown))
