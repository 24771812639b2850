"""Runs that tests of several files start from, or compare with."""

import pytest

from tests.support import helpers, shared, small_models
from vlc_jax import models
from vlc_jax.models import variants

TINY = {"tiny": variants.Sizes("siglip", 24, 32, 8, (24, 2, 4), (24, 1, 2))}


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The finished workdir of six steps of the tiny config on one device; nobody changes it."""

    def make(workdir):
        helpers.run(helpers.TINY + ":steps=6", workdir, code=0)
        return workdir

    return shared.make_once(tmp_path_factory, "trained", make)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A folder of Hugging Face's form with random weights and a tokenizer, and what is in it."""
    monkeypatch.setattr(variants, "VARIANTS", {**variants.VARIANTS, **TINY})
    small_models.write_tokenizer(tmp_path, ("</s>", "a", "red", "cat", "unknown"), "unknown")
    model = models.build("clip", "tiny", vocab_size=5, activation="gelu", text={"eos_id": 0})
    fields = {"hidden_act": "gelu", "max_position_embeddings": 64, "vocab_size": 5}
    params = small_models.write_hugging_face(tmp_path, model, "hf_siglip", 0.1, **fields)
    return tmp_path, model, params
