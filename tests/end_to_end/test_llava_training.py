"""LLaVA's two stages from CLIP and a language model: what is trained, saved and resumed."""

import functools
import json
import shutil

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import vlc_jax
from tests.support import helpers, miniature, tiny_llava_stages
from tests.support.runs import saved_params
from tests.support.small_models import drawn, write_hugging_face, write_tokenizer
from vlc_jax import models, weights
from vlc_jax.devices import sharding
from vlc_jax.errors import UsageError
from vlc_jax.models import lm
from vlc_jax.setup import init_from, plan_search, resolve
from vlc_jax.tools import cache_features, export
from vlc_jax.weights import llava, llava_sizes

pytestmark = pytest.mark.slow

CONFIG = "tests/support/tiny_llava_stages.py"
WORDS = ("<unk>", "</s>", "<s>", "USER:", "ASSISTANT:", "\n", "what", "is", "it", "a", "red", "dog")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """CLIP, a language model, a tokenizer, photos and LLaVA's JSON."""
    root = tmp_path_factory.mktemp("llava")
    small = {"width": 16, "heads": 2, "depth": 3}
    image = {**small, "image_size": 8, "patch_size": 4, "projection": 8}
    text = {**small, "vocab_size": 30, "context_length": 7, "eos_id": 2, "projection": 8}
    clip = models.build("clip", "L/14", image=image, text=text)
    fields = {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}
    write_hugging_face(root / "clip", clip, "hf_clip", 0.3, **fields)
    (root / "clip/preprocessor_config.json").write_text(json.dumps({"do_center_crop": True}))
    decoder = lm.build("tiny")
    params = drawn(functools.partial(lm.init, decoder), scale=0.3, seed=1)
    fields = llava_sizes.read({"model_type": "llama"})["lm"]
    sizes = {"family": "llama", "lm": {name: getattr(decoder, name) for name in fields}}
    llava.save({"lm": params}, sizes, root / "lm")
    write_tokenizer(root, WORDS, "<unk>", r"\n|</s>|[^\s<]+")
    names = helpers.write_photos(root / "photos", 8)
    rows = []
    for index, name in enumerate(names):
        turns = 1 if index < 6 else 3
        first, *others = ["what is it", "a red dog" if index % 2 else "a dog"] * turns
        turns = miniature.talk(f"<image>\n{first}", *others)
        # the second stage reads one conversation without an image, too; the first leaves it out
        row = {"id": str(index), "image": name, "conversations": turns}
        rows.append(row if index != 3 else {"id": "3", "conversations": turns})
    (root / "llava.json").write_text(json.dumps(rows))
    return root


def run(root, workdir, arguments, *flags):
    helpers.run(f"{CONFIG}:root={root},{arguments}", workdir, *flags, code=0)
    return helpers.rows(workdir / "metrics.jsonl")


@pytest.fixture(scope="module")
def first(root, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("first") / "run"
    return workdir, run(root, workdir, "stage=1")


@pytest.fixture(scope="module")
def second(root, first, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("second") / "run"
    arguments = f"stage=2,weights={first[0]},steps=4"
    return workdir, arguments, run(root, workdir, arguments)


def test_the_first_stage_trains_the_projector_alone(first):
    workdir, rows = first
    kernels = {f"head/projector/{layer}/{part}" for layer in ("first", "second")
               for part in ("kernel", "bias")}  # fmt: skip
    assert saved_params(workdir, 2).keys() == kernels
    assert all(np.isfinite(row["train/loss"]) for row in rows)


def test_clip_is_read_up_to_the_last_block_but_one(root):
    config = tiny_llava_stages.get_config(f"root={root}")
    setup = resolve(config, "weights")
    params = init_from.load(setup, setup.parameters.shapes)
    assert sorted(name for name in params["image"] if "block" in name) == ["block_0", "block_1"]
    theirs = load_file(root / "clip/model.safetensors")
    name = "vision_model.encoder.layers.1.mlp.fc1.weight"
    np.testing.assert_array_equal(params["image"]["block_1"]["mlp"]["up"]["kernel"], theirs[name].T)
    assert {x.dtype.name for x in jax.tree.leaves(params["head"]["lm"])} == {"bfloat16"}
    with config.unlocked():
        config.model.head.decoder = ""
        config.model.head.depth = 2
    setup = resolve(config, "weights")
    with pytest.raises(
        UsageError, match=r"differs from config.model.head: width 48, here 16, depth 3, here 2"
    ):
        init_from.load(setup, setup.parameters.shapes)


def test_frozen_parameters_go_to_the_devices_one_by_one(root, monkeypatch):
    config = tiny_llava_stages.get_config(f"root={root}")
    config.batch_size = 8
    setup = resolve(config, "train")
    shapes = sharding.place_shapes(setup.mesh, setup.parameters.shapes)
    on_host = init_from.load(setup, shapes)["head"]["lm"]
    load, asked = init_from.load, []

    def watched(setup, shapes, **options):
        asked.append(options)
        return load(setup, shapes, **options)

    monkeypatch.setattr(init_from, "load", watched)
    frozen, fingerprints = init_from.load_frozen(setup)
    init_from.load_trained(setup, setup.parameters.trained_shapes())
    monkeypatch.undo()
    assert [options.get("is_placed", False) for options in asked] == [True, False]
    of_frozen, of_trained = (set(options["only"]) for options in asked)
    assert of_frozen == weights.flatten(frozen).keys()
    assert of_trained == {path for path in weights.flatten(shapes) if "projector" in path}
    leaves = jax.tree.leaves(init_from.load(setup, shapes, is_placed=True)["head"]["lm"])
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(on_host))
    # the fingerprint is that of the numbers, wherever they are
    others = {name: part for name, part in frozen.items() if name != "image"}
    assert fingerprints["frozen"] == init_from.digest(others | {"head": {"lm": on_host}})
    jax.tree.map(np.testing.assert_array_equal, frozen["head"]["lm"], on_host)
    kernel = "head/lm/norm/scale"
    found = init_from.load(setup, shapes, only={kernel})
    assert weights.flatten({"head": found["head"]}).keys() == {kernel}


def test_the_second_stage_trains_adapters_and_the_projector(first, second):
    workdir, _, rows = second
    before, after = saved_params(first[0], 2), saved_params(workdir, 4)
    matrices = ("query", "key", "value", "out", "gate", "up", "down")
    adapters = {f"lora/head/lm/blocks/{m}/kernel/{part}" for m in matrices for part in "ab"}
    assert after.keys() == adapters | before.keys()
    assert all(np.abs(after[path]).max() > 0 for path in adapters)
    # Adam moves a parameter by at most about its rate: 4 steps, warmup and cosine included
    moved = max(np.abs(after[path] - before[path]).max() for path in before)
    assert 1e-6 < moved < 4 * 2e-5 * 1.1
    assert max(np.abs(after[p]).max() for p in adapters if p.endswith("/b")) > 1e-4
    assert {row["train/text_length"] for row in rows} == {24, 48}


def test_a_batch_says_which_rows_have_an_image(root, first):
    config = tiny_llava_stages.get_config(f"root={root},stage=2,weights={first[0]}")
    config.batch_size = 8  # all records
    setup = resolve(config, "train")
    with setup.training.data.make_loader(0, []) as loader:
        batch = next(loader)
    (row,) = np.flatnonzero(~batch["has_image"])
    words = [WORDS[i] for i in batch["text"][row]]
    assert words[0] == "<s>"
    assert "what is it ASSISTANT: a red dog </s>" in " ".join(words)
    shapes = plan_search.batch_shapes(config, setup.mesh, setup.parameters)
    assert {*shapes} == {*batch, "stop"}
    assert shapes["has_image"].shape == batch["has_image"].shape
    with pytest.raises(UsageError, match="records without an image have no features"):
        cache_features.store(setup, root / "features", "bfloat16", 8)


def test_a_resumed_second_stage_ends_as_an_unbroken_one(root, second, tmp_path):
    workdir, arguments, rows = second
    again = tmp_path / "run"
    shutil.copytree(workdir, again)
    shutil.rmtree(again / "checkpoints/4")  # as if it had died after step 3
    found = run(root, again, arguments)
    before, after = saved_params(workdir, 4), saved_params(again, 4)
    assert all(np.array_equal(before[path], after[path]) for path in before.keys() | after.keys())
    assert found[-1]["train/loss"] == rows[-1]["train/loss"]


def test_an_exported_second_stage_is_asked_as_it_was_trained(second, tmp_path):
    workdir, _, _ = second
    export.export(workdir, "llava", tmp_path / "llava")
    ours, exported = vlc_jax.load(workdir), vlc_jax.load(tmp_path / "llava")
    assert exported._setup.model.head.prefix == ours._setup.model.head.prefix
    one, other = ours._setup.tokenizer, exported._setup.tokenizer
    texts = ["a dog", '[["what is it", "a dog"], ["what is it", "a red dog"]]']
    np.testing.assert_array_equal(one(texts)[:, :48], other(texts)[:, :48])
    assert other.terminators == one.terminators
    ends = json.loads((tmp_path / "llava/generation_config.json").read_text())
    assert ends == {"eos_token_id": list(one.terminators)}
    # the image's token is behind the vocabulary, whose new rows are the mean of the others
    config = json.loads((tmp_path / "llava/config.json").read_text())
    assert (config["image_token_index"], config["text_config"]["vocab_size"]) == (128, 192)
    tables = [model._variables["params"]["head"]["lm"] for model in (ours, exported)]
    for name in ("token_embedding", "head"):
        before, after = (np.asarray(jax.tree.leaves(t[name])[0], np.float32) for t in tables)
        rows = (x if name == "token_embedding" else x.T for x in (before, after))
        before, after = rows
        np.testing.assert_array_equal(after[:128], before)
        mean = np.tile(before.mean(axis=0), (64, 1))
        np.testing.assert_allclose(after[128:], mean, atol=1e-2)  # bfloat16
