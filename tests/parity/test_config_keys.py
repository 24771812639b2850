"""Every key of the libraries' config files is read, refused by name, or known to be harmless."""

import json

from vlc_jax import errors, weights
from vlc_jax.weights import metadata

SCRIPT = "config_keys.py"


def test_no_key_of_a_config_class_is_unknown(folder, caplog):
    assert metadata.read(folder / "clip")["text_heads"] == 8
    assert metadata.read(folder / "metaclip_2")["eos_id"] == 2
    assert metadata.read(folder / "siglip")["image_heads"] == 12
    assert metadata.read(folder / "siglip2")["image_heads"] == 12
    assert metadata.read(folder / "blip")["text_heads"] == 8
    assert metadata.read(folder / "open_clip")["text_pooling"] == "eos"
    for path in folder.iterdir():
        if path.name.startswith(("llava", "paligemma", "gemma3", "qwen3_vl")):
            heads = json.loads((path / "config.json").read_text())["vision_config"]
            ours = weights.llava.read_sizes(path)["image"]["heads"]
            name = "num_heads" if path.name == "qwen3_vl" else "num_attention_heads"
            assert ours == heads[name], path
    assert "not known here" not in caplog.text


def test_configs_of_open_clip_are_read_or_refused_by_name(folder, caplog):
    refused = {}
    for path in (folder / "shipped").iterdir():
        try:
            metadata.read(path)
        except errors.WeightsError as error:
            refused[path.name] = str(error)
    assert "not known here" not in caplog.text
    ours = ("ViT-B-32", "ViT-L-14-336", "ViT-H-14", "EVA01-g-14", "EVA02-L-14", "ViT-B-16-SigLIP")
    ours += ("ViT-bigG-14-worldwide", "ViT-SO400M-16-SigLIP-i18n-256", "roberta-ViT-B-32")
    ours += ("ViT-H-14-CLIPA", "PE-Core-B-16", "PE-Core-bigG-14-448")
    assert not {name for name in ours if name in refused}, refused
    assert "multimodal_cfg" in refused["coca_ViT-B-32"]
    assert "hf_model_name" in refused["mt5-base-ViT-B-32"]
    assert all("; only" in message for message in refused.values()), refused
