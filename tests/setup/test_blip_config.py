"""A folder of BLIP says all that a config needs; what it does not say or contradicts is refused."""

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
from vlc_jax.errors import UsageError
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
    params = small_models.normal(jax.eval_shape(partial(models.init, model), jax.random.key(0)))
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


def test_a_folder_of_blip_is_refused_as_xvlm(folder):
    config = zero_shot.get_config(f"family=xvlm,weights={folder},path=x.jsonl")
    with pytest.raises(UsageError, match=r"family=xvlm takes weights of xvlm, but .* of blip"):
        completed(config)


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


def test_a_config_chooses_the_score_and_may_not_contradict_the_files(folder):
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


def test_published_sizes_have_the_parameters_of_transformers_class():
    image = {"patch_size": 16, "patch_bias": True, "pre_norm": False, "projection": None}
    for variant, total in (("B/16", 223_744_258), ("L/14", 446_128_642)):
        model = models.build(
            "blip", variant, text_tower=False, vocab_size=30_524, context_length=35, eos_id=102,
            image_size=384, image=image,
        )  # fmt: skip
        batch = models.example_batch(model)
        init = partial(model.init, method=encoded)  # scores add no parameters
        shapes = jax.eval_shape(init, jax.random.key(0), batch["image"], batch["text"])
        assert sum(x.size for x in jax.tree.leaves(shapes)) == total
