"""A folder of LLaVA as a model that scores: `vlc_jax.load` and VQAScore."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vlc_jax
from configs import default
from tests.support import llava_folder
from vlc_jax import errors
from vlc_jax.setup import init_from, llava_config, resolve

CAPTIONS = ["a red circle", "a blue circle"]


@pytest.fixture(params=["patch", "cls"])
def folder(request, tmp_path):
    """A folder as `weights.save` writes it, its model, and its parameters."""
    return tmp_path, *llava_folder.write(tmp_path, request.param)


def test_a_folder_scores_by_vqascore(folder):
    path, reference, params = folder
    model = vlc_jax.load(path)
    rng = np.random.default_rng(1)
    images = [rng.integers(0, 256, (8, 8, 3), np.uint8) for _ in range(2)]
    found = model.score(images, CAPTIONS)
    place = {word: i for i, word in enumerate(llava_folder.WORDS)}
    expected = np.zeros((2, 2))
    apply = jax.jit(functools.partial(reference.apply, {"params": params}, method="text_logits"))
    for i, image in enumerate(images):
        pixels = np.asarray(model._setup.normalise(jnp.asarray(image[None])))
        for j, caption in enumerate(CAPTIONS):
            asked = f'Does this figure show "{caption}"? Please answer yes or no. ASSISTANT:'
            before = [place[word] for word in ("<s>", "USER:")]
            behind = [place[word] for word in ("\n", *asked.split(), "Yes", "</s>")]
            ids = [*before, *[llava_folder.IMAGE_ID] * reference.num_image_tokens, *behind]
            valid = jnp.ones((1, len(ids)), bool)
            logits = apply(jnp.asarray(pixels), jnp.asarray([ids]), valid)
            log_p = jax.nn.log_softmax(logits[0])
            expected[i, j] = (log_p[-3, ids[-2]] + log_p[-2, ids[-1]]) / 2
    assert np.ptp(expected) > 0.003
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_llava_is_refused_where_a_model_of_two_towers_is_wanted(folder):
    config = default.get_config()
    config.init_from = str(folder[0])
    setup = resolve(config, "weights")
    with pytest.raises(errors.UsageError, match=r"set config\.model\.name='captioner'"):
        init_from.load(setup, setup.parameters.shapes)


def test_a_folder_without_a_tokenizer_is_refused(folder):
    path = folder[0]
    (path / "tokenizer.json").unlink()
    with pytest.raises(errors.UsageError, match=r"no tokenizer\.json and no tokenizer\.model"):
        vlc_jax.load(path)


def test_only_llava_is_taken_for_llava(tmp_path):
    assert not llava_config.is_llava(tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert not llava_config.is_llava(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "clip"}))
    assert not llava_config.is_llava(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"mm_vision_tower": "x"}))
    assert llava_config.is_llava(tmp_path)
