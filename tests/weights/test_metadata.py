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


def in_open_clip(model):
    """What open_clip's file says besides, and otherwise."""
    crop = "none" if model.crop == "none" else "centre_torchvision"
    return {"is_causal": True, "text_pooling": "eos", "crop": crop}


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
        "image_heads": 4,
        "text_heads": 4,
        "image_size": 24,
        "mean": model.mean,
        "std": model.std,
        "interpolation": model.interpolation,
        "crop": model.crop,
        "context_length": 12,
        "vocab_size": 60,
        **(in_open_clip(model) if describe is folder.open_clip else {}),
        **({"eos_id": 59} if describe is folder.hugging_face and not model.is_siglip else {}),
    }


def test_what_hugging_face_leaves_out_is_its_class_default(tmp_path):
    """As SigLIP 2 of fixed resolution is published: model_type siglip, Gemma's vocabulary."""
    values = write(
        tmp_path, config={"model_type": "siglip", "text_config": {"vocab_size": 256_000}}
    )
    assert (values["text_activation"], values["image_epsilon"]) == ("gelu_tanh", 1e-6)
    assert (values["context_length"], values["vocab_size"]) == (64, 256_000)
    values = write(tmp_path, config={"model_type": "clip", "text_config": None})
    assert (values["image_activation"], values["text_epsilon"]) == ("quick_gelu", 1e-5)
    assert (values["context_length"], values["vocab_size"]) == (77, 49_408)
    assert (values["image_heads"], values["text_heads"]) == (12, 8)


@pytest.mark.parametrize(
    ("processor", "crop"),
    [
        ({"size": 224, "do_center_crop": True, "crop_size": 224}, "centre"),
        ({"size": {"shortest_edge": 224}}, "centre"),
        ({"size": {"height": 224, "width": 224}}, "none"),
        ({"resample": 2}, None),
        ({"size": {"shortest_edge": 256}, "crop_size": 224}, "centre_margin"),  # DINOv2
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
    vision = {"timm_model_name": "vit_base_patch16_siglip_224", "timm_pool": "map"}
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
    values = write(tmp_path, open_clip_config=config)
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
    files = folder.hugging_face(MODEL) | folder.open_clip(MODEL)
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(folder.without_none(content)))
    settings = {"tokenizer_class": "SiglipTokenizer", "padding_side": "right"}
    values = write(tmp_path, tokenizer_config={**settings, "eos_token": "a", "pad_token": "b"})
    assert values.keys() == metadata.FIELDS.keys()


def test_a_file_of_any_name_does_not_own_the_files_beside_it(tmp_path):
    write(tmp_path, config={"model_type": "clip"})
    assert metadata.read(tmp_path / "model.safetensors")
    assert metadata.read(tmp_path / "epoch_3.pt") == {}
    assert metadata.folder(tmp_path / "epoch_3.pt") is None
    assert metadata.folder(tmp_path / "pytorch_model.bin") == tmp_path == metadata.folder(tmp_path)


def test_a_config_of_another_kind_of_model_is_refused(tmp_path):
    with pytest.raises(WeightsError, match="of model_type 'bert'; known"):
        write(tmp_path, config={"model_type": "bert"})


PROCESSOR = {
    "image_processor_type": "CLIPImageProcessorFast",
    "do_center_crop": True,
    "crop_size": {"height": 224, "width": 224},
    "image_mean": [0.5] * 3,
    "image_std": [0.25] * 3,
    "resample": 2,
    "rescale_factor": 1 / 255,
    "size": {"shortest_edge": 224},
}
READ = {
    "mean": (0.5,) * 3,
    "std": (0.25,) * 3,
    "interpolation": "bilinear",
    "crop": "centre",
    "image_size": 224,
}


def test_a_processor_inside_another_is_read_and_wins(tmp_path):
    """transformers 5 writes it there, and reads it there first."""
    nested = {"processor_class": "CLIPProcessor", "image_processor": PROCESSOR}
    assert write(tmp_path, processor_config=nested) == READ
    assert write(tmp_path, preprocessor_config=PROCESSOR | {"resample": 3}) == READ
    older = {"image_seq_length": 576, "patch_size": 14}  # of LLaVA's processor
    assert write(tmp_path, processor_config=older) == READ | {"interpolation": "bicubic"}


def test_a_processor_only_named_has_the_pixels_of_its_class(tmp_path):
    values = write(tmp_path, preprocessor_config={"feature_extractor_type": "CLIPFeatureExtractor"})
    assert (values["crop"], values["interpolation"]) == ("centre", "bicubic")
    assert values["mean"][0] == pytest.approx(0.4815, abs=1e-4)
    values = write(tmp_path, preprocessor_config={"image_processor_type": "SiglipImageProcessor"})
    assert (values["crop"], values["mean"]) == ("none", (0.5,) * 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rescale_factor": 1 / 127.5}, "rescale_factor is 0.0078.*; only 1/255"),
        ({"resample": 1}, r"resample is 1; only 2 \(bilinear\) or 3 \(bicubic\)"),
        ({"size": {"shortest_edge": 288}}, "resized to 288 and cropped to 224 x 224; only equal"),
        ({"crop_size": {"height": 224, "width": 200}}, "cropped to 224 x 200; only equal"),
        ({"do_center_crop": False}, "shortest_edge 224 without do_center_crop"),
        ({"size": {"longest_edge": 224}}, "size has longest_edge 224; only shortest_edge"),
        ({"size": {"height": 224, "width": 256}}, "size has height 224, width 256; only"),
        (
            {"image_processor_type": "Siglip2ImageProcessorFast", "max_num_patches": 300},
            "max_num_patches is 300; only a square",
        ),
    ],
)
@pytest.mark.parametrize("is_nested", [False, True])
def test_other_pixels_than_ours_are_refused_by_name(tmp_path, change, message, is_nested):
    content = PROCESSOR | change
    files = {"processor_config": {"image_processor": content}} if is_nested else {}
    with pytest.raises(WeightsError, match=rf"processor_config\.json.*: .*{message}"):
        write(tmp_path, **(files or {"preprocessor_config": content}))


def test_an_image_padded_to_a_square_is_no_crop(tmp_path):
    processor = PROCESSOR | {"image_processor_type": "LlavaImageProcessor", "do_pad": True}
    assert write(tmp_path, preprocessor_config=processor)["crop"] == "pad"


@pytest.mark.parametrize(
    ("kind", "older", "activation", "heads"),
    [
        ("clip", {"hidden_act": "gelu"}, "gelu", 12),  # 12: the default, not 4
        ("metaclip_2", {"num_attention_heads": 6}, "quick_gelu", 6),
        ("clip", {}, "quick_gelu", 12),
        ("clip", None, "gelu_tanh", 4),
        ("siglip", {"hidden_act": "gelu"}, "gelu_tanh", 4),  # whose class has no such key
    ],
)
def test_an_older_section_replaces_that_of_clip(tmp_path, kind, older, activation, heads, caplog):
    vision = {"hidden_act": "gelu_pytorch_tanh", "num_attention_heads": 4}
    config = {"model_type": kind, "vision_config": vision, "vision_config_dict": older}
    found = write(tmp_path, config=config)
    assert (found["image_activation"], found["image_heads"]) == (activation, heads)
    assert ("vision_config_dict" in caplog.text) == (kind == "siglip")


@pytest.mark.parametrize(
    ("change", "pixels"), [({}, 256), ({"max_num_patches": 576, "patch_size": 16}, 384)]
)
def test_naflex_has_the_patches_of_a_square_of_its_image_size(tmp_path, change, pixels, caplog):
    processor = {"image_processor_type": "Siglip2ImageProcessor", "do_convert_rgb": True, **change}
    config = {"model_type": "siglip2", "vision_config": {"num_patches": 256, "patch_size": 16}}
    found = write(tmp_path, preprocessor_config=processor, config=config)
    assert (found["crop"], found["image_size"], found["interpolation"]) == (
        *("naflex", pixels, "bilinear"),
    )
    assert (found["mean"], found["image_activation"]) == ((0.5,) * 3, "gelu_tanh")
    assert not caplog.text


def test_fg_clips_config_is_clips_and_its_code_no_surprise(tmp_path, caplog):
    text = {"max_position_embeddings": 77, "eos_token_id": 49407}
    config = {"model_type": "clip", "text_config": text, "auto_map": {"AutoModel": "m.FGCLIPModel"}}
    found = write(tmp_path, config=config | {"architectures": ["FGCLIPModel"]})
    assert (found["context_length"], found["eos_id"]) == (77, 49407)
    assert not caplog.text
    write(tmp_path, config=config | {"architectures": ["OtherModel"]})
    assert "auto_map = dict" in caplog.text


VISION = {"width": 64, "layers": 2, "patch_size": 8, "head_width": 16}


@pytest.mark.parametrize(
    ("section", "switch"),
    [
        ("vision_cfg", {"no_ln_pre": True, "pool_type": "avg", "final_ln_after_pool": False}),
        ("vision_cfg", {"no_ln_pre": True, "final_ln_after_pool": True, "pool_type": "tok"}),
        ("vision_cfg", {"final_ln_after_pool": True}),
        ("vision_cfg", {"pool_type": "avg"}),
        ("vision_cfg", {"timm_model_name": "eva02_base_patch16_clip_224", "timm_pool": "avg"}),
        ("vision_cfg", {"timm_model_name": "vit_base_patch16_siglip_224", "timm_pool": "avg"}),
        ("text_cfg", {"hf_model_name": "google/mt5-base"}),
        ("text_cfg", {"act_kwargs": {"approximate": "other"}}),
        ("model_cfg", {"multimodal_cfg": {"width": 512}}),
    ],
)
def test_a_switch_of_open_clip_is_refused_by_name(tmp_path, section, switch):
    model = {"vision_cfg": dict(VISION), "text_cfg": {}}
    config = {"model_cfg": model, "preprocess_cfg": {}}
    ({"model_cfg": model} | model)[section].update(switch)
    key = list(switch)[-1]
    where = rf"open_clip_config\.json.*{section}.*"
    expected = "approximate is 'other'" if key == "act_kwargs" else f"{key} is "
    with pytest.raises(WeightsError, match=where + expected):
        write(tmp_path, open_clip_config=config)


def test_switches_of_open_clip_that_we_have_are_read(tmp_path):
    vision = VISION | {"act_kwargs": {"approximate": "tanh"}, "norm_kwargs": {"eps": 1e-6}}
    text = {"no_causal_mask": True, "pool_type": "last", "heads": 4}
    config = {"model_cfg": {"vision_cfg": vision, "text_cfg": text}, "preprocess_cfg": {"size": 32}}
    values = write(tmp_path, open_clip_config=config)
    assert (values["image_activation"], values["image_epsilon"]) == ("gelu_tanh", 1e-6)
    assert (values["text_activation"], values["text_epsilon"]) == ("gelu", 1e-5)
    assert (values["image_heads"], values["text_heads"], values["image_size"]) == (4, 4, 32)
    assert (values["is_causal"], values["text_pooling"]) == (False, "last")
    text |= {"pool_type": "eos", "eos_id": 5}
    values = write(tmp_path, open_clip_config=config)
    assert (values["text_pooling"], values["eos_id"]) == ("eos", 5)


def test_a_key_that_is_not_known_is_warned_of_once(tmp_path, caplog):
    config = {"model_type": "clip", "do_sample": False, "vision_config": {"use_swish": True}}
    write(tmp_path, config=config)
    metadata.read(tmp_path)
    (record,) = caplog.records
    assert "config.json, vision_config has keys that are not known" in record.getMessage()
    assert "use_swish = True" in record.getMessage()
