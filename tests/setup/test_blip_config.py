"""Files of BLIP and X-VLM determine a config; what they lack or contradict is refused."""

import json
from functools import partial

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

import vlc_jax
from tests.support import small_models
from vlc_jax import models, weights
from vlc_jax.configs.eval import zero_shot
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.setup import init_from, resolve
from vlc_jax.setup.weights_config import completed, config_of_weights

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "red", "dog", "cat")
TEXTS = ["a red dog", "a cat", "dog"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Weights of two blocks, with heads and epsilons that are nobody's defaults."""
    path = tmp_path_factory.mktemp("blip")
    small_models.write_tokenizer(path, WORDS, "[UNK]")
    image = {"width": 16, "depth": 2, "heads": 4, "mlp_width": 24, "patch_size": 8}
    encoder = {"width": 16, "depth": 2, "heads": 4, "mlp_width": 20, "positions": 40}
    model = models.build(
        "blip", "B/16", vocab_size=10, context_length=35, eos_id=3, image_size=16, text_tower=False,
        image={**image, "patch_bias": True, "pre_norm": False, "projection": None},
        head={"encoder": encoder, "projection": 6},
    )  # fmt: skip
    params = small_models.parameters(model)
    arrays = weights.save(params, "hf_blip", init_from.architecture(model))
    save_file(arrays, path / "model.safetensors")
    heads = {"num_attention_heads": 4}
    vision, text = (
        {**heads, "layer_norm_eps": 1e-3},
        {**heads, "layer_norm_eps": 1e-4, "vocab_size": 10},
    )
    config = {"model_type": "blip", "vision_config": vision, "text_config": text}
    (path / "config.json").write_text(json.dumps(config))
    processor = {"image_processor_type": "BlipImageProcessor", "resample": 2}
    processor["size"] = {"height": 16, "width": 16}
    (path / "preprocessor_config.json").write_text(json.dumps(processor))
    return path


def config_of(folder, **head):
    config = zero_shot.get_config(f"family=blip,weights={folder},path=x.jsonl")
    with config.unlocked():
        config.model.head = head
    return completed(config)


def test_a_folder_gives_the_whole_model_which_scores_pairs(folder):
    model = vlc_jax.load(folder)
    head, image = model._setup.model.head, model._setup.model.image
    encoder = head.text_encoder
    assert (encoder.heads, encoder.epsilon, encoder.depth, encoder.mlp_width) == (4, 1e-4, 2, 20)
    assert (image.heads, image.epsilon, image.image_size, head.match_id) == (4, 1e-3, 16, 9)
    settings = model.config["input"]
    assert [settings[key] for key in ("crop", "interpolation", "normalisation")] == [
        "none", "bilinear", "clip"
    ]  # fmt: skip
    pictures = [np.full((16, 16, 3), shade, np.uint8) for shade in (0, 200)]
    scores = model.score(pictures, TEXTS)
    assert scores.shape == (2, 3)
    assert np.ptp(scores, axis=0).min() > 1e-4
    assert np.ptp(scores, axis=1).min() > 1e-4
    np.testing.assert_allclose(model.score(pictures[1:], TEXTS[:1]), scores[1:, :1], atol=1e-5)


def test_a_folder_without_enc_keeps_cls_and_says_so(folder, tmp_path, caplog):
    small_models.write_tokenizer(tmp_path, (*WORDS, "of", "on"), "[UNK]")
    made = config_of_weights(folder, tokenizer=str(tmp_path))
    assert made.model.head.match_id is None
    assert "the last token of the weights is 'on'" in caplog.text
    small_models.write_tokenizer(tmp_path, (*WORDS, "[DEC]", "[ENC]"), "[UNK]")
    assert config_of_weights(folder, tokenizer=str(tmp_path)).model.head.match_id == 9


@pytest.mark.parametrize(
    "given",
    [{"family": "clip"}, {"variant": "B/32"}, {"activation": "gelu"}, {"context_length": 9}],
)
def test_options_that_its_files_determine_are_refused(folder, given):
    with pytest.raises(UsageError, match=f"a BLIP, .* determines {next(iter(given))}: leave"):
        config_of_weights(folder, **given)


def test_a_config_chooses_the_score_but_may_not_contradict_files(folder):
    config = config_of(folder, scores="itc")
    setup = resolve(config, "eval")
    assert setup.model.head.reads_pooled == (True, True)
    assert {"image", "head", "logit_scale"} == init_from.load_complete(setup).keys()
    with config.unlocked():
        config.model.head.encoder.heads = 2
    with pytest.raises(UsageError, match=r"text_heads is 4, here 2 \(config.model.head.encoder\)"):
        init_from.load_complete(resolve(config, "eval"))


def test_weights_without_a_tokenizer_say_which_one_they_need(folder, tmp_path):
    for name in ("model.safetensors", "config.json"):
        (tmp_path / name).symlink_to(folder / name)
    with pytest.raises(UsageError, match="ids of bert-base-uncased, and there is no"):
        vlc_jax.load(tmp_path)


def encoded(model, pixels, ids):
    return model.encode_image(pixels), model.encode_text(ids)


def count(model):
    """Number of parameters; scores add none, but the logit scale."""
    batch, init = models.example_batch(model), partial(model.init, method=encoded)
    shapes = jax.eval_shape(init, jax.random.key(0), batch["image"], batch["text"])
    return sum(x.size for x in jax.tree.leaves(shapes))


def test_published_sizes_of_blip_have_parameters_of_its_class():
    image = {"patch_size": 16, "patch_bias": True, "pre_norm": False, "projection": None}
    for variant, total in (("B/16", 223_744_258), ("L/14", 446_128_642)):
        model = models.build(
            "blip", variant, text_tower=False, vocab_size=30_524, context_length=35, eos_id=102,
            image_size=384, image=image,
        )  # fmt: skip
        assert count(model) == total


IDS = {"vocab_size": 8, "context_length": 40, "eos_id": 3, "text_tower": False}


def xvlm_arrays(stages=(1, 2, 1, 1), **encoder):
    image = {"width": 8, "stages": stages, "heads": 2, "window": 2, "projection": None}
    sizes = {"width": 64, "depth": 3, "heads": 1, "mlp_width": 20, "positions": 40, **encoder}
    model = models.build(
        *("xvlm", "Swin-B/32"), **IDS, image_size=64, image=image,
        head={"encoder": sizes, "projection": 6},
    )  # fmt: skip
    params = small_models.parameters(model, 0.2)
    return weights.save(params, "xvlm", init_from.architecture(model))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("xvlm")
    small_models.write_tokenizer(path, WORDS, "[UNK]")
    np.savez(path / "xvlm.npz", **xvlm_arrays(cross=(2,)))
    return path / "xvlm.npz"


def test_a_checkpoint_of_xvlm_gives_the_whole_model(file):
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


def test_options_that_weights_of_xvlm_determine_are_refused(file):
    with pytest.raises(UsageError, match="an X-VLM, whose checkpoint determines variant: leave"):
        vlc_jax.load(file, family="xvlm", variant="B/16")


def test_weights_of_either_are_refused_as_the_other(folder, file):
    for asked, path, found in (("xvlm", folder, "blip"), ("blip", file, "xvlm")):
        config = zero_shot.get_config(f"family={asked},weights={path},path=x.jsonl")
        message = f"family={asked} takes weights of {asked}, but .* of {found}"
        with pytest.raises(UsageError, match=message):
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


@pytest.mark.parametrize(("window", "total"), [(7, 213_824_186), (12, 213_959_546)])
def test_published_sizes_of_xvlm_have_parameters_of_its_parts(window, total):
    """Of transformers' SwinModel and BertModel without poolers, and of the authors' layers."""
    image = {"window": window, "projection": None}
    ids = {**IDS, "vocab_size": 30_522}
    model = models.build("xvlm", "Swin-B/32", **ids, image_size=32 * window, image=image)
    assert count(model) == total
