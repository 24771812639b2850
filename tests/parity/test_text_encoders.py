"""Text encoders made of language models give the vectors of torch, from folders of their makers."""

import json

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

import vlc_jax
from tests.support.compilations import apply
from vlc_jax.configs import default
from vlc_jax.encode import llm2vec, text_encoders
from vlc_jax.errors import UsageError
from vlc_jax.input_pipeline.commands import vector_file
from vlc_jax.setup import init_from, resolve

pytestmark = pytest.mark.slow

SCRIPT = "text_encoder_reference.py"
TEXTS = ["a red dog", "two dogs on the left of a very big table, and a cat", "red", "A cat?"]
INSTRUCTIONS = {"with": "Retrieve images of this:", "without": ""}
CASES = ("llama_2_chat", "llama_3_instruct")
HIDDEN_STATES = jax.jit(llm2vec.hidden_states, static_argnums=0)


def encoder(folder, case, instruction="", adapters=True):
    return text_encoders.LanguageModelEncoder(
        folder / case,
        case,
        instruction=instruction,
        adapters=[folder / f"{case}_adapter"] if adapters else [],
        dtype="float32",
        batch_size=8,
    )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_vectors_with_a_merged_adapter(folder, io, case, name):
    found = encoder(folder, case, INSTRUCTIONS[name])(TEXTS)
    np.testing.assert_allclose(found, io[f"{case}/{name}/pooled"], atol=1e-5)
    plain = encoder(folder, case, adapters=False)(TEXTS)
    np.testing.assert_allclose(plain, io[f"{case}/no_adapter"], atol=1e-5)
    assert np.abs(found - plain).max() > 0.1
    assert np.abs(np.linalg.norm(found, axis=1) - 1).min() > 1  # not of unit length


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_features_of_every_token(folder, io, case, name):
    made = encoder(folder, case, INSTRUCTIONS[name]).encoder
    ids, valid = io[f"{case}/{name}/ids"].astype(np.int32), io[f"{case}/{name}/mask"].astype(bool)
    expected = io[f"{case}/{name}/hidden"]

    def features(decoder):
        return np.asarray(HIDDEN_STATES(decoder, made.params, ids, valid))

    np.testing.assert_allclose(features(made.decoder)[valid], expected[valid], atol=2e-5)
    assert np.abs(expected[valid]).max() > 2
    causal = features(made.decoder.clone(is_causal=True))
    assert np.abs(causal - expected)[valid].max() > 0.1
    for row, keep, text in zip(ids, valid, TEXTS, strict=True):
        assert made.wording(text)[0].ids == row[keep].tolist()


@pytest.fixture(scope="module")
def made(folder, io, tmp_path_factory):
    """A setup of the LLM2CLIP, which reads its vectors from a file."""
    path = tmp_path_factory.mktemp("vectors") / "x.npy"
    rows = {str(i): row for i, row in enumerate(io["llm2clip/vectors"])}
    vector_file.write(
        path, list(rows), lambda texts: np.stack([rows[text] for text in texts]), identity="x"
    )
    config = default.get_config()
    with config.unlocked():
        config.init_from = str(folder / "llm2clip")
        config.model.update({"variant": "B/32"})
        small = {"width": 32, "depth": 2, "heads": 4, "patch_size": 7, "mlp_width": 48}
        config.model.image = ConfigDict({**small, "projection": 10})
        config.model.text = ConfigDict({"connector": "llm2clip", "projection": 10})
        config.text.tokenizer, config.text.tokenizer_options = "vectors", {"path": str(path)}
        config.input.image_size, config.frozen = 28, ("image", "text")
    return resolve(config, "eval")


def test_llm2clip_is_read_with_tower_adapter_and_scale(made, io):
    params = init_from.load(made, made.parameters.shapes)
    pixels, vectors = (io[f"llm2clip/{name}"] for name in ("pixels", "vectors"))
    unit = {
        name: io[f"llm2clip/{name}"] / np.linalg.norm(io[f"llm2clip/{name}"], axis=1, keepdims=True)
        for name in ("image", "text")
    }
    image = apply(made.model, {"params": params}, pixels, method="encode_image").pooled
    text = apply(made.model, {"params": params}, vectors, method="encode_text").pooled
    np.testing.assert_allclose(image, unit["image"], atol=1e-5)
    np.testing.assert_allclose(text, unit["text"], atol=1e-5)
    assert params["logit_scale"] == 3.0


def test_llm2clip_without_vectors_is_refused(folder):
    with pytest.raises(UsageError, match="whose texts are vectors of a language model"):
        vlc_jax.load(folder / "llm2clip")


def test_what_the_adapter_gives_of_vectors(folder, io):
    def encode(texts):
        return io["llm2clip/vectors"][[int(text) for text in texts]]

    encode.identity = "vectors"
    adapted = text_encoders.Adapted(encode, folder / "llm2clip")
    found = adapted(["2", "0"])
    np.testing.assert_allclose(found, io["llm2clip/text"][[2, 0]], atol=1e-5)
    assert np.abs(io["llm2clip/text"]).max() > 0.5
    assert json.dumps(adapted.identity) != json.dumps(encode.identity)
