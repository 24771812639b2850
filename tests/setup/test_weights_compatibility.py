"""What imported weights say of text and pixels must be what the config has, or it is refused."""

import json
import re

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict
from safetensors.numpy import save_file

import vlc_jax
from tests.support import small_models
from tests.support.compilations import apply
from vlc_jax import models, weights
from vlc_jax.configs import default
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.models import variants
from vlc_jax.setup import init_from, resolve, weights_compatibility, weights_config

WORDS = ("</s>", "<pad>", "<unk>", "a", "red", "dog", "A", "RED", "Dog", ",", "!")
TOWER = {"width": 8, "heads": 2, "depth": 1}
HEADS = {"num_attention_heads": 2}


def write_words(folder, words=WORDS):
    folder.mkdir(exist_ok=True)
    small_models.write_tokenizer(folder, words, "<unk>")


@pytest.fixture
def folder(tmp_path):
    """A tokenizer, and settings as Hugging Face has them beside SigLIP's weights."""
    write_words(tmp_path / "weights")
    settings = {"tokenizer_class": "SiglipTokenizer", "eos_token": "</s>", "pad_token": "</s>"}
    path = tmp_path / "weights/tokenizer_config.json"
    path.write_text(json.dumps({**settings, "padding_side": "right"}))
    processor = {"size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "resample": 3}
    (tmp_path / "weights/preprocessor_config.json").write_text(json.dumps(processor))
    text = {"vocab_size": 16, "max_position_embeddings": 12, **HEADS}
    model = {"model_type": "siglip", "text_config": text, "vision_config": HEADS}
    (tmp_path / "weights/config.json").write_text(json.dumps(model))
    return tmp_path / "weights"


def siglip(folder, **tokenizer) -> ConfigDict:
    config = default.get_config()
    with config.unlocked():
        config.init_from = str(folder)
        config.model.variant = "SigLIP-B/16"
        config.model.vocab_size = 16
        config.model.image = TOWER
        config.model.text = {**TOWER, "projection": 8}
        config.input.image_size = 32
        config.input.normalisation = "siglip"
        config.text.context_length = 12
        config.text.tokenizer = "siglip"
        config.text.tokenizer_options = {"path": str(folder), **tokenizer}
    return config


def check(config):
    setup = resolve(config)
    origin = setup.origin
    weights_compatibility.check_files(origin.metadata, setup.model, setup.tokenizer, origin.path)


@pytest.mark.parametrize(
    "changes",
    [{}, {"input.crop": "random_resized", "input.eval_crop": "none"}, {"input.image_size": 48}],
)
def test_a_config_that_agrees_with_the_weights_in_evaluation_is_taken(folder, changes):
    config = siglip(folder)
    config.update_from_flattened_dict(changes)
    check(config)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input.crop": "centre"}, "crop is none, here centre (config.input.eval_crop)"),
        ({"input.crop": "random_resized"}, "crop is none, here centre (config.input.eval_crop)"),
        ({"input.interpolation": "bilinear"}, "interpolation is bicubic, here bilinear (config.i"),
        ({"input.normalisation": "clip"}, "mean is (0.5, 0.5, 0.5), here (0.48"),
        ({"model.vocab_size": 20}, "vocab_size is 16, here 20 (config.model.vocab_size)"),
        ({"text.context_length": 13}, "context_length is 12, here 13 (config.text.context_length)"),
        ({"text.context_length": 11}, "context_length is 12, here 11 (config.text.context_length)"),
        ({"model.image.heads": 4}, "image_heads is 2, here 4 (config.model.image.heads)"),
        ({"model.text.heads": 4}, "text_heads is 2, here 4 (config.model.text.heads)"),
        ({"text.tokenizer": "hf"}, "strips_punctuation is True, here False (config.text.token"),
    ],
)
def test_every_contradiction_is_named_with_both_values_and_its_field(folder, changes, message):
    config = siglip(folder)
    config.update_from_flattened_dict(changes)
    with pytest.raises(UsageError, match=re.escape(message)):
        check(config)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clean": "none"}, "lower_case is True, here False (config.text.tokenizer_options.clean)"),
        ({"clean": "lower"}, "strips_punctuation is True, here False (config.text.tokenizer_opt"),
        ({"pad_token": "<pad>"}, "</s>, here <pad> (config.text.tokenizer_options.pad_token)"),
        ({"eos_token": "<unk>"}, "</s>, here <unk> (config.text.tokenizer_options.eos_token)"),
    ],
)
def test_contradictions_of_the_tokenizer_are_listed_with_those_of_pixels(folder, options, message):
    config = siglip(folder, **options)
    config.input.crop = "centre"
    with pytest.raises(UsageError, match=rf"crop is none.*; .*{re.escape(message)}"):
        check(config)


def test_weights_of_another_variant_are_said_to_be_that(folder):
    other = siglip(folder)
    with other.unlocked():
        other.model.image = {**TOWER, "depth": 2}
        other.model.activation = "gelu"
    setup = resolve(other)
    shapes = jax.tree.map(lambda x: np.zeros(x.shape, np.float32), setup.parameters.shapes)
    arrays = weights.save(shapes, "hf_siglip", init_from.architecture(setup.model))
    save_file(arrays, folder / "model.safetensors")
    config = siglip(folder, pad_token="<pad>")  # so that something contradicts the files
    with pytest.raises(UsageError) as error:
        check(config)
    assert str(error.value) == (
        f"the weights at {folder} are of another variant than config.model.variant=SigLIP-B/16: "
        "image depth 2, here 1; set config.model.variant to theirs, and "
        "config.model.image and config.model.text where those change it"
    )


def test_a_run_of_another_variant_is_said_to_be_that(folder, tmp_path):
    other, config = default.get_config(), siglip(folder)
    other.model.dtype = "float32"  # a run says which it was
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    (tmp_path / "run/config.json").write_text(json.dumps(other.to_dict()))
    config.init_from = str(tmp_path / "run")
    setup = resolve(config)
    with pytest.raises(UsageError, match=r"another variant \(mini\) than .*; image depth 3, here"):
        init_from.load(setup, setup.parameters.shapes)


def test_texts_padded_on_the_left_are_refused(folder):
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "padding_side": "left"}))
    with pytest.raises(UsageError, match="padding_side is left, here right"):
        check(siglip(folder))


def clip(folder, **tokenizer) -> ConfigDict:
    """CLIP on the same tokenizer: causal, so that neither padding nor a cut is read."""
    config = siglip(folder, **tokenizer)
    text = {"vocab_size": 16, "max_position_embeddings": 12, **HEADS}
    model = {"model_type": "clip", "text_config": text, "vision_config": HEADS}
    (folder / "config.json").write_text(json.dumps(model))
    with config.unlocked():
        config.model.variant = "B/16"
        config.model.image = {**TOWER, "projection": 8}
    return config


def test_clip_may_have_a_shorter_context_and_other_padding_but_no_longer_context(folder):
    config = clip(folder, pad_token="<pad>")
    config.text.context_length = 8
    check(config)
    config.text.context_length = 13
    with pytest.raises(UsageError, match="context_length is 12, here 13"):
        check(config)


def test_a_tokenizer_that_numbers_words_otherwise_is_refused(folder, tmp_path):
    write_words(tmp_path / "other", (*WORDS[:4], "dog", "red", *WORDS[6:]))
    config = siglip(folder)
    config.text.tokenizer_options.path = str(tmp_path / "other")
    with pytest.raises(UsageError, match=r"2 of 11 tokens differ, as 'dog' \(5, here 4\)"):
        check(config)


def test_a_tokenizer_with_far_fewer_ids_than_the_weights_is_refused(folder):
    """SigLIP's 32,000 tokens on SigLIP 2's 256,000 rows: nothing lies out of range."""
    (folder / "tokenizer.json").rename(folder.parent / "tokenizer.json")
    config = siglip(folder)
    config.text.tokenizer_options.path = str(folder.parent / "tokenizer.json")
    config.model.vocab_size = rows = 11 + weights_compatibility.MAX_SPARE_ROWS + 1
    with pytest.raises(UsageError, match=f"embeds {rows} tokens, tokenizer 'siglip' has 11"):
        check(config)


def test_a_damaged_tokenizer_beside_the_weights_is_named(folder, tmp_path):
    write_words(tmp_path / "other")
    (folder / "tokenizer.json").write_text("{}")
    config = siglip(folder)
    config.text.tokenizer_options.path = str(tmp_path / "other")
    with pytest.raises(UsageError, match=r"weights/tokenizer\.json is not a Hugging Face"):
        check(config)


def test_an_id_beyond_the_embedding_is_refused_without_any_weights(folder):
    config = siglip(folder)
    config.init_from = None
    config.model.vocab_size = 10
    with pytest.raises(UsageError, match=r"has 11 ids .* but the model embeds 10"):
        resolve(config)


@pytest.fixture
def tiny(folder, monkeypatch):
    """Weights of a variant of 2 heads and 4 patches of 16 pixels, as Hugging Face writes them."""
    sizes = variants.Sizes("open_clip", 8, 32, 16, (8, 1, 2), (8, 1, 2))
    monkeypatch.setitem(variants.VARIANTS, "tiny", sizes)
    model = models.build("clip", "tiny", vocab_size=16, context_length=12)
    for file in folder.glob("*.json"):
        file.unlink()
    small_models.write_hugging_face(folder, model, "hf_clip", 0.1)
    return folder


def change(file, **sections):
    content = json.loads(file.read_text())
    for section, values in sections.items():
        content.setdefault(section, {}).update(values)
    file.write_text(json.dumps(content))


def test_heads_and_preprocessing_beside_the_weights_are_used(tiny):
    plain = weights_config.config_of_weights(tiny)
    assert not {"heads", "is_causal", "pooling"} & {*plain.model.image, *plain.model.text}
    change(tiny / "config.json", vision_config={"num_attention_heads": 4})
    pixels = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 2, "size": 32}
    nested = {"image_processor": pixels}
    (tiny / "processor_config.json").write_text(json.dumps(nested))
    config = weights_config.config_of_weights(tiny)
    assert config.model.image.heads == 4
    assert (config.input.normalisation, config.input.interpolation) == ("siglip", "bilinear")


def test_open_clips_mask_and_pooling_of_texts_are_used(tiny):
    (tiny / "config.json").unlink()
    text = {"no_causal_mask": True, "pool_type": "last", "heads": 2}
    model = {"vision_cfg": {"head_width": 4, "width": 8}, "text_cfg": text}
    (tiny / "open_clip_config.json").write_text(json.dumps({"model_cfg": model}))
    config = weights_config.config_of_weights(tiny)
    assert (config.model.text.is_causal, config.model.text.pooling) == (False, "last")


@pytest.mark.slow
def test_a_folder_of_open_clip_with_roberta_is_loaded_with_its_own_tokenizer(tmp_path, monkeypatch):
    sizes = variants.Sizes("roberta", 8, 32, 16, (8, 1, 2), (24, 1, 12, 16))
    monkeypatch.setitem(variants.VARIANTS, "tiny", sizes)
    text = {"pooling": "cls"}
    model = models.build("clip", "tiny", vocab_size=16, text=text)
    params = small_models.parameters(model, 0.1)
    arrays = weights.save(params, "open_clip_roberta", init_from.architecture(model))
    arrays["text.transformer.embeddings.position_ids"] = np.zeros((1, 514), np.int64)
    write_words(tmp_path / "w", ("<s>", "<pad>", "</s>", *WORDS[2:]))
    save_file(arrays, tmp_path / "w/open_clip_model.safetensors")
    file, texts = tmp_path / "w/open_clip_config.json", {"hf_model_name": "roberta-base"}
    towers = {"vision_cfg": {"width": 8, "head_width": 4}, "quick_gelu": True}
    file.write_text(json.dumps({"model_cfg": {**towers, "text_cfg": texts}}))
    with pytest.raises(
        WeightsError, match=r"no parameter of this model: text\.transformer\.pooler"
    ):
        vlc_jax.load(tmp_path / "w", variant="tiny")
    change(file, model_cfg={"text_cfg": {**texts, "hf_pooler_type": "cls_pooler"}})
    config = weights_config.config_of_weights(tmp_path / "w")
    assert (config.model.text.pooling, config.text.context_length) == ("cls", 77)
    assert (config.model.image.activation, config.model.text.activation) == ("quick_gelu", "gelu")
    loaded, text = vlc_jax.load(tmp_path / "w"), ["a red dog"]
    ids = loaded.tokenizer(text)
    assert (ids[0, -1], loaded.tokenizer.eos_id, ids.shape) == (1, 2, (1, 77))
    expected = apply(model, {"params": params}, ids, method="encode_text").pooled
    np.testing.assert_allclose(loaded.embed_texts(text), expected, atol=1e-5)
    change(file, model_cfg={"text_cfg": {"hf_model_name": "bert-base-uncased"}})
    with pytest.raises(WeightsError, match="hf_model_name is 'bert-base-uncased'; only 'roberta-b"):
        weights_config.config_of_weights(tmp_path / "w")


@pytest.mark.parametrize(("pixels", "used"), [(32, 32), (47, 47), (None, 32)])
def test_pixels_beyond_the_last_patch_are_those_of_the_file(tiny, pixels, used):
    change(tiny / "config.json", vision_config={"image_size": pixels} if pixels else {})
    assert weights_config.config_of_weights(tiny).input.image_size == used


def test_pixels_that_contradict_the_positions_are_refused_unless_they_are_named(tiny):
    change(tiny / "config.json", vision_config={"image_size": 64})
    with pytest.raises(UsageError, match=r"64 pixels, but .* 2 x 2 patches of 16: .*image_size="):
        weights_config.config_of_weights(tiny)
    assert weights_config.config_of_weights(tiny, image_size=64).input.image_size == 64


def test_the_centre_crop_is_that_of_the_weights_library(tiny):
    def crops(path):
        pixels = weights_config.config_of_weights(path).input
        return pixels.crop, pixels.eval_crop

    text = {"heads": 2, "context_length": 12, "vocab_size": 16}
    model = {"vision_cfg": {"head_width": 4, "width": 8}, "text_cfg": text}
    content = {"model_cfg": model, "preprocess_cfg": {"resize_mode": "shortest"}}
    assert crops(tiny) == ("centre", None)
    (tiny / "open_clip_config.json").write_text(json.dumps(content))
    assert crops(tiny) == ("centre", "centre")  # both files, and weights of Hugging Face
    model = models.build("clip", "tiny", vocab_size=16, context_length=12)
    params = small_models.parameters(model)
    arrays = weights.save(params, "openai", init_from.architecture(model))
    (tiny / "model.safetensors").unlink()
    save_file(arrays, tiny / "open_clip_model.safetensors")
    assert crops(tiny) == ("centre_torchvision",) * 2
    save_file(arrays, tiny / "alone.safetensors")  # as OpenAI's, without files beside it
    assert crops(tiny / "alone.safetensors") == ("centre_torchvision",) * 2


def test_the_centre_crop_of_another_library_is_no_contradiction(folder):
    config = clip(folder)
    pixels = {"size": 32, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "resample": 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(pixels))
    for crop in ("centre", "centre_torchvision"):
        config.input.crop = crop
        check(config)
