"""A folder of LLaVA as a model that scores: `vlc_jax.load` and VQAScore."""

import functools
import importlib
import json

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict
from PIL import Image
from scipy import special

import vlc_jax
from tests.support import helpers, llava_folder, miniature
from tests.support.llava_folder import LM, WORDS
from tests.support.marks import slow_but
from tests.support.small_models import IMAGE
from tests.support.training import train
from vlc_jax import errors
from vlc_jax.configs import default
from vlc_jax.encode import inference
from vlc_jax.input_pipeline.record import ImageQuestion
from vlc_jax.setup import init_from, llava_config, resolve

CAPTIONS = ["a red circle", "a blue circle"]


@pytest.fixture(params=["patch", "cls"])
def folder(request, tmp_path):
    """A folder as `weights.save` writes it, its model, and its parameters."""
    return tmp_path, *llava_folder.write(tmp_path, request.param)


@pytest.mark.parametrize("folder", slow_but(("patch",), ("patch", "cls")), indirect=True)
def test_a_folder_scores_by_vqascore(folder):
    path, reference, params = folder
    model = vlc_jax.load(path)
    images = llava_folder.pictures(2)
    found = model.score(images, CAPTIONS)
    place = {word: i for i, word in enumerate(llava_folder.WORDS)}
    expected = np.zeros((2, 2))
    apply = jax.jit(functools.partial(reference.apply, {"params": params}, method="text_logits"))
    for i, image in enumerate(images):
        pixels = np.asarray(model._setup.normalise(jax.device_put(image[None])))
        for j, caption in enumerate(CAPTIONS):
            asked = f'Does this figure show "{caption}"? Please answer yes or no. ASSISTANT:'
            before = [place[word] for word in ("<s>", "USER:")]
            behind = [place[word] for word in ("\n", *asked.split(), "Yes", "</s>")]
            ids = [*before, *[llava_folder.IMAGE_ID] * reference.num_image_tokens, *behind]
            valid = np.ones((1, len(ids)), bool)
            logits = np.asarray(apply(pixels, np.array([ids]), valid))
            log_p = special.log_softmax(logits[0], axis=-1)
            expected[i, j] = (log_p[-3, ids[-2]] + log_p[-2, ids[-1]]) / 2
    assert np.ptp(expected) > 0.003
    np.testing.assert_allclose(found, expected, atol=2e-5)


def as_embedder(folder, talks):
    """The shipped recipe, with the sizes of the fixture and two steps."""
    arguments = f"weights={folder},vocab={LM['vocab']},batch=8,microbatch=8"
    get_config = importlib.import_module("vlc_jax.configs.llava.vlm2vec").get_config
    config = get_config(f"{arguments},path={talks},image_folder={talks.parent}")
    with config.unlocked():
        sizes = {key: value for key, value in IMAGE.items() if key != "image_size"}
        config.model.image = ConfigDict(sizes | {"depth": 2, "projection": None})
        config.model.head = ConfigDict(config.model.head.to_dict() | {"decoder": LM})
        config.input.image_size = 8
        config.text.context_length, config.text.lengths = 12, (8,)
        config.text.tokenizer_options.pad_token = "<pad>"
        config.input.question = "show this figure {}"
        config.steps, config.log_every, config.optimizer.warmup_steps = 2, 2, 0
        config.lora.rank = 2
    return config


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["patch"], indirect=True)
def test_a_folder_becomes_an_embedder_and_is_trained(folder, tmp_path):
    path, reference, params = folder
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (4, 8, 8, 3), np.uint8)
    rows = []
    for i, image in enumerate(pixels):
        Image.fromarray(image).save(tmp_path / f"{i}.png")
        talk = miniature.talk("<image>\nred or blue", f"a {('red', 'blue')[i % 2]}")
        rows.append({"id": i, "image": f"{i}.png", "conversations": talk})
    (tmp_path / "talks.json").write_text(json.dumps(rows))
    config = as_embedder(path, tmp_path / "talks.json")
    setup = resolve(config, "weights")
    loaded = {"params": init_from.load_complete(setup), "batch_stats": {}}
    model = inference.Model(setup, loaded)
    assert model.logit_scale == pytest.approx(50)

    place = {word: i for i, word in enumerate(WORDS)}
    apply = jax.jit(functools.partial(reference.apply, {"params": params}))
    asked = [place[word] for word in ("show", "this", "figure", "red", "or", "blue")]
    ids = np.array([[1, *[29] * reference.num_image_tokens, *asked]])
    hidden = apply(setup.normalise(jax.device_put(pixels[:1])), ids, np.ones(ids.shape, bool))
    expected = hidden[0, -1] / np.linalg.norm(hidden[0, -1])
    found = model.embed_images([ImageQuestion(pixels[0], "red or blue")])[0]
    np.testing.assert_allclose(found, expected, atol=1e-5)

    (row,) = helpers.rows(train(config, tmp_path / "run") / "metrics.jsonl")
    assert row["step"] == 2
    assert row["train/infonce"] > 0
    assert row["train/grad_norm"] > 0


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
