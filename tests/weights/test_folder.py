"""Config files of exported folders; tests/parity loads them where they are meant to be loaded."""

import json

import pytest

from tests.support.small_models import FOLDER
from vlc_jax.errors import WeightsError
from vlc_jax.weights import folder, metadata

TEXT = folder.Tower(512, 12, 8, 2048, "gelu", 1e-5)
BASE = folder.Tower(768, 12, 12, 2048, "swiglu", 1e-6)


def model(image=BASE, text=TEXT, patch_size=16, image_size=224, is_eva=True):
    sizes = {"patch_size": patch_size, "image_size": image_size, "is_eva": is_eva}
    return FOLDER._replace(image=image, text=text, **sizes)


@pytest.mark.parametrize(
    ("image", "patch_size", "image_size", "name"),
    [
        ((768, 12, 12, 2048), 16, 224, "eva02_base_patch16_clip_224"),
        ((1024, 24, 16, 2730), 14, 336, "eva02_large_patch14_clip_336"),
        ((1408, 40, 16, 6144), 14, 224, "eva_giant_patch14_224"),
        ((1792, 64, 16, 15360), 14, 224, "eva02_enormous_patch14_clip_224"),
    ],
)
def test_eva_is_named_as_timm_does(image, patch_size, image_size, name):
    tower = folder.Tower(*image, "swiglu", 1e-6)
    files = folder.open_clip(model(tower, patch_size=patch_size, image_size=image_size))
    config = files["open_clip_config.json"]["model_cfg"]
    assert config["custom_text"]
    assert not config["quick_gelu"]
    assert config["vision_cfg"]["timm_model_name"] == name
    assert folder.without_none(config) == config  # nothing of it is left out when written


def test_a_resnet_is_described_and_read_by_its_stages(tmp_path):
    tower = folder.Tower(80, 26, 20, 0, "gelu", 1e-5)
    described = model(tower, is_eva=False)._replace(stages=(4, 6, 10, 6), image_size=288)
    (config,) = folder.open_clip(described).values()
    vision = config["model_cfg"]["vision_cfg"]
    assert vision == {"image_size": 288, "layers": [4, 6, 10, 6], "width": 80, "head_width": 128}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    read = metadata.read(tmp_path)
    assert (read["image_heads"], read["text_activation"], read["image_size"]) == (20, "gelu", 288)
    assert not {"image_activation", "image_epsilon"} & {*read}  # ReLU and batch norm


def test_sizes_that_timm_has_no_name_for_are_refused():
    with pytest.raises(
        WeightsError, match=r"eva02_base_patch16_clip_224.*\(768, 12, 12, 2048\), 16, 256"
    ):
        folder.open_clip(model(image_size=256))
    with pytest.raises(WeightsError, match="quick_gelu or gelu"):
        folder.open_clip(model(text=TEXT._replace(activation="gelu_tanh")))


def test_a_roberta_that_transformers_has_no_name_for_is_refused():
    base = folder.Tower(768, 12, 12, 3072, "gelu", 1e-5)
    model = FOLDER._replace(text=base, vocab_size=50_265, roberta=("mean", "mlp"))
    text = folder.open_clip(model)["open_clip_config.json"]["model_cfg"]["text_cfg"]
    assert (text["hf_model_name"], text["hf_pooler_type"]) == ("roberta-base", "mean_pooler")
    with pytest.raises(WeightsError, match=r"it has roberta-base, .* width\) \(60, 768"):
        folder.open_clip(model._replace(vocab_size=60))
    with pytest.raises(WeightsError, match=r"the epsilon 1e-05; got gelu and 0\.001"):
        folder.open_clip(model._replace(text=base._replace(epsilon=1e-3)))


def test_texts_without_a_projection_are_no_siglip_of_transformers():
    with pytest.raises(WeightsError, match=r"projects texts, .*: export to big_vision"):
        folder.hugging_face(FOLDER._replace(embed=None, is_siglip=True))


def test_padding_to_a_square_is_refused():
    padded = model(is_eva=False)._replace(crop="pad")
    for files in (folder.hugging_face, folder.open_clip):
        with pytest.raises(WeightsError, match="crop pad"):
            files(padded)


def test_open_clip_reads_another_tokenizer_than_its_own_from_the_folder():
    def text(bos_id):
        files = folder.open_clip(model(is_eva=False, image=TEXT)._replace(bos_id=bos_id))
        return files["open_clip_config.json"]["model_cfg"]["text_cfg"]

    assert "hf_tokenizer_name" not in text(58)
    assert text(None)["hf_tokenizer_name"]
    assert (text(None)["pool_type"], text(None)["eos_id"]) == ("eos", FOLDER.eos_id)


def test_an_end_token_that_transformers_does_not_look_for_is_refused():
    of_clip = model(is_eva=False, image=TEXT)._replace(eos_id=2)
    with pytest.raises(WeightsError, match="ends a text at its largest id"):
        folder.hugging_face(of_clip)
    assert folder.hugging_face(of_clip._replace(is_siglip=True))
