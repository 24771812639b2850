"""`vlc_jax.load` of every exported folder is the model that was exported, with its tokenizer."""

import io
import json

import jax
import numpy as np
import pytest
import sentencepiece
from ml_collections import ConfigDict

import vlc_jax
from tests.support import helpers, small_models
from vlc_jax import models, weights
from vlc_jax.configs import default, records
from vlc_jax.encode import inference
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.input_pipeline.images import transforms
from vlc_jax.models import lora, variants
from vlc_jax.setup import init_from, resolve
from vlc_jax.tools import export, stablehlo, verify_export
from vlc_jax.weights import folder

CAPTIONS = ["a red dog", "the blue square", "two red circles, one ring"] * 4
WORDS = ("a", "red", "dog", "square", "of", "it's")
TOWER = {"width": 16, "heads": 2, "depth": 1, "mlp_width": 24}
# tokenizer -> its name in the config
TOKENIZERS = {
    "bytes": "bytes",
    "words": "words",
    "word_list": "words",
    "hf": "hf",
    "hf_odd_name": "hf",
    "sentencepiece": "sentencepiece",
    "siglip": "siglip",
    "clip": "clip",
}
FORMATS = ("hf", "open_clip", "big_vision", "big_vision_scan")


@pytest.fixture(scope="module")
def tokenizer_options(tmp_path_factory):
    """Options of each tokenizer in TOKENIZERS, some with files."""
    root = tmp_path_factory.mktemp("tokenizers")
    (root / "words.txt").write_text("\n".join(WORDS))
    for part, name in (("hf", "tokenizer.json"), ("odd", "own.json")):
        (root / part).mkdir()
        special = ("<pad>", "</s>", "<unk>")
        small_models.write_tokenizer(root / part, (*special, *WORDS), "<unk>")
        (root / part / "tokenizer.json").rename(root / part / name)
        tokens = {"eos_token": "</s>", "pad_token": "<pad>"}
        (root / part / "special_tokens_map.json").write_text(json.dumps(tokens))
    model = io.BytesIO()
    ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CAPTIONS), model_writer=model, vocab_size=40, **ids,
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    (root / "spiece.model").write_bytes(model.getvalue())
    sha256 = helpers.write_clip_vocabulary(root / "vocabulary.gz")
    return {
        "bytes": {},
        "words": {"words": WORDS},
        "word_list": {"path": str(root / "words.txt")},
        "hf": {"path": str(root / "hf"), "clean": "lower"},
        "hf_odd_name": {"path": str(root / "odd/own.json")},
        "sentencepiece": {"path": str(root / "spiece.model"), "clean": "lower"},
        "siglip": {"path": str(root / "spiece.model")},
        "clip": {"path": str(root / "vocabulary.gz"), "sha256": sha256},
    }


def is_siglip(target):
    return target.startswith("big_vision")


def config_of(tokenizer, options, target):
    """The config of a model of 16 channels that `target` holds."""
    config = default.get_config()
    with config.unlocked():
        config.model.variant = "SigLIP-B/16" if is_siglip(target) else "B/32"
        projection = 16 if is_siglip(target) else 8
        config.model.image = {**TOWER, "patch_size": 8}
        config.model.text = {**TOWER, "projection": projection}
        if not is_siglip(target):
            config.model.image["projection"] = projection
        config.input.image_size, config.input.crop = 16, "none"
        config.text.tokenizer, config.text.context_length = tokenizer, 12
        config.text.tokenizer_options = ConfigDict(options)
        config.model.vocab_size = 49_408 if tokenizer == "clip" else 300
    return config


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run(config, target) -> the workdir of a run that starts from random weights."""
    # another interpreter with the library of the format: tests/parity
    monkeypatch.setattr(verify_export, "check", lambda *_: "not checked")

    def make(config, target):
        config.init_from = str(tmp_path / "base")
        setup = resolve(config, "weights")
        size, eos = config.model.vocab_size, setup.tokenizer.eos_id
        text = {**config.model.text, "vocab_size": size, "context_length": 12, "eos_id": eos}
        image = {**config.model.image, "image_size": 16}
        model = models.build("clip", config.model.variant, image=image, text=text)
        kind = "hf_siglip" if is_siglip(target) else "hf_clip"
        fields = {"vocab_size": size, "max_position_embeddings": 12}
        small_models.write_hugging_face(tmp_path / "base", model, kind, 0.1, **fields)
        (tmp_path / "run").mkdir()
        (tmp_path / "run/config.json").write_text(json.dumps(setup.config))
        (tmp_path / "run/env.json").write_text("{}")
        return tmp_path / "run"

    return make


def same_model(loaded, first):
    assert loaded.fingerprint == first.fingerprint
    same_tokenizer(loaded, first)


def same_tokenizer(loaded, first):
    texts = ["A red dog's square.", "", "of  of unknown é"]
    np.testing.assert_array_equal(loaded.tokenizer(texts), first.tokenizer(texts))
    assert type(loaded.tokenizer) is type(first.tokenizer)


def pairs():
    """All pairs; of those, `make test` takes each tokenizer once, and each format."""
    for index, tokenizer in enumerate(TOKENIZERS):
        # SigLIP reads padding, which CLIP's tokenizer writes otherwise than its files say
        targets = FORMATS[:2] if tokenizer == "clip" else FORMATS
        for target in targets:
            is_quick = target == targets[index % len(targets)]
            yield pytest.param(tokenizer, target, marks=() if is_quick else pytest.mark.slow)


@pytest.mark.parametrize(("tokenizer", "target"), [*pairs()])
def test_an_exported_folder_is_loaded_with_its_tokenizer(
    tokenizer, target, tokenizer_options, run, tmp_path
):
    config = config_of(TOKENIZERS[tokenizer], tokenizer_options[tokenizer], target)
    workdir = run(config, target)
    export.export(workdir, target, tmp_path / "out")
    first, moved = vlc_jax.load(workdir), (tmp_path / "out").rename(tmp_path / "moved")
    same_model(vlc_jax.load(moved), first)


LORA = {"targets": "text/.*/(query|value)/kernel|image/patch_embedding/kernel", "rank": 2}


@pytest.mark.parametrize("dora", [pytest.param(False, marks=pytest.mark.slow), True])
def test_an_exported_adapter_is_loaded_onto_its_base(
    dora, tokenizer_options, run, tmp_path, monkeypatch
):
    config = config_of("words", tokenizer_options["words"], "peft")
    with config.unlocked():
        config.lora.update({**LORA, "dora": dora, "alpha": 6.0})
    workdir = run(config, "peft")
    setup = resolve(config, "weights")
    params = init_from.load_complete(setup)
    trained = lora.init(jax.random.key(0), params, **LORA, dora=dora)
    trained = jax.tree.map(lambda x: x + 0.1, trained)
    merged = lora.merge(params, trained, 6.0)
    latest = init_from.Latest(merged, 3, trained, {})
    monkeypatch.setattr(init_from, "load_latest", lambda *_: latest)
    export.export(workdir, "peft", tmp_path / "out")
    loaded, first = vlc_jax.load(tmp_path / "out"), inference.Model(setup, latest.variables)
    close = jax.tree.map(lambda a, b: np.allclose(a, b, atol=1e-6), loaded.params, first.params)
    assert all(jax.tree.leaves(close))
    assert not np.allclose(
        loaded.params["image"]["patch_embedding"]["kernel"],
        params["image"]["patch_embedding"]["kernel"],
    )
    (tmp_path / "base").rename(tmp_path / "gone")
    with pytest.raises(WeightsError, match=r"is an adapter of the weights at .*base, which"):
        vlc_jax.load(tmp_path / "out")
    adapter = json.loads((tmp_path / "out/adapter_config.json").read_text())
    (tmp_path / "out/adapter_config.json").write_text(json.dumps(adapter | {"use_rslora": True}))
    with pytest.raises(WeightsError, match="use_rslora=True of an adapter is not supported"):
        vlc_jax.load(tmp_path / "out")


def test_the_tokenizer_of_weights_is_named_or_that_of_a_run(
    tokenizer_options, run, tmp_path, monkeypatch
):
    sizes = variants.Sizes("openai", 8, 16, 8, (16, 1, 2, 24), (16, 1, 2, 24))
    monkeypatch.setitem(variants.VARIANTS, "tiny", sizes)
    config = config_of("words", tokenizer_options["words"], "hf")
    workdir = run(config, "hf")
    export.export(workdir, "hf", tmp_path / "out")
    first, bare = vlc_jax.load(workdir), tmp_path / "base"
    for tokenizer in (workdir, tmp_path / "out"):
        same_tokenizer(vlc_jax.load(bare, tokenizer=tokenizer), first)
    assert vlc_jax.load(bare, tokenizer="bytes").tokenizer.eos_id == 257
    with pytest.raises(UsageError, match=r"'bytes' is not the one of .*: 8 of 9 tokens differ"):
        vlc_jax.load(tmp_path / "out", tokenizer="bytes")
    loaded = vlc_jax.load(tmp_path / "out", image_size=24)
    assert loaded.preprocess([np.zeros((9, 9, 3), np.uint8)]).shape == (1, 24, 24, 3)
    with pytest.raises(UsageError, match=r"whose vlc_jax\.json determines variant: leave variant"):
        vlc_jax.load(tmp_path / "out", variant="B/16")
    with pytest.raises(UsageError, match="tokenizer 'hf' needs the option 'path'"):
        vlc_jax.load(tmp_path / "out", tokenizer="hf")


def test_the_default_size_for_own_photos_is_exportable(tmp_path):
    setup = resolve(records.get_config(f"path={tmp_path}/captions.jsonl"), "weights")
    shapes = setup.parameters.shapes
    params = jax.tree.map(lambda x: np.zeros(x.shape, np.float32), shapes)
    for target in ("hf", "open_clip"):
        kind = export.exported_kind(setup, tmp_path, target)
        form = export.TARGETS[target][kind]
        assert weights.save(params, form, init_from.architecture(setup.model))
        files = {"hf": folder.hugging_face, "open_clip": folder.open_clip}[target]
        assert files(export.describe(setup, is_siglip=False))


def test_every_crop_is_described_beside_the_programs():
    assert stablehlo.RESIZE.keys() == {*transforms.OF_EVALUATION}


def test_towers_read_back_from_stablehlo_give_the_embeddings(tokenizer_options, run, tmp_path):
    pytest.importorskip("flatbuffers")
    workdir = run(config_of("words", tokenizer_options["words"], "hf"), "hf")
    out, platforms = tmp_path / "out", ["cpu", "tpu"]
    names, verdict = export.export(workdir, "stablehlo", out, platforms=platforms)
    assert {"image.stablehlo", "text.stablehlo", "stablehlo.json", "tokenizer.json"} <= {*names}
    assert "checked: read back, the programs give the embeddings" in verdict
    facts, model = json.loads((out / "stablehlo.json").read_text()), vlc_jax.load(workdir)
    images = [np.full((20, 30, 3), grey, np.uint8) for grey in (0, 90, 250)]
    texts = ["a red dog"]
    rows = {"image": model.preprocess(images), "text": model.tokenizer(texts)}
    embed = {"image": model.embed_images(images), "text": model.embed_texts(texts)}
    for name, array in rows.items():  # three images and one text: any number of rows
        program = jax.export.deserialize(bytearray((out / facts[name]["file"]).read_bytes()))
        assert program.platforms == tuple(platforms)
        found = program.call(array)
        np.testing.assert_allclose(found, embed[name], atol=1e-5)
        for side, array_ in (("input", array), ("output", found)):
            shape = ["rows", *array_.shape[1:]]
            assert facts[name][side] == {"dtype": str(array_.dtype), "shape": shape}
    assert facts["logit_scale"] == pytest.approx(model.logit_scale)
    assert facts["tokenizer"]["end_id"] == model.tokenizer.eos_id
    with pytest.raises(UsageError, match=r"StableHLO programs and no weights: .*deserialize"):
        vlc_jax.load(out)
    with pytest.raises(UsageError, match="--platforms belongs to --to stablehlo, not to hf"):
        export.export(workdir, "hf", tmp_path / "other", platforms=platforms)
