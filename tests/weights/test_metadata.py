"""Metadata beside weights: from each kind of file, and after our own export."""

import json

import pytest

from tests.support.small_models import FOLDER as MODEL
from vlc_jax.errors import WeightsError
from vlc_jax.weights import folder, metadata

SIGLIP_TOWER = MODEL.image._replace(activation="gelu_tanh", epsilon=1e-6)
SIGLIP = MODEL._replace(
    image=SIGLIP_TOWER, text=SIGLIP_TOWER, crop="none", is_siglip=True, interpolation="bilinear"
)


def write(where, **files):
    for name, content in files.items():
        (where / f"{name}.json").write_text(json.dumps(content))
    return metadata.read(where)


@pytest.mark.parametrize(
    ("describe", "model"),
    [
        (folder.hugging_face, MODEL),
        (folder.hugging_face, SIGLIP),
        (folder.hugging_face, MODEL._replace(crop="none")),
        (folder.open_clip, MODEL),
        (folder.open_clip, MODEL._replace(crop="none", interpolation="bilinear")),
    ],
)
def test_an_exported_folder_says_what_the_model_had(tmp_path, describe, model):
    for name, content in describe(model).items():
        (tmp_path / name).write_text(json.dumps(folder.without_none(content)))
    assert metadata.read(tmp_path) == {
        "image_activation": model.image.activation,
        "text_activation": model.text.activation,
        "image_epsilon": model.image.epsilon,
        "text_epsilon": model.text.epsilon,
        "mean": model.mean,
        "std": model.std,
        "interpolation": model.interpolation,
        "crop": model.crop,
        "context_length": 12,
        "vocab_size": 60,
    }


def test_what_hugging_face_leaves_out_is_the_default_of_its_class(tmp_path):
    """As SigLIP 2 of fixed resolution is published: model_type siglip, Gemma's vocabulary."""
    values = write(
        tmp_path, config={"model_type": "siglip", "text_config": {"vocab_size": 256_000}}
    )
    assert (values["text_activation"], values["image_epsilon"]) == ("gelu_tanh", 1e-6)
    assert (values["context_length"], values["vocab_size"]) == (64, 256_000)
    values = write(tmp_path, config={"model_type": "clip", "text_config": None})
    assert (values["image_activation"], values["text_epsilon"]) == ("quick_gelu", 1e-5)
    assert (values["context_length"], values["vocab_size"]) == (77, 49_408)


@pytest.mark.parametrize(
    ("processor", "crop"),
    [
        ({"size": 224, "do_center_crop": True, "crop_size": 224}, "centre"),
        ({"size": {"shortest_edge": 224}}, "centre"),
        ({"size": {"height": 224, "width": 224}}, "none"),
        ({"resample": 2}, None),
    ],
)
def test_the_crop_of_a_processor_is_read_from_its_size(tmp_path, processor, crop):
    assert write(tmp_path, preprocessor_config=processor).get("crop") == crop


@pytest.mark.parametrize(
    ("name", "lower_case", "strips_punctuation"),
    [
        ("CLIPTokenizerFast", True, False),
        ("SiglipTokenizer", True, True),
        ("Siglip2Tokenizer", True, False),
        ("GemmaTokenizer", True, None),
        ("T5Tokenizer", None, None),
    ],
)
def test_the_class_of_a_tokenizer_says_what_happens_to_text(
    tmp_path, name, lower_case, strips_punctuation
):
    values = write(tmp_path, tokenizer_config={"tokenizer_class": name, "padding_side": "right"})
    assert values.get("lower_case") is lower_case
    assert values.get("strips_punctuation") is strips_punctuation
    assert values["padding_side"] == "right"


def test_special_tokens_are_read_as_strings_from_either_file(tmp_path):
    end = {"content": "</s>", "lstrip": True}
    values = write(tmp_path, special_tokens_map={"eos_token": end, "pad_token": "<a>"})
    assert (values["eos_token"], values["pad_token"]) == ("</s>", "<a>")
    values = write(tmp_path, tokenizer_config={"pad_token": end, "eos_token": None})
    assert (values["eos_token"], values["pad_token"]) == ("</s>", "</s>")


def open_clip(text, **pixels):
    vision = {"timm_model_name": "vit_base_patch16_siglip_224"}
    return {"model_cfg": {"vision_cfg": vision, "text_cfg": text}, "preprocess_cfg": pixels}


@pytest.mark.parametrize(
    ("name", "text", "activations"),
    [
        ("vit_base_patch16_siglip_224", {}, ("gelu", "gelu")),
        ("vit_large_patch16_siglip_384", {"act_kwargs": {"approximate": "tanh"}}, ("gelu", "tanh")),
        ("vit_so400m_patch14_siglip_384", {}, ("gelu", "gelu")),
        ("vit_so400m_patch16_siglip_256", {}, ("tanh", "gelu")),
        ("vit_base_patch32_siglip_256", {"act_kwargs": {"approximate": "tanh"}}, ("tanh", "tanh")),
        ("vit_large_patch16_siglip_512", {}, ("tanh", "gelu")),
    ],
)
def test_the_gelu_of_open_clips_siglip_is_that_of_timms_tower(tmp_path, name, text, activations):
    config = open_clip(text)
    config["model_cfg"]["vision_cfg"]["timm_model_name"] = name
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    values = metadata.read(tmp_path)
    activation = (values["image_activation"], values["text_activation"])
    assert activation == tuple(a.replace("tanh", "gelu_tanh") for a in activations)


@pytest.mark.parametrize(
    ("text", "lower_case", "strips_punctuation"),
    [
        ({"tokenizer_kwargs": {"clean": "canonicalize"}, "vocab_size": 32_000}, True, True),
        ({"tokenizer_kwargs": {"clean": "canonicalize"}, "vocab_size": 256_000}, True, None),
        ({"tokenizer_kwargs": {"clean": "lower"}, "hf_tokenizer_name": "a"}, True, False),
        ({"hf_tokenizer_name": "a"}, None, None),
        ({}, True, False),
        ({"vocab_size": 258}, None, None),
    ],
)
def test_open_clip_says_what_happens_to_text(tmp_path, text, lower_case, strips_punctuation):
    config = open_clip(text, resize_mode="squash", interpolation="bicubic")
    values = write(tmp_path, open_clip_config=config)
    assert values.get("lower_case") is lower_case
    assert values.get("strips_punctuation") is strips_punctuation
    assert (values["crop"], values["interpolation"]) == ("none", "bicubic")
    assert values["context_length"] == 77


def test_every_fact_has_a_field_of_the_config(tmp_path):
    for name, content in folder.hugging_face(MODEL).items():
        (tmp_path / name).write_text(json.dumps(folder.without_none(content)))
    settings = {"tokenizer_class": "SiglipTokenizer", "padding_side": "right"}
    values = write(tmp_path, tokenizer_config={**settings, "eos_token": "a", "pad_token": "b"})
    assert values.keys() == metadata.FIELDS.keys()


def test_a_single_file_of_any_name_says_nothing_about_its_neighbours(tmp_path):
    write(tmp_path, config={"model_type": "clip"})
    assert metadata.read(tmp_path / "model.safetensors")
    assert metadata.read(tmp_path / "epoch_3.pt") == {}
    assert metadata.folder(tmp_path / "epoch_3.pt") is None
    assert metadata.folder(tmp_path / "pytorch_model.bin") == tmp_path == metadata.folder(tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", '{"model_type": "clip", "text_config": 3}'])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(WeightsError, match=r"config\.json is damaged"):
        metadata.read(tmp_path)


def test_a_config_of_another_kind_of_model_is_refused(tmp_path):
    with pytest.raises(WeightsError, match="of model_type 'bert'; known"):
        write(tmp_path, config={"model_type": "bert"})
