"""Token ids of prompts with images and of answers, padded to fixed lengths."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from input_pipeline.tokenizers.decoder import DecoderTokenizer, common_prefix
from vlc_jax.errors import UsageError, known
from vlc_jax.generative.prompts import IMAGE

# How text around the image becomes ids: in_string, the prompt as one string in which <image> is a
# token (llava-hf); chunked, each side of the image alone (the original LLaVA and its derivatives).
# The text behind the image may differ: alone, it starts with a space of its own.
RULES = ("in_string", "chunked")
SIDES = ("left", "right")
_PLACEHOLDER = 0  # id at an image's places where no token stands for it; never looked up


class Tokens(NamedTuple):
    """Token ids of one text with its marks, all of one length."""

    ids: list[int]
    is_image: list[bool]
    is_answer: list[bool]


class TokenBatch(NamedTuple):
    """Padded tokens: arrays of shape (batch, length)."""

    ids: np.ndarray  # int32
    valid: np.ndarray  # bool; False at padding
    is_image: np.ndarray  # bool; places of image tokens, positions included
    answer_mask: np.ndarray  # bool; tokens of answers, terminators included: those of the loss


class Tokenization(NamedTuple):
    """How the texts of a checkpoint become ids.

    rule: of RULES.   image_tokens: that one image takes, such as 576.
    bos: name of the token with which ids must start; None where the model was trained without.
    """

    tokenizer: DecoderTokenizer
    rule: str
    image_tokens: int
    bos: str | None = "<s>"


def encode(how: Tokenization, prompt: str, answer: str = "", terminator: str = "") -> Tokens:
    """Tokens of a prompt, followed by an answer where there is one.

    The prompt's trailing spaces are dropped: "ASSISTANT: " has a token of its own for its last
    space, which disappears once an answer follows. The answer is preceded by a space, unless the
    prompt ends with a line break or an image.
    """
    prompt = prompt.rstrip(" ")
    if not answer:
        return encode_turns(how, [(prompt, False)])
    space = "" if prompt.endswith(("\n", IMAGE)) else " "
    return encode_turns(how, [(prompt + space, False), (answer + terminator, True)])


def encode_turns(how: Tokenization, turns: Sequence[tuple[str, bool]]) -> Tokens:
    """Tokens of (text, whether it is an answer) in a row, tokenized once as a whole.

    A turn's first token is where its tokens and those of the text before it, without trailing
    spaces, first differ. Raises UsageError where BOS is missing.
    """
    known("tokenization rule", how.rule, RULES)
    whole = _ids("".join(text for text, _ in turns), how)
    is_answer = [False] * len(whole)
    before = ""
    for text, is_one in turns:
        if is_one:
            start = common_prefix(_ids(before.rstrip(" "), how), whole)
            end = common_prefix(_ids(before + text, how), whole)
            is_answer[start:end] = [True] * (end - start)
        before += text
    if how.bos is not None and whole[:1] != [how.tokenizer.id_of(how.bos)]:
        raise UsageError(
            f"ids must start with {how.bos}, as the model was trained; {how.tokenizer.path} starts "
            f"with {whole[:3]}: use a tokenizer file that adds it, or bos=None for a model without"
        )
    ids, image, answers = [], [], []
    for index, answer in zip(whole, is_answer, strict=True):
        count = 1 if index is not None else how.image_tokens
        ids += [_placeholder(how) if index is None else index] * count
        image += [index is None] * count
        answers += [answer] * count
    return Tokens(ids, image, answers)


def pad(
    rows: Sequence[Tokens], lengths: Sequence[int], side: str = "left", pad_id: int = 0
) -> TokenBatch:
    """Rows padded to the smallest of `lengths` that holds all of them.

    Fixed lengths keep the number of compiled programs small. Raises UsageError where a row is
    longer than all lengths: nothing is cut, since a cut answer or image would change the result.
    """
    known("side of padding", side, SIDES)
    longest = max((len(row.ids) for row in rows), default=0)
    fitting = [length for length in sorted(lengths) if length >= longest]
    if not fitting:
        raise UsageError(
            f"a text has {longest} tokens, images included, and the lengths are {list(lengths)}; "
            "add a longer one or shorten the text"
        )
    shape = (len(rows), fitting[0])
    batch = TokenBatch(np.full(shape, pad_id, np.int32), *(np.zeros(shape, bool) for _ in range(3)))
    for number, row in enumerate(rows):
        count = len(row.ids)
        place = slice(fitting[0] - count, None) if side == "left" else slice(count)
        batch.ids[number, place] = row.ids
        batch.valid[number, place] = True
        batch.is_image[number, place] = row.is_image
        batch.answer_mask[number, place] = row.is_answer
    return batch


def _ids(text: str, how: Tokenization) -> list[int | None]:
    """Ids of a text, BOS included as the tokenizer adds it; None stands for an image."""
    if how.rule == "chunked":
        return _chunked(text, how.tokenizer)
    if IMAGE not in text:
        return list(how.tokenizer.encode(text, has_start=True))
    if IMAGE not in how.tokenizer:
        raise UsageError(
            f"rule in_string needs a tokenizer with the token {IMAGE}; {how.tokenizer.path} has "
            "none: use rule chunked"
        )
    image = how.tokenizer.id_of(IMAGE)
    return [None if i == image else i for i in how.tokenizer.encode(text, has_start=True)]


def _chunked(text: str, tokenizer: DecoderTokenizer) -> list[int | None]:
    first, *others = text.split(IMAGE)
    # The tokenizer's start tokens alone: kept before the first piece, dropped before all others.
    start = tokenizer.encode("", has_start=True)
    ids: list[int | None] = list(tokenizer.encode(first, has_start=True))
    for other in others:
        ids += [None, *tokenizer.encode(other, has_start=True)[len(start) :]]
    return ids


def _placeholder(how: Tokenization) -> int:
    return how.tokenizer.id_of(IMAGE) if how.rule == "in_string" else _PLACEHOLDER
