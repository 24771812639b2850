"""Runs that tests of several files start from, or compare with."""

import json

import jax
import numpy as np
import pytest
import tokenizers
from safetensors.numpy import save_file

from tests.support import helpers, shared
from vlc_jax import models, weights
from vlc_jax.models import variants
from vlc_jax.setup.init_from import architecture

TINY = {"tiny": variants.Sizes("siglip", 24, 32, 8, (24, 2, 4), (24, 1, 2))}


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The finished workdir of six steps of the tiny config on one device; nobody changes it."""

    def make(workdir):
        done = helpers.run(helpers.TINY + ":steps=6", workdir)
        assert done.returncode == 0, done.stderr
        return workdir

    return shared.make_once(tmp_path_factory, "trained", make)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A folder of Hugging Face's form with random weights and a tokenizer, and what is in it."""
    monkeypatch.setattr(variants, "VARIANTS", {**variants.VARIANTS, **TINY})
    words = {"</s>": 0, "a": 1, "red": 2, "cat": 3, "unknown": 4}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="unknown"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    model = models.build("clip", "tiny", vocab_size=5, activation="gelu", text={"eos_id": 0})
    shapes = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: 0.1 * rng.standard_normal(x.shape, np.float32), shapes)
    arrays = weights.save(params, "hf_siglip", architecture(model))
    save_file(arrays, tmp_path / "model.safetensors")
    tower = {"hidden_act": "gelu", "max_position_embeddings": 64, "vocab_size": 5}
    config = {"model_type": "siglip", "vision_config": tower, "text_config": tower}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path, model, params
