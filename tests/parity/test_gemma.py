"""PaliGemma and Gemma 3 give the numbers of transformers, from folders of both layouts."""

import functools

import jax
import numpy as np
import pytest

from tests.support import plain_llava
from vlc_jax.models import decode, lm
from vlc_jax.weights import llava as weights

pytestmark = pytest.mark.slow

SCRIPT = "gemma_reference.py"
TOLERANCE = 5e-5  # float32, of logits up to 6
NAMES = ("paligemma", "gemma3")


@functools.cache
def load(folder):
    sizes = weights.read_sizes(folder)
    model = plain_llava.build(sizes)
    shapes = jax.eval_shape(functools.partial(plain_llava.init, model), jax.random.key(0))
    return model, weights.load(folder, sizes, shapes)


def error(name, model, params, io, padding):
    """Largest difference of the logits at valid slots; the second row has no image."""
    given = {key: io[f"{name}/{padding}/{key}"] for key in ("ids", "mask", "types")}
    ids, valid = np.asarray(given["ids"], np.int32), given["mask"].astype(bool)
    # of PaliGemma answers, of Gemma 3 images
    is_answer = given["types"] == 1 if name == "paligemma" else None
    apply = jax.jit(functools.partial(model.apply, method="text_logits"))
    images = io[f"{name}/images"]
    logits = apply({"params": params}, images, ids, valid, is_answer)
    return np.abs(np.asarray(logits) - io[f"{name}/{padding}/logits"])[valid].max()


@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("name", NAMES)
def test_logits_of_rows_with_and_without_image(folder, io, name, padding):
    assert np.abs(io[f"{name}/{padding}/logits"]).max() > 5
    assert error(name, *load(folder / name), io, padding) <= TOLERANCE


@pytest.mark.parametrize("name", NAMES)
def test_image_tokens(folder, io, name):
    model, params = load(folder / name)
    images = io[f"{name}/images"][[0, 2]]
    tokens = plain_llava.image_tokens(model, params, images)
    np.testing.assert_allclose(tokens, io[f"{name}/projected"], atol=3e-5)
    assert model.num_image_tokens == tokens.shape[1] == 16


@pytest.mark.parametrize("name", NAMES)
def test_greedy_ids(folder, io, name):
    model, params = load(folder / name)
    ids, valid = (np.asarray(io[f"{name}/prompt/{key}"], np.int32) for key in ("ids", "mask"))
    tokens = plain_llava.image_tokens(model, params, io[f"{name}/images"])
    prompt = plain_llava.embed_prompt(model, params, ids, valid > 0, tokens)
    found = decode.generate(model.lm, params["lm"], (prompt,), np.array([127]), steps=10)
    np.testing.assert_array_equal(found, io[f"{name}/generated"])
    assert len(np.unique(found)) > 3


def test_logits_of_the_language_model_of_gemma_3(folder, io):
    sizes = weights.read_sizes(folder / "gemma3_text")
    model = lm.from_sizes(sizes["lm"])
    shapes = {"lm": jax.eval_shape(functools.partial(lm.init, model), jax.random.key(0))}
    params = weights.load(folder / "gemma3_text", sizes, shapes)["lm"]
    ids = np.asarray(io["gemma3_text/ids"], np.int32)
    assert ids.shape[1] > 3 * model.window
    apply = jax.jit(functools.partial(model.apply, method="text_logits"))
    logits = apply({"params": params}, ids, np.ones(ids.shape, bool))
    np.testing.assert_allclose(logits, io["gemma3_text/logits"], atol=TOLERANCE)


@pytest.mark.parametrize("name", NAMES)
def test_both_layouts_are_the_same_tree(folder, name):
    model, params = load(folder / name)
    older, older_params = load(folder / f"{name}_old")
    assert older == model
    jax.tree.map(np.testing.assert_array_equal, older_params, params)


@pytest.mark.parametrize("name", NAMES)
def test_transformers_loads_the_export_and_gives_its_numbers(folder, io, there, tmp_path, name):
    model, params = load(folder / name)
    weights.save(params, weights.read_sizes(folder / name), tmp_path / name)
    again, read = load(tmp_path / name)
    assert again == model
    jax.tree.map(np.testing.assert_array_equal, read, params)
    out = tmp_path / "logits.npy"
    there("llava_export.py", folder / "io.npz", tmp_path / name, out, f"{name}/")
    mask = io[f"{name}/right/mask"].astype(bool)
    np.testing.assert_allclose(np.load(out)[mask], io[f"{name}/right/logits"][mask], atol=TOLERANCE)
