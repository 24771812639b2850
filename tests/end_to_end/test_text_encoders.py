"""Folders of language models as encoders of embed_text: adapters, devices, files, refusals."""

import functools
import json
import pickle
from unittest import mock

import jax
import numpy as np
import pytest
import safetensors.numpy

from tests.support import helpers, llava_folder, small_models
from vlc_jax.devices import sharding
from vlc_jax.encode import text_encoders
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.input_pipeline.commands import vector_file
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.tokenizers.text_vectors import TextVectors
from vlc_jax.models import lm
from vlc_jax.models.text_vectors import VectorTower
from vlc_jax.weights import huggingface, llm2clip, rename
from vlc_jax.weights import llava as weights

WORDS = ("<s>", "[INST]", "[/INST]", "find", "a", "red", "dog", "cat")
LM = llava_folder.LM | {"vocab": len(WORDS)}
TEXTS = ["a red dog", "cat", "a cat " * 8 + "a dog"]
TARGETS = {"self_attn.q_proj": (16, 16), "mlp.down_proj": (16, 24)}  # outputs, inputs
RANK, ALPHA = 2, 6


def write_adapter(folder, seed):
    """A LoRA of two modules, as PEFT saves those of a model without a head."""
    folder.mkdir()
    rng, arrays = np.random.default_rng(seed), {}
    for layer in range(LM["depth"]):
        for module, (outputs, inputs) in TARGETS.items():
            name = f"base_model.model.layers.{layer}.{module}"
            for part, shape in (("A", (RANK, inputs)), ("B", (outputs, RANK))):
                arrays[f"{name}.lora_{part}.weight"] = rng.normal(0, 0.4, shape).astype(np.float32)
    safetensors.numpy.save_file(arrays, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return arrays


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """base, a causal model with its tokenizer; one and two, adapters; merged, the sum."""
    root = tmp_path_factory.mktemp("models")
    params = small_models.drawn(functools.partial(lm.init, lm.from_sizes(LM)), scale=0.3)
    for name in ("base", "merged"):
        weights.save({"lm": params}, {"family": "llama", "lm": LM}, root / name, 8_000)
        small_models.write_tokenizer(root / name, WORDS, "a", r"[^\s]+", single="<s> $A")
    assert len(list((root / "base").glob("*.safetensors"))) > 1  # shards
    adapters = [write_adapter(root / name, seed) for seed, name in enumerate(("one", "two"))]
    for path in (root / "merged").glob("*.safetensors"):
        arrays = safetensors.numpy.load_file(path)
        for name in arrays:
            at = f"base_model.{name.removesuffix('.weight')}.lora_"
            for adapter in adapters:
                if f"{at}A.weight" in adapter:
                    low = adapter[f"{at}B.weight"] @ adapter[f"{at}A.weight"]
                    arrays[name] = arrays[name] + ALPHA / RANK * low
        safetensors.numpy.save_file(arrays, path)
    return root


def encoder(folder, name="base", adapters=(), dtype="float32", **options):
    paths = [folder / adapter for adapter in adapters]
    return text_encoders.LanguageModelEncoder(
        folder / name, "llama_2_chat", adapters=paths, dtype=dtype, batch_size=2, **options
    )


def test_adapters_are_added_one_after_the_other(folder):
    found = encoder(folder, adapters=("one", "two"))(TEXTS)
    np.testing.assert_allclose(found, encoder(folder, "merged")(TEXTS), atol=1e-5)
    for adapters in ((), ("one",)):
        assert np.abs(encoder(folder, adapters=adapters)(TEXTS) - found).max() > 0.1


@pytest.mark.devices
def test_devices_share_texts_and_give_the_vectors_of_one(folder, monkeypatch):
    half, whole = (encoder(folder, adapters=("one",), dtype=x) for x in ("bfloat16", "float32"))
    found, expected = half(TEXTS), whole(TEXTS)
    leaves = jax.tree.leaves(half.encoder.params)
    assert {x.dtype.name for x in leaves} == {"bfloat16"}
    assert {len(x.sharding.device_set) for x in leaves} == {8}
    assert "head" not in half.encoder.params
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=0.1)
    assert (found != expected).any()
    one = functools.partial(sharding.make_mesh, hardware=jax.devices()[:1])
    monkeypatch.setattr(sharding, "make_mesh", one)
    alone = encoder(folder, adapters=("one",))
    assert {len(x.sharding.device_set) for x in jax.tree.leaves(alone.encoder.params)} == {1}
    np.testing.assert_allclose(alone(TEXTS), expected, atol=1e-5)


def test_another_model_adapter_or_precision_is_another_encoder(folder):
    """So that no file of vectors goes on with another one."""
    others = (
        encoder(folder),
        encoder(folder, "merged"),
        encoder(folder, adapters=("one",)),
        encoder(folder, adapters=("one", "two")),
        encoder(folder, instruction="find"),
        encoder(folder, dtype="bfloat16"),
    )
    identities = {json.dumps(each.identity) for each in others}
    assert len(identities) == len(others)
    assert json.dumps(encoder(folder).identity) in identities


def write_llm2clip(folder, width=LM["width"]):
    """Image tower and adapter of an LLM2CLIP, random; returns what the adapter makes of vectors."""
    tower = VectorTower(width=width, projection=5, connector="llm2clip")
    vector = np.zeros((1, width), np.float32)
    params = small_models.drawn(tower.init, vector, scale=0.3, seed=3)
    own = rename.save(llm2clip.adapter_rules(), rename.flatten({"text": params["params"]}))
    (image,) = (r for r in huggingface.clip_rules() if r.ours == ("image/class_embedding",))
    folder.mkdir()
    arrays = {**own, image.theirs[0]: np.zeros(3, np.float32)}
    safetensors.numpy.save_file(arrays, folder / "model.safetensors")
    return jax.jit(lambda x: tower.apply(params, x, text_encoders.RAW).pooled)


@pytest.mark.slow
def test_the_command_continues_vectors_that_the_same_encoder_began(folder, tmp_path, monkeypatch):
    adapt = write_llm2clip(tmp_path / "llm2clip")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    out = tmp_path / "x.safetensors"
    asked = {
        "texts": tmp_path / "texts.txt",
        "model": folder / "base",
        "format": "llama_2_chat",
        "adapter": folder / "one",
        "instruction": "find",
        "compute_dtype": "float32",
        "llm2clip": tmp_path / "llm2clip",
        "out": out,
    }

    def embedded(**changes):
        words = [f"--{k}={v}" for k, v in (asked | changes).items() if v is not None]
        return helpers.python("-m", "vlc_jax.tools.embed_text", *words)

    text_encoder = encoder(folder, adapters=("one",), instruction="find")
    adapted = text_encoders.Adapted(text_encoder, tmp_path / "llm2clip")

    monkeypatch.setattr(vector_file, "merge", mock.Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        vector_file.write(out, TEXTS, adapted, identity=adapted.identity)
    done = embedded()
    assert done.returncode == 0, done.stderr
    assert "vectors of 3 texts, 5 wide" in done.stdout
    np.testing.assert_allclose(TextVectors(out)(TEXTS), adapt(text_encoder(TEXTS)), atol=1e-5)
    others_are_encoded(out, lambda texts: adapt(text_encoder(texts)))
    for changes, words in (
        ({"format": None}, "is a language model: set the format of its texts, --format=plain or"),
        ({"model": folder / "one"}, "is for language models: set --model to the folder of one"),
    ):
        done = embedded(out=tmp_path / "y.npy", **changes)
        assert done.returncode == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr


def others_are_encoded(file, encode):
    """The encoder beside a file gives the vectors of other texts, as long as it is that one."""
    vectors, texts = TextVectors(file), ["a red cat", TEXTS[1], "", "a red cat"]
    with pytest.raises(DataError, match="no vector of 'a red cat'"):
        vectors(texts)
    text_encoders.encode_others(vectors)
    vectors.require(texts)
    found = vectors(texts)
    np.testing.assert_allclose(found[[0, 1, 3]], encode([texts[i] for i in (0, 1, 3)]), atol=1e-5)
    assert not found[2].any()
    vectors.encode_others = None  # what was required is known
    np.testing.assert_array_equal(vectors(texts), found)
    text_encoders.encode_others(vectors)
    assert pickle.loads(pickle.dumps(vectors)).encode_others is None
    beside = file.with_suffix(".encoder.json")
    said = json.loads(beside.read_text())
    for change, words in (
        ({"instruction": None}, r"the encoder of .* has changed: .*'a red dog' is [0-9.]+% away"),
        ({"model": "/gone"}, r"x\.encoder\.json beside it names, cannot be used: .*no file /gone"),
        ({"llm2vec": 1}, "cannot be used: .*llm2vec"),
    ):
        beside.write_text(json.dumps(said | change))
        text_encoders.encode_others(vectors)
        with pytest.raises(UsageError, match=words):
            vectors.require(texts, forget=True)
        vectors.require(TEXTS, forget=True)
    beside.write_text("{")
    with pytest.raises(DataError, match=r"x\.encoder\.json is damaged"):
        text_encoders.encode_others(vectors)
    beside.unlink()


def test_what_is_no_encoder_is_refused(folder, tmp_path):
    write_llm2clip(tmp_path / "llm2clip", 8)
    adapted = text_encoders.Adapted(encoder(folder), tmp_path / "llm2clip")
    with pytest.raises(WeightsError, match="adapts vectors of width 8, the encoder gives 16"):
        adapted(TEXTS)
    path = tmp_path / "llm2clip" / "model.safetensors"
    arrays = safetensors.numpy.load_file(path)
    name = "text_adapter.adaptor.2.fn.0.bias"
    for broken, words in ((np.full(16, np.nan), "not finite"), (np.ones(8), "other shapes")):
        safetensors.numpy.save_file(arrays | {name: broken.astype(np.float32)}, path)
        with pytest.raises(WeightsError, match=f"llm2clip: .*{words}.*block_2_up/bias"):
            text_encoders.Adapted(encoder(folder), tmp_path / "llm2clip")
    with pytest.raises(WeightsError, match=r"28 not in the file: text_adapter\.adaptor\.0"):
        text_encoders.Adapted(encoder(folder), folder / "base" / "model-00001-of-00003.safetensors")
    (tmp_path / "llava").mkdir()
    config = {"model_type": "llava", "text_config": {}, "vision_config": {}}
    (tmp_path / "llava" / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="holds a model of images"):
        text_encoders.LanguageModelEncoder(tmp_path / "llava", "plain")


def test_language_models_are_told_from_sentence_encoders(folder, tmp_path):
    assert text_encoders.is_language_model(folder / "base")
    assert not text_encoders.is_language_model(folder / "one")
    (tmp_path / "config.json").write_text((folder / "base" / "config.json").read_text())
    assert text_encoders.is_language_model(tmp_path)
    (tmp_path / "modules.json").write_text("[]")  # of sentence-transformers
    assert not text_encoders.is_language_model(tmp_path)
