"""Greedy decoding, M3ID decoding, and log probabilities of options, from a cached prompt.

All take the embeddings of a prompt, image tokens included (models.llava.LLaVA.embed), and run the
prompt through the language model once. Programs are compiled once per shape, decoder and number of
steps.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from vlc_jax.models import llava, lm
from vlc_jax.models.continuation import Prompt, apply, log_probabilities, prefill


@partial(jax.jit, static_argnames="model")
def image_tokens(
    model: llava.LLaVA, params: Any, image: Float[Array, "batch height width channels"]
) -> Float[Array, "batch patches embed"]:
    """Image tokens of normalised pixels, which prompts with the same image can share."""
    return model.apply({"params": params}, image, method="image_tokens")


@partial(jax.jit, static_argnames="model")
def embed_prompt(
    model: llava.LLaVA,
    params: Any,
    ids: Int[Array, "batch length"],
    valid: Bool[Array, "batch length"],
    tokens: Float[Array, "batch patches embed"] | None,
) -> Prompt:
    """Prompts of token ids, with the image tokens of row i at its image slots.

    tokens: None for prompts without their images, whose slots then hold no token: those of M3ID.
    """
    if tokens is None:
        valid = valid & (ids != model.image_id)
    return Prompt(model.apply({"params": params}, ids, tokens, method="embed"), valid)


Choose = Callable[[tuple[Float[Array, "batch vocab"], ...], Int[Array, ""]], Int[Array, "batch"]]


@partial(jax.jit, static_argnames=("decoder", "steps", "rope_length"))
def greedy(
    decoder: lm.Decoder,
    params: Any,
    prompt: Prompt,
    terminators: Int[Array, "ends"],
    *,
    steps: int,
    rope_length: int | None = None,
) -> Int[Array, "batch steps"]:
    """Ids of the likeliest next tokens, up to the first of `terminators`, which is kept.

    Behind it are copies of the first terminator. The loop ends when every row has ended.
    rope_length: see lm.Decoder.
    """

    def likeliest(logits: tuple[jax.Array, ...], step: jax.Array) -> jax.Array:
        del step
        return jnp.argmax(logits[0], axis=-1)

    return _decode(decoder, params, (prompt,), terminators, steps, rope_length, likeliest)


@partial(jax.jit, static_argnames=("decoder", "steps", "rope_length"))
def m3id(
    decoder: lm.Decoder,
    params: Any,
    prompt: Prompt,
    without_image: Prompt,
    terminators: Int[Array, "ends"],
    *,
    alpha: float | Float[Array, ""],
    decay: float | Float[Array, ""],
    first_step: int | Int[Array, ""],
    steps: int,
    rope_length: int | None = None,
) -> Int[Array, "batch steps"]:
    """Greedy decoding by M3ID (Favero et al. 2024, arXiv:2403.14003): the less the next token is
    sure, and the later it comes, the more the image counts.

    With l_c and l_u the log probabilities given the text so far, with and without the image, the
    next token maximises l_c + [max l_c < log alpha] (exp(decay t) - 1) (l_c - l_u).

    without_image: the same prompts, their image tokens removed.
    alpha: 0.6 in the paper.   decay: lambda, 0.15 there.   first_step: t of the first token, of
    which the paper does not say if it is 0, where it is never changed, or 1.
    """

    def corrected(logits: tuple[jax.Array, ...], step: jax.Array) -> jax.Array:
        with_image, without = (jax.nn.log_softmax(x) for x in logits)
        is_unsure = with_image.max(axis=-1, keepdims=True) < jnp.log(alpha)
        weight = jnp.where(is_unsure, jnp.expm1(decay * (step + first_step)), 0.0)
        return jnp.argmax(with_image + weight * (with_image - without), axis=-1)

    both = (prompt, without_image)
    return _decode(decoder, params, both, terminators, steps, rope_length, corrected)


@partial(jax.jit, static_argnames=("decoder", "rope_length"))
def option_scores(
    decoder: lm.Decoder,
    params: Any,
    prompt: Prompt,
    options: Int[Array, "batch options length"],
    valid: Bool[Array, "batch options length"],
    *,
    rope_length: int | None = None,
) -> tuple[Float[Array, "batch options"], Int[Array, "batch options"]]:
    """log p(option | prompt), and the number of the option's tokens; exp(-first / second) is its
    perplexity.

    options: token ids, terminator included if it is to count, padded on the right.   valid: which
    of them count.

    The prompt runs once (models.continuation.log_probabilities).
    """
    found = log_probabilities(decoder, params, prompt, options, rope_length)
    return jnp.sum(jnp.where(valid, found, 0.0), axis=2), valid.sum(axis=2)


def _decode(
    decoder: lm.Decoder,
    params: Any,
    prompts: tuple[Prompt, ...],
    terminators: Int[Array, "ends"],
    steps: int,
    rope_length: int | None,
    choose: Choose,
) -> Int[Array, "batch steps"]:
    """Tokens that `choose` takes, from the logits of several prompts of each row and the number of
    tokens before; every prompt is continued by the chosen ones."""
    starts = [prompt.valid.shape[1] for prompt in prompts]
    slots = [prompt.with_more_slots(steps - 1)["valid"] for prompt in prompts]
    prefilled = [prefill(decoder, params, p, steps - 1, rope_length) for p in prompts]
    token = choose(tuple(logits for logits, _ in prefilled), jnp.zeros((), jnp.int32))
    ids = jnp.full((len(token), steps), terminators[0]).at[:, 0].set(token)
    done = jnp.isin(token, terminators)

    def goes_on(state: Any) -> jax.Array:
        step, _, _, done, _ = state
        return (step < steps) & ~done.all()

    def next_token(state: Any) -> Any:
        step, ids, token, done, caches = state
        embeds = apply(decoder, params, token[:, None], method="embed")
        logits, grown = [], []
        for valid, start, cache in zip(slots, starts, caches, strict=True):
            at = {"start": start + step - 1, "rope_length": rope_length}
            hidden, cache = apply(decoder, params, embeds, valid, cache=cache, **at)
            logits.append(apply(decoder, params, hidden[:, 0], method="logits"))
            grown.append(cache)
        token = jnp.where(done, terminators[0], choose(tuple(logits), step)).astype(ids.dtype)
        ids = ids.at[:, step].set(token)
        return step + 1, ids, token, done | jnp.isin(token, terminators), tuple(grown)

    caches = tuple(cache for _, cache in prefilled)
    state = (jnp.ones((), jnp.int32), ids, token.astype(ids.dtype), done, caches)
    return jax.lax.while_loop(goes_on, next_token, state)[1]
