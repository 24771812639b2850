"""Vectors of texts by a language model: what they depend on, and what is averaged."""

import functools

import jax
import numpy as np
import pytest

from tests.support import small_models
from vlc_jax.encode import llm2vec
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.tokenizers.decoder import DecoderTokenizer
from vlc_jax.models import lm

WORDS = ("<s>", "[INST]", "[/INST]", "find", "name", "a", "red", "blue", "dog", "cat")
PLACE = {word: i for i, word in enumerate(WORDS)}
HIDDEN_STATES = jax.jit(llm2vec.hidden_states, static_argnums=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Words as tokens behind a start token."""
    path = tmp_path_factory.mktemp("words")
    small_models.write_tokenizer(path, WORDS, "a", r"[^\s]+", single="<s> $A")
    return path


def wording(folder, instruction="", **options):
    return llm2vec.Wording(
        DecoderTokenizer(folder), "llama_2_chat", instruction=instruction, **options
    )


@functools.cache
def model():
    decoder = lm.build("tiny", vocab=len(WORDS), is_causal=False, is_tied=True)
    params = small_models.drawn(functools.partial(lm.init, decoder), scale=0.3)
    return decoder, jax.device_put(params)


def encoder(folder, instruction="", size=4, **options):
    return llm2vec.TextEncoder(*model(), wording(folder, instruction, **options), size)


def words_of(prompt):
    return " ".join(WORDS[i] for i in prompt.ids)


def test_a_text_is_counted_without_its_instruction(folder):
    for instruction, before in (("", "<s> [INST] "), (" find ", "<s> [INST] find ")):
        prompt, is_shortened = wording(folder, instruction)("a red dog \n")
        assert words_of(prompt) == f"{before}a red dog [/INST]"
        assert (prompt.counted, is_shortened) == (4, False)


def test_vectors_are_means_over_the_last_tokens(folder):
    decoder, params = model()
    texts = ["a red dog", "a blue cat"]
    found = encoder(folder, "find")(texts)
    for text, vector in zip(texts, found, strict=True):
        ids = [0, *(PLACE[word] for word in f"[INST] find {text} [/INST]".split())]
        valid = np.ones((1, len(ids)), bool)
        hidden = np.asarray(HIDDEN_STATES(decoder, params, np.array([ids]), valid))[0]
        counted = len(text.split()) + 1
        np.testing.assert_allclose(vector, hidden[-counted:].mean(axis=0), atol=1e-5)
        assert abs(np.linalg.norm(vector) - 1) > 0.1


def test_an_instruction_that_is_not_counted_is_still_seen(folder):
    first, second = (encoder(folder, word)(["a red dog"]) for word in ("find", "name"))
    assert np.abs(first - second).max() > 1e-3


def test_padding_other_texts_and_batches_change_nothing(folder):
    texts = ["a red dog", "cat", "a blue cat a blue cat a blue cat a blue cat a blue cat", "dog"]
    whole = encoder(folder)(texts)
    assert not np.allclose(whole[1], whole[3], atol=1e-2)
    for size in (1, 3):
        np.testing.assert_allclose(encoder(folder, size=size)(texts[::-1])[::-1], whole, atol=2e-5)
    prompt = wording(folder)(texts[0])[0]
    batch = llm2vec.pad([prompt], 16)
    other = batch | {"ids": np.where(batch["valid"], batch["ids"], PLACE["blue"])}
    assert (batch["ids"] != other["ids"]).any()
    one, two = (np.asarray(llm2vec.pooled(*model(), **x)) for x in (batch, other))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_allclose(one[0], whole[0], atol=2e-5)


def test_few_programs_are_compiled(folder):
    llm2vec.pooled.clear_cache()
    made = encoder(folder, size=2)
    made(["dog", "a dog", "a red dog"])
    made(["cat " * count for count in range(1, 60, 3)])
    assert llm2vec.pooled._cache_size() == 5  # of 16, 24, 32, 48 and 64 tokens


def test_a_long_text_loses_words_and_never_its_format(folder, caplog):
    short = wording(folder, "find", max_length=9)
    prompt, is_shortened = short("a red dog " * 4)
    assert is_shortened
    assert words_of(prompt) == "<s> [INST] find a red dog a red [/INST]"
    assert prompt.counted == 6
    found = encoder(folder, "find", max_length=9)(["a red dog " * 4, "a red dog a red"])
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)
    assert "1 texts have more than 9 tokens" in caplog.text
    with pytest.raises(DataError, match="does not fit into 4 tokens"):
        wording(folder, "find", max_length=4)("dog")


def test_what_cannot_be_averaged_is_refused(folder, tmp_path):
    with pytest.raises(DataError, match="has no token"):
        llm2vec.Wording(DecoderTokenizer(folder), "plain")(" ")
    with pytest.raises(UsageError, match="unknown format of texts 'llama2'; did you mean"):
        llm2vec.Wording(DecoderTokenizer(folder), "llama2")
    small_models.write_tokenizer(tmp_path, WORDS, "a")
    with pytest.raises(UsageError, match=r"ids must start with <s>.*starts with \[5\]"):
        llm2vec.Wording(DecoderTokenizer(tmp_path), "plain")
    words = (*WORDS, "<bos>")  # as Gemma has <s>
    small_models.write_tokenizer(tmp_path, words, "a", single="<bos> $A")
    assert llm2vec.Wording(DecoderTokenizer(tmp_path), "plain")("dog")[0].ids == [10, PLACE["dog"]]
    with pytest.raises(UsageError, match="is_causal=False"):
        llm2vec.TextEncoder(model()[0].clone(is_causal=True), {}, wording(folder), 1)
