"""Log probabilities, under a decoder, of texts that continue a prompt of token ids or image tokens.

Pure functions of the decoder's parameters, not methods: lax.map and while_loop cannot call a bound
module.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from vlc_jax.models import flamingo, layers, lm


class Prompt(NamedTuple):
    """Embeddings of prompts, and the mask `valid` of their tokens; padding may be on either side.

    prefix: mask of slots with bidirectional attention (PaliGemma); None for a causal model.
    media: images that the tokens see (Flamingo); later tokens see the image that the last one does.
    """

    embeds: Float[Array, "batch length embed"]
    valid: Bool[Array, "batch length"]
    prefix: Bool[Array, "batch length"] | None = None
    media: flamingo.Media | None = None

    def with_more_slots(self, count: int) -> dict[str, Any]:
        """`valid`, `prefix` and `media` for a decoder with `count` slots after the prompt, all
        valid: a causal model does not see later slots."""
        more = ((0, 0), (0, count))
        prefix = None if self.prefix is None else jnp.pad(self.prefix, more)
        media = self.media
        if media is not None:
            media = media._replace(seen=jnp.pad(media.seen, more, mode="edge"))
        valid = jnp.pad(self.valid, more, constant_values=True)
        return {"valid": valid, "prefix": prefix, "media": media}

    @property
    def last(self) -> Int[Array, " batch"]:
        """The slot of the last token of each prompt."""
        return self.valid.shape[1] - 1 - jnp.argmax(self.valid[:, ::-1], axis=1)


def apply(decoder: lm.Decoder, params: Any, *arguments: Any, **options: Any) -> Any:
    """The decoder, or its `method`, as a function of its parameters."""
    return decoder.apply({"params": params}, *arguments, **options)


def prefill(
    decoder: lm.Decoder, params: Any, prompt: Prompt, steps: int
) -> tuple[Float[Array, "batch vocab"], lm.Cache]:
    """Logits after the last token of each prompt, and a cache with room for `steps` more slots."""
    batch, length = prompt.valid.shape
    hidden, cache = apply(
        decoder,
        params,
        prompt.embeds,
        cache=decoder.empty_cache(batch, length + steps),
        **prompt.with_more_slots(steps),
    )
    # of the last token only: logits of 700 tokens and 32,000 ids are 90 MB
    return apply(decoder, params, layers.at(hidden, prompt.last), method="logits")[:, 0], cache


def log_probabilities(
    decoder: lm.Decoder,
    params: Any,
    prompt: Prompt,
    ids: Int[Array, "batch options length"],
    questions: Bool[Array, "batch options length"] | None = None,
) -> Float[Array, "batch options length"]:
    """Log probability of every id of each text of a prompt, given the prompt and the ids before it;
    padding after a text changes nothing before it.

    The prompt runs once; its texts continue from its cache one after the other, so that memory does
    not grow with their number. A single text runs with its prompt, without a cache, and so do all
    texts with `questions`, the mask of first tokens that the prompt attends to (PaliGemma).
    """
    # the last id is predicted, not read
    length, more = prompt.valid.shape[1], ids.shape[2] - 1
    later = prompt.with_more_slots(more)
    media = later["media"]

    def read(ids: Int[Array, "batch length"]) -> Float[Array, "batch _ embed"]:
        return apply(decoder, params, ids[:, :-1], method="embed")

    def with_prompt(
        ids: Int[Array, "batch length"], prefix: Bool[Array, "batch _"] | None
    ) -> Float[Array, "batch length"]:
        embeds = jnp.concatenate([prompt.embeds, read(ids)], axis=1)
        hidden, _ = apply(decoder, params, embeds, later["valid"], prefix=prefix, media=media)
        hidden = jnp.concatenate([layers.at(hidden, prompt.last), hidden[:, length:]], axis=1)
        return token_log_probabilities(apply(decoder, params, hidden, method="logits"), ids)

    if questions is not None:
        prompts = jnp.broadcast_to(prompt.prefix[:, None], (*ids.shape[:2], length))
        prefix = jnp.concatenate([prompts, questions[..., :-1]], axis=2)
        by_text = (jnp.swapaxes(x, 0, 1) for x in (ids, prefix))
        return jnp.swapaxes(jax.lax.map(lambda text: with_prompt(*text), tuple(by_text)), 0, 1)
    if ids.shape[1] == 1:
        return with_prompt(ids[:, 0], later["prefix"])[:, None]
    first, cache = prefill(decoder, params, prompt, more)

    def text_log_probabilities(ids: Int[Array, "batch length"]) -> Float[Array, "batch length"]:
        logits = first[:, None]
        if more:
            at = {"cache": cache, "start": length, "media": media}
            hidden, _ = apply(decoder, params, read(ids), later["valid"], **at)
            rest = apply(decoder, params, hidden, method="logits")
            logits = jnp.concatenate([logits, rest], axis=1)
        return token_log_probabilities(logits, ids)

    return jnp.swapaxes(jax.lax.map(text_log_probabilities, jnp.swapaxes(ids, 0, 1)), 0, 1)


def token_log_probabilities(
    logits: Float[Array, "*axes vocab"], ids: Int[Array, "*axes"]
) -> Float[Array, "*axes"]:
    """Log probability of each id under the logits at its position, float32."""
    chosen = jnp.take_along_axis(logits, ids[..., None], axis=-1)[..., 0]
    return chosen - jax.nn.logsumexp(logits, axis=-1)
