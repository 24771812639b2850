"""A checkpoint of X-VLM says all that a config needs but its tokenizer."""

from functools import partial

import jax
import numpy as np
import pytest

import vlc_jax
from tests.support import small_models
from vlc_jax import models, weights
from vlc_jax.configs.eval import zero_shot
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.setup import init_from, resolve
from vlc_jax.setup.weights_config import completed

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "red", "dog", "cat")
IDS = {"vocab_size": 8, "context_length": 40, "eos_id": 3, "text_tower": False}


def arrays_of(stages=(1, 2, 1, 1), **encoder):
    image = {"width": 8, "stages": stages, "heads": 2, "window": 2, "projection": None}
    sizes = {"width": 64, "depth": 3, "heads": 1, "mlp_width": 20, "positions": 40, **encoder}
    model = models.build(
        *("xvlm", "Swin-B/32"), **IDS, image_size=64, image=image,
        head={"encoder": sizes, "projection": 6},
    )  # fmt: skip
    shapes = jax.eval_shape(partial(models.init, model), jax.random.key(0))
    params = small_models.normal(shapes, 0.2)
    return weights.save(params, "xvlm", init_from.architecture(model))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("xvlm")
    small_models.write_tokenizer(path, WORDS, "[UNK]")
    np.savez(path / "xvlm.npz", **arrays_of(cross=(2,)))
    return path / "xvlm.npz"


def test_a_checkpoint_gives_the_whole_model_which_scores_pairs(file):
    model = vlc_jax.load(file)
    head, image = model._setup.model.head, model._setup.model.image
    encoder = head.text_encoder
    assert (encoder.cross, encoder.depth, encoder.token_types, head.match_id) == ((2,), 3, 2, None)
    assert (image.stages, image.heads, image.window) == ((1, 2, 1, 1), 2, 2)
    assert (image.image_size, image.width, image.embed) == (64, 8, 64)
    settings = model.config["input"]
    assert [settings[key] for key in ("crop", "interpolation", "normalisation")] == [
        "none", "bicubic", "clip"
    ]  # fmt: skip
    pictures = [np.full((64, 64, 3), shade, np.uint8) for shade in (0, 200)]
    scores = model.score(pictures, ["a red dog", "a cat", "dog"])
    assert np.ptp(scores, axis=0).min() > 1e-4
    assert np.ptp(scores, axis=1).min() > 1e-4


def test_options_that_its_weights_determine_are_refused(file):
    with pytest.raises(UsageError, match="an X-VLM, whose checkpoint determines variant: leave"):
        vlc_jax.load(file, family="xvlm", variant="B/16")


def test_weights_of_xvlm_are_refused_as_blip(file):
    config = zero_shot.get_config(f"family=blip,weights={file},path=x.jsonl")
    with pytest.raises(UsageError, match=r"family=blip takes weights of blip, but .* of xvlm"):
        completed(config)


def test_a_window_too_small_to_be_resampled_is_refused(file):
    config = completed(zero_shot.get_config(f"family=xvlm,weights={file},path=x.jsonl"))
    with config.unlocked():
        config.model.image.window = 1
    with pytest.raises(WeightsError, match=r"bias has shape \(9, 2\), the model's \(1, 2\)"):
        init_from.load_complete(resolve(config, "eval"))


def test_a_resolution_that_windows_do_not_fill_is_refused(file):
    with pytest.raises(UsageError, match="a Swin takes images of a multiple of 64 pixels; got 96"):
        vlc_jax.load(file, image_size=96)


def test_a_text_encoder_that_never_sees_an_image_is_no_xvlm(tmp_path, file):
    with np.load(file) as arrays:
        kept = {name: arrays[name] for name in arrays if "crossattention" not in name}
    np.savez(tmp_path / "x.npz", **kept)
    with pytest.raises(WeightsError, match="no cross attention in its text encoder"):
        vlc_jax.load(tmp_path / "x.npz", tokenizer=str(file.parent))


def encoded(model, pixels, ids):
    return model.encode_image(pixels), model.encode_text(ids)


@pytest.mark.parametrize(("window", "total"), [(7, 213_824_186), (12, 213_959_546)])
def test_published_sizes_have_the_parameters_of_the_parts(window, total):
    """Of transformers' SwinModel and BertModel without poolers, and of the authors' layers."""
    image = {"window": window, "projection": None}
    ids = {**IDS, "vocab_size": 30_522}
    model = models.build("xvlm", "Swin-B/32", **ids, image_size=32 * window, image=image)
    batch = models.example_batch(model)
    init = partial(model.init, method=encoded)  # scores add no parameters, but the logit scale
    shapes = jax.eval_shape(init, jax.random.key(0), batch["image"], batch["text"])
    assert sum(x.size for x in jax.tree.leaves(shapes)) == total
