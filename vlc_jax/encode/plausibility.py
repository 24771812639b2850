"""Log-probabilities of texts under a language model, without any image."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from vlc_jax.encode.batches import by_length, padded
from vlc_jax.encode.complete import LanguageModel
from vlc_jax.input_pipeline.tokenizers.decoder import DecoderTokenizer
from vlc_jax.models import continuation, lm

_SEPARATOR = "<|endoftext|>"  # before a text in the training data of models without a start token
_LENGTHS = 4  # texts are padded to multiples of it, and each length compiles a program


class Plausibility(NamedTuple):
    """log p of a text, in nats, and its number of tokens; the end of the text is not scored."""

    total: float
    tokens: int

    @property
    def mean(self) -> float:
        """Per token."""
        return self.total / max(self.tokens, 1)


def plausibilities(
    model: LanguageModel,
    texts: Sequence[str],
    batch_size: int = 16,
    advance: Callable[[Sequence[int], Sequence[Plausibility]], None] = lambda rows, found: None,
) -> list[Plausibility]:
    """The plausibility of each text; it does not depend on the other texts.

    The first token follows the start token or <|endoftext|>; if the vocabulary has neither, it is
    not scored.   advance: gets the indices and results of each batch.
    """
    rows = [_ids(model.tokenizer, text) for text in texts]
    lengths = [max(1, -(-len(ids) // _LENGTHS)) * _LENGTHS for ids, _ in rows]
    results: dict[int, Plausibility] = {}
    for length, indices, filled in by_length(lengths, batch_size):
        ids, valid = padded([rows[index][0] for index in filled], length)
        starts = np.array([[rows[index][1]] for index in filled])
        scored = valid & (np.arange(length)[None] >= starts)
        totals = np.asarray(_totals(model.decoder, model.params, ids, valid, scored))
        counts = scored.sum(axis=1)
        batch = [Plausibility(float(totals[row]), int(counts[row])) for row in range(len(indices))]
        results |= dict(zip(indices, batch, strict=True))
        advance(indices, batch)
    return [results[index] for index in range(len(texts))]


def _ids(tokenizer: DecoderTokenizer, text: str) -> tuple[list[int], int]:
    """Ids with a start token, and the index of the first scored one."""
    start = tokenizer.start_token or (_SEPARATOR if _SEPARATOR in tokenizer else None)
    ids = tokenizer.encode(text)
    return ([tokenizer.id_of(start), *ids], 1) if start else (ids, min(1, len(ids)))


@partial(jax.jit, static_argnums=0)
def _totals(
    decoder: lm.Decoder,
    params: Any,
    ids: Int[Array, "batch length"],
    valid: Bool[Array, "batch length"],
    scored: Bool[Array, "batch length"],
) -> Float[Array, " batch"]:
    """Sum of the log-probabilities of the `scored` tokens of each row."""
    logits = decoder.apply({"params": params}, ids, valid, method=lm.Decoder.text_logits)[:, :-1]
    log_probabilities = continuation.token_log_probabilities(logits, ids[:, 1:])
    return jnp.where(scored[:, 1:], log_probabilities, 0.0).sum(axis=1)
