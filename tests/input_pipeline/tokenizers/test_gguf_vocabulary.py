"""Tokenizers in GGUF files beside the tokenizer.json of the same vocabulary."""

import json

import pytest
import tokenizers

from tests.support import gguf_file, small_models
from vlc_jax.input_pipeline.tokenizers import make_tokenizer, sentence_encoder
from vlc_jax.input_pipeline.tokenizers.decoder import DecoderTokenizer

TEXTS = ["It's the 2024 year", "the dogs   and 12 cats\n\non 犬 mats", "a<|end|>b", "é 3.5kg", ""]
SPECIAL = ["<|start|>", "<|end|>", "<|pad|>"]


def write(folder, pre="smollm", **more):
    """tokenizer.json, trained on TEXTS, and a GGUF file with its vocabulary."""
    digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)
    texts = [text * 3 for text in TEXTS] + ["12 2024"] * 50
    library = small_models.byte_pairs(texts, SPECIAL, 330, [digits] if pre == "smollm" else [])
    small_models.surround(library, "<|start|> $A" if more.get("add_bos_token") else "")
    library.save(str(folder / "tokenizer.json"))
    model = json.loads(library.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    values = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens,
        "token_type": [3 if token in SPECIAL else 1 for token in tokens],
        "merges": [" ".join(pair) for pair in model["merges"]],
        "bos_token_id": 0,
        "eos_token_id": 1,
        "padding_token_id": 2,
        **more,
    }
    metadata = {f"tokenizer.ggml.{key}": value for key, value in values.items()}
    return library, gguf_file.write(folder / "model.gguf", metadata, {})


@pytest.mark.parametrize("pre", ["gpt-2", "smollm"])
@pytest.mark.parametrize("has_start", [True, False])
def test_ids_are_those_of_the_tokenizer_json(tmp_path, pre, has_start):
    """In smollm each digit is a token, in gpt-2 a number may be one."""
    library, path = write(tmp_path, pre, add_bos_token=has_start)
    plain, ours = DecoderTokenizer(tmp_path), DecoderTokenizer(path)
    for text in TEXTS:
        ids = ours.encode(text, has_start=True)
        assert ids == library.encode(text).ids
        assert ids[:1] == [0] if has_start else ids[:1] != [0]
        assert ours.encode(text) == plain.encode(text)
        assert ours.decode(ids, special=True).removeprefix("<|start|>") == text
    digits = len(ours.encode("2024"))
    assert digits == 4 if pre == "smollm" else digits < 4


def test_a_file_declares_end_and_padding(tmp_path):
    _, path = write(tmp_path, "smollm")
    for name in ("hf", "conversation"):
        tokenizer = make_tokenizer(name, 24, path=str(path))
        assert (tokenizer.eos_id, tokenizer.pad_id) == (1, 2)
        row = tokenizer(["12 dogs"])[0].tolist()
        assert row[row.index(1) + 1 :] == [2] * (23 - row.index(1))


def test_vocabularies_of_other_kinds_are_refused(tmp_path):
    for changed in ({"model": "llama"}, {"pre": "qwen2"}):
        _, path = write(tmp_path, **changed)
        with pytest.raises(ValueError, match="known are 'gpt2' with gpt-2, smollm"):
            DecoderTokenizer(path)
    _, path = write(tmp_path, add_bos_token=True, bos_token_id=10**6)
    with pytest.raises(ValueError, match=r"model\.gguf: bos_token_id is 1000000, and there are"):
        DecoderTokenizer(path)
    _, path = write(tmp_path, token_type=["a"])
    with pytest.raises(ValueError, match=r"model\.gguf: tokenizer\.ggml\.token_type is a ndarray"):
        DecoderTokenizer(path)
    with pytest.raises(ValueError, match=r"tokenizer\.ggml\.model is a str; got None"):
        DecoderTokenizer(gguf_file.write(tmp_path / "none.gguf", {}, {}))


def test_another_file_of_the_same_name_is_another_model(tmp_path):
    """Of the facts that tell stored text vectors from those of a replaced model."""
    _, path = write(tmp_path)
    before = sentence_encoder.files_of(path)
    assert before == sentence_encoder.files_of(path)
    path.write_bytes(path.read_bytes() + bytes(32))
    assert sentence_encoder.files_of(path) != before
