"""LLaVA and its language models give the numbers of transformers, from folders of every layout."""

import functools
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from tests.support import plain_llava
from vlc_jax import models, types
from vlc_jax.errors import WeightsError
from vlc_jax.models import captioner, decode, llava, lm, lora
from vlc_jax.weights import llava as weights
from vlc_jax.weights import lm_adapter

pytestmark = pytest.mark.slow

SCRIPT = "llava_reference.py"
TOLERANCE = 5e-5  # float32, of logits up to 6
LMS = ("llama2", "llama3", "llama31", "phi3", "mistral", "phi3_short", "phi3_long", "gemma")
LAYOUTS = ("hf_old", "original", "state_dict", "sharded")


@functools.cache
def shapes_of(model):
    init = {lm.Decoder: lm.init, plain_llava.LLaVA: plain_llava.init}[type(model)]
    shapes = jax.eval_shape(functools.partial(init, model), jax.random.key(0))
    return shapes if isinstance(model, plain_llava.LLaVA) else {"lm": shapes}


def load(folder, **options):
    """The model of a folder and its parameters."""
    sizes = weights.read_sizes(folder)
    if "image" in sizes:
        model = plain_llava.build(sizes, **options)
        return model, weights.load(folder, sizes, shapes_of(model))
    model = lm.from_sizes(sizes["lm"], **options)
    return model, weights.load(folder, sizes, shapes_of(model))["lm"]


@pytest.fixture(scope="module")
def whole(folder):
    return load(folder / "llava")


def error(model, params, io, padding="right"):
    """Largest difference of the logits at valid slots; the second row has no image."""
    mask = io[f"{padding}/mask"].astype(bool)
    ids = np.asarray(io[f"{padding}/ids"], np.int32)
    apply = jax.jit(functools.partial(model.apply, method=plain_llava.LLaVA.text_logits))
    logits = apply({"params": params}, io["images"], ids, mask)
    return np.abs(np.asarray(logits) - io[f"{padding}/logits"])[mask].max()


@pytest.mark.parametrize("name", LMS)
def test_logits_of_a_language_model(folder, io, name):
    model, params = load(folder / name)
    ids = np.asarray(io[f"{name}/ids"], np.int32)
    apply = jax.jit(functools.partial(model.apply, method=lm.Decoder.text_logits))
    logits = apply({"params": params}, ids, np.ones(ids.shape, bool))
    difference = np.abs(np.asarray(logits) - io[f"{name}/logits"]).max()
    assert difference <= (2 if name.startswith("phi3_") else 1) * TOLERANCE
    assert np.abs(logits).max() > 2


@pytest.mark.parametrize("name", ["llama3", "phi3"])
@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_logits_with_adapters_of_peft(folder, io, name, kind):
    model, params = load(folder / name)
    sizes = weights.read_sizes(folder / name)
    trained, alpha = lm_adapter.load(folder / f"{name}_{kind}", sizes)
    params, trained = jax.device_put(({"lm": params}, trained))
    ids = np.asarray(io[f"{name}/ids"], np.int32)
    apply = jax.jit(functools.partial(model.apply, method=lm.Decoder.text_logits))
    for place in (lora.merge, lora.attach):  # added to the matrices, and beside them
        placed = jax.jit(functools.partial(place, alpha=alpha))(params, trained)["lm"]
        logits = apply({"params": placed}, ids, np.ones(ids.shape, bool))
        np.testing.assert_allclose(logits, io[f"{name}_{kind}/logits"], atol=TOLERANCE)
    assert np.abs(np.asarray(logits) - io[f"{name}/logits"]).max() > 1


def test_adapters_that_are_not_ours_are_refused(folder, tmp_path):
    sizes = weights.read_sizes(folder / "llama3")
    target = shutil.copytree(folder / "llama3_lora", tmp_path / "adapter")
    config = json.loads((target / "adapter_config.json").read_text())
    (target / "adapter_config.json").write_text(json.dumps(config | {"use_rslora": True}))
    with pytest.raises(WeightsError, match="use_rslora=True of an adapter is not"):
        lm_adapter.load(target, sizes)
    (target / "adapter_config.json").write_text(json.dumps(config))
    path = target / "adapter_model.safetensors"
    arrays = safetensors.numpy.load_file(path)
    last = [name for name in arrays if ".1.mlp.up_proj" in name]
    for change, message in (
        (lambda a: [a.pop(name) for name in last], "1 layers without an adapter"),
        (lambda a: a.update({n.replace("up", "other"): a[n] for n in last}), "1 adapters of no ma"),
        (lambda a: a.update(other=a[last[0]]), "other is no part of an adapter"),
    ):
        changed = dict(arrays)
        change(changed)
        safetensors.numpy.save_file(changed, path)
        with pytest.raises(WeightsError, match=message):
            lm_adapter.load(target, sizes)


@pytest.mark.parametrize("layer", [-2, -1])
def test_hidden_states_of_the_image_tower(folder, io, layer):
    # the tower of a folder without an own last block has its blocks only
    sizes = weights.read_sizes(folder / "llava") | {"layer": layer, "select": "cls_patch"}
    model = plain_llava.build(sizes)
    params = weights.load(folder / "llava", sizes, shapes_of(model))
    apply = functools.partial(
        model.apply, method=lambda m, x: m.image(x, types.FeatureRequest("raw")).tokens
    )
    tokens = jax.jit(apply)({"params": params}, io["images"])
    np.testing.assert_allclose(tokens, io[f"hidden_{layer}"], atol=2e-5)


def test_image_tokens_and_their_selections(whole, io):
    model, params = whole
    images = io["images"]
    tokens = {
        select: plain_llava.image_tokens(model.clone(select=select), params, images)
        for select in llava.SELECTIONS
    }
    whole = io["projected"]  # the class token first
    for select, expected in (("patch", whole[:, 1:]), ("cls", whole[:, :1]), ("cls_patch", whole)):
        np.testing.assert_allclose(tokens[select], expected, atol=3e-5)
    counts = {s: model.clone(select=s).num_image_tokens for s in llava.SELECTIONS}
    assert counts == {s: tokens[s].shape[1] for s in llava.SELECTIONS}
    assert counts == {"patch": 16, "cls": 1, "cls_patch": 17}


@pytest.mark.parametrize("padding", ["left", "right"])
def test_logits_of_rows_with_and_without_image(whole, io, padding):
    assert error(*whole, io, padding) <= TOLERANCE


def prompts(whole, io, rows=slice(None), padding="left", without_image=False):
    model, params = whole
    ids = np.asarray(io[f"{padding}/ids"][rows], np.int32)
    valid = io[f"{padding}/mask"][rows].astype(bool)
    tokens = plain_llava.image_tokens(model, params, io["images"][rows])
    return plain_llava.embed_prompt(model, params, ids, valid, None if without_image else tokens)


@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("case", ["generated", "generated_early"])
def test_greedy_ids(whole, io, case, padding):
    model, params = whole
    end = np.array([io["early"] if case == "generated_early" else 127])
    prompt = prompts(whole, io, padding=padding)
    ids = decode.generate(model.lm, params["lm"], (prompt,), end, steps=24)
    np.testing.assert_array_equal(ids, io[case])
    assert len(np.unique(ids)) > 10


def test_perplexities_of_options(whole, io):
    model, params = whole
    options, valid = (
        np.broadcast_to(x[None], (3, *x.shape))
        for x in (io["options"].astype(np.int32), io["options_valid"])
    )
    found = jax.jit(captioner.mean_log_probability, static_argnums=0)(
        model.lm, params["lm"], prompts(whole, io), options, valid
    )
    np.testing.assert_allclose(np.exp(-found), np.exp(io["losses"]), rtol=1e-5)


def test_embeddings_of_vlm2vec(folder, whole, io):
    sizes, params = weights.read_sizes(folder / "llava"), whole[1]
    model = models.build(
        *("vlm2vec", "L/14"), text_tower=False, vocab_size=128, context_length=13, eos_id=2,
        head={"decoder": sizes["lm"], "stage": "raw", "prefix": (1,)},
        image={**sizes["image"], "depth": whole[0].image.depth, "projection": None},
    )  # fmt: skip
    head = {name: params[name] for name in ("projector", "lm")}
    apply = functools.partial(model.apply, {"params": {"image": params["image"], "head": head}})
    rows = [x[mask == 1] for x, mask in zip(io["left/ids"], io["left/mask"], strict=True)]
    # behind the start token and the image, of which the second row has none
    rows = [row[skip:] for row, skip in zip(rows, (17, 1, 17), strict=True)]
    ids = np.stack([np.pad(row, (0, 13 - len(row)), constant_values=2) for row in rows])
    ids = ids.astype(np.int32)

    @jax.jit
    def embeddings(images, asked, texts):
        image = apply(images, asked, method="encode_image")
        return image.pooled, apply(texts, method="encode_text").pooled

    image, text = embeddings(io["images"][[0, 2]], ids[[0, 2]], ids[1:2])
    np.testing.assert_allclose(image, io["embeddings"][[0, 2]], atol=1e-5)
    np.testing.assert_allclose(text, io["embeddings"][1:2], atol=1e-5)


def test_m3id_ids(whole, io):
    model, params = whole
    params = {**params["lm"], "head": 3 * params["lm"]["head"]}
    rows = [0, 2]
    prompt, blind = prompts(whole, io, rows), prompts(whole, io, rows, without_image=True)
    numbers = decode.M3ID(float(io["m3id_alpha"]), float(io["m3id_decay"]), first_step=1)
    ends = np.array([-1])
    ids = decode.generate(model.lm, params, (prompt, blind), ends, numbers, steps=12)
    np.testing.assert_array_equal(ids, io["m3id"])
    assert 0 < io["m3id_gates"].sum() < io["m3id_gates"].size
    greedy = decode.generate(model.lm, params, (prompt,), ends, steps=12)
    assert (np.asarray(greedy) != ids).any()


def test_bfloat16_is_as_near_to_float32_as_that_of_transformers(folder, io):
    model, params = load(folder / "bfloat16", dtype=jnp.bfloat16, param_dtype=jnp.bfloat16)
    assert {x.dtype.name for x in jax.tree.leaves(params)} == {"bfloat16"}
    mask = io["right/mask"].astype(bool)
    theirs = np.abs(io["bfloat16_logits"] - io["right/logits"])[mask].max()
    assert error(model, params, io) <= 1.5 * theirs


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_the_same_tree(folder, whole, layout):
    model, params = load(folder / layout)
    jax.tree.map(np.testing.assert_array_equal, params, whole[1])
    assert model.image == whole[0].image
    assert model.lm == whole[0].lm
    assert model.image_id == (-200 if layout == "original" else 120)


def test_full_is_all_tokens(folder):
    assert load(folder / "llava_full")[0].select == "cls_patch"


@pytest.mark.parametrize("name", ["llava", "phi3", "phi3_long", "gemma", "llama31", "mistral"])
def test_export_is_what_was_imported(folder, tmp_path, name):
    sizes = weights.read_sizes(folder / name)
    model, params = load(folder / name)
    weights.save(params if name == "llava" else {"lm": params}, sizes, tmp_path / "1")
    again_sizes = weights.read_sizes(tmp_path / "1")
    again_model, again = load(tmp_path / "1")
    assert again_model == model
    jax.tree.map(np.testing.assert_array_equal, again, params)
    weights.save(again if name == "llava" else {"lm": again}, again_sizes, tmp_path / "2")
    for file in ("model.safetensors", "config.json"):
        first, second = ((tmp_path / side / file).read_bytes() for side in "12")
        assert first == second
    if name != "llava":
        original = safetensors.numpy.load_file(folder / name / "model.safetensors")
        exported = safetensors.numpy.load_file(tmp_path / "1" / "model.safetensors")
        assert original.keys() == exported.keys()
        for key, array in original.items():
            np.testing.assert_array_equal(exported[key], array)


def test_transformers_loads_the_export_and_gives_its_numbers(folder, whole, io, there, tmp_path):
    sizes = weights.read_sizes(folder / "llava")
    weights.save(whole[1], sizes, tmp_path / "llava", max_shard_bytes=50_000)
    assert len(list((tmp_path / "llava").glob("*.safetensors"))) > 2
    there("llava_export.py", folder / "io.npz", tmp_path / "llava", tmp_path / "logits.npy")
    mask = io["right/mask"].astype(bool)
    found = np.load(tmp_path / "logits.npy")
    np.testing.assert_allclose(found[mask], io["right/logits"][mask], atol=TOLERANCE)


def broken(folder, target, change):
    """A copy of a folder with other arrays."""
    shutil.copytree(folder, target)
    path = target / "model.safetensors"
    arrays = safetensors.numpy.load_file(path)
    change(arrays)
    safetensors.numpy.save_file(arrays, path)
    return target


def test_a_missing_image_tower_is_taken_from_the_folder_of_clip(folder, whole, tmp_path):
    def without_tower(arrays):
        for name in [name for name in arrays if "vision_tower" in name]:
            del arrays[name]

    def only_tower(arrays):
        for name in list(arrays):
            array = arrays.pop(name)
            if "vision_tower" in name:
                arrays[name.removeprefix("model.vision_tower.vision_tower.")] = array
        arrays["text_model.some"] = np.zeros(2)

    target = broken(folder / "original", tmp_path / "without", without_tower)
    name = json.loads((target / "config.json").read_text())["mm_vision_tower"]
    sizes = weights.read_sizes(target)
    shapes = shapes_of(plain_llava.build(sizes))
    with pytest.raises(WeightsError, match=f"'{name}' as mm_vision_tower; download that CLIP to"):
        weights.load(target, sizes, shapes)
    broken(folder / "original", tmp_path / name, only_tower)  # beside it
    params = weights.load(target, sizes, shapes)
    jax.tree.map(np.testing.assert_array_equal, params, whole[1])
