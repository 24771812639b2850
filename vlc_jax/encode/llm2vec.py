"""A language model as a text encoder: LLM2Vec (BehnamGhader et al. 2024, arXiv:2404.05961).

Attention is bidirectional (`is_causal=False`), and the vector of a text is the mean of the last
layer's features over the text's tokens, not of unit length:

    <s> [INST] {instruction} {text} [/INST]
                             ^^^^^^^^^^^^^^ the mean is over these

As in McGill-NLP/llm2vec, the mean is over the last n tokens, where n is the number of tokens of
text and end of the format when tokenized alone: start token and instruction are attended to and not
averaged. Prompts of more than `max_length` tokens lose whole words at the end
of the text until they fit; McGill-NLP/llm2vec shortens the text to a separate length and may then
cut the end of the format.
"""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from vlc_jax.encode.batches import by_length, padded
from vlc_jax.errors import UsageError, known
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.tokenizers.decoder import DecoderTokenizer
from vlc_jax.models import lm

# Format -> (before, after) instruction and text.
FORMATS: dict[str, tuple[str, str]] = {
    "plain": ("", ""),
    # also for Mistral 7B Instruct
    "llama_2_chat": ("[INST] ", " [/INST]"),
    "llama_3_instruct": ("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
}
# Lengths of padded prompts: each compiles a program and is at most 1.5 times the one before.
LENGTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384)


class Prompt(NamedTuple):
    """Token ids of a prompt; the mean is over the last `counted` tokens."""

    ids: list[int]
    counted: int


@dataclasses.dataclass(frozen=True)
class Wording:
    """Builds the prompt of a text.

    format: a key of FORMATS.   max_length: maximum number of tokens of a prompt.
    Raises UsageError for an unknown format, and for a tokenizer that has a start token but does not
    prepend it.
    """

    tokenizer: DecoderTokenizer
    format: str
    instruction: str = ""
    max_length: int = 512

    def __post_init__(self) -> None:
        known("format of texts", self.format, FORMATS)
        start, first = self.tokenizer.start_token, self.tokenizer.encode("a", True)
        if start is not None and first[0] != self.tokenizer.id_of(start):
            raise UsageError(
                f"ids must start with {start}, as the model was trained; {self.tokenizer.path} "
                f"starts with {first[:3]}: use a tokenizer file that adds it"
            )

    def __call__(self, text: str) -> tuple[Prompt, bool]:
        """(prompt, whether the text lost words).

        Raises DataError for a text without tokens, and for one whose first word is too long.
        """
        before, after = FORMATS[self.format]
        if instruction := self.instruction.strip():
            before += f"{instruction} "
        text, shortened = text.rstrip(), False
        while len(ids := self.tokenizer.encode(before + text + after, True)) > self.max_length:
            words, shortened = text.split(), True
            count = min(len(words) - 1, len(words) * self.max_length // len(ids))
            if count < 1:
                raise DataError(f"{text[:50]!r} does not fit into {self.max_length} tokens")
            text = " ".join(words[:count])
        counted = min(len(self.tokenizer.encode(text + after)), len(ids))
        if not counted:
            raise DataError(f"{text!r} has no token")
        return Prompt(ids, counted), shortened


def hidden_states(
    decoder: lm.Decoder,
    params: Any,
    ids: Int[Array, "batch length"],
    valid: Bool[Array, "batch length"],
) -> Float[Array, "batch length embed"]:
    """Features of all tokens after the last norm; those of padding are undefined."""

    def run(module: lm.Decoder) -> Array:
        return module(module.embed(ids), valid)[0]

    return decoder.apply({"params": params}, method=run)


@partial(jax.jit, static_argnums=0)
def pooled(
    decoder: lm.Decoder,
    params: Any,
    ids: Int[Array, "batch length"],
    valid: Bool[Array, "batch length"],
    counted: Bool[Array, "batch length"],
) -> Float[Array, "batch embed"]:
    """The mean over the `counted` tokens of every text, float32."""
    # float32: a bfloat16 sum of hundreds of tokens loses digits
    hidden = hidden_states(decoder, params, ids, valid).astype(jnp.float32)
    total = jnp.einsum("ble,bl->be", hidden, counted.astype(jnp.float32))
    return total / counted.sum(axis=1, keepdims=True)


def pad(prompts: Sequence[Prompt], length: int) -> dict[str, np.ndarray]:
    """`ids` (batch, length), padded on the left, and the masks `valid` and `counted`."""
    ids, valid = padded([prompt.ids for prompt in prompts], length, is_left=True)
    distances = np.arange(length)[::-1]  # of a column to the right end
    counted = distances[None] < np.array([[prompt.counted] for prompt in prompts])
    return {"ids": ids, "valid": valid, "counted": counted}


class TextEncoder:
    """Encoder of texts to vectors, float32 (texts, width), in batches of one size and few lengths.

    decoder: with is_causal=False.   put: moves a batch to the devices.
    A text's vector does not depend on other texts. Raises the errors of `Wording`.
    """

    def __init__(
        self,
        decoder: lm.Decoder,
        params: Any,
        wording: Wording,
        batch_size: int,
        put: Callable[[Mapping[str, np.ndarray]], Mapping[str, Any]] = dict,
    ) -> None:
        if decoder.is_causal:
            raise UsageError("a text encoder has bidirectional attention: set is_causal=False")
        self.decoder, self.params, self.wording = decoder, params, wording
        self._size, self._put = batch_size, put
        longest = wording.max_length
        self._lengths = (*(n for n in LENGTHS if n < longest), longest)

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        worded = [self.wording(text) for text in texts]
        if shortened := sum(is_shortened for _, is_shortened in worded):
            most = self.wording.max_length
            logging.warning("%d texts have more than %d tokens and lose words", shortened, most)
        prompts = [prompt for prompt, _ in worded]
        vectors: dict[int, np.ndarray] = {}
        lengths = [next(n for n in self._lengths if n >= len(each.ids)) for each in prompts]
        for length, rows, filled in by_length(lengths, self._size):
            batch = self._put(pad([prompts[row] for row in filled], length))
            computed = np.asarray(pooled(self.decoder, self.params, **batch))
            vectors |= dict(zip(rows, computed, strict=False))
        return np.stack([vectors[row] for row in range(len(texts))])
