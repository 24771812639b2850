"""Weights of each published family are known by their files and loaded as they were trained."""

import json

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

import vlc_jax
from tests.support import compilations, helpers, openvision, small_models
from tests.support.training import train
from vlc_jax import models, weights
from vlc_jax.configs import clip_ft
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.models import variants
from vlc_jax.setup import weights_config
from vlc_jax.setup.init_from import architecture

# no file of a CLIP with a Swin is read, but X-VLM's, which has its own sizes; folders of Qwen3-VL
# are known by their config.json
OF_NO_FILE = {"mini", "mini/8", "Swin-B/32", "Qwen3-VL-2B"}


@pytest.mark.parametrize("name", sorted(set(variants.VARIANTS) - OF_NO_FILE))
def test_a_variant_is_known_by_its_sizes(name):
    sizes = variants.VARIANTS[name]
    family = next((f for f in ("siglip", "dinov2") if f in sizes.family), "clip")
    grid = sizes.image_size // sizes.patch_size
    text = variants.options(name)["text"] or {"vocab_size": 0, "context_length": 0}
    read = weights.sizes.Sizes(sizes.image[:2], sizes.text[:2], sizes.patch_size, grid,
                               text["vocab_size"], text["context_length"])  # fmt: skip
    formats = weights_config.FORMAT_FAMILIES.items()
    format_ = next((name for name, families in formats if sizes.family in families), "openai")
    family = "clip_hf" if format_ == "open_clip_roberta" else family
    family = "openvision" if sizes.family in ("openvision", "clipa") else family
    found = weights_config._variant("w", read, family, format_)
    assert variants.VARIANTS[found]._replace(family="") == sizes._replace(family="")
    assert found == name or family != "openvision"


@pytest.mark.parametrize(
    ("variant", "name"),
    [
        *(("B/32", name) for name in ("openai", "open_clip", "hf_clip")),
        *(("SigLIP-B/16", name) for name in ("hf_siglip", "open_clip_siglip", "big_vision")),
        ("SigLIP-B/16", "big_vision_scan"),
        ("EVA02-B/16", "open_clip_eva02"),
        ("EVA01-g/14", "open_clip_eva01"),
        ("roberta-B/32", "open_clip_roberta"),
    ],
)
def test_sizes_are_read_from_every_format(variant, name, tmp_path):
    """With scanned blocks from the headers of a file, whose arrays have a leading axis of depth."""
    towers = {"width": 24, "depth": 3, "heads": 2, "mlp_width": 48}
    image = {**towers, "image_size": 48, "patch_size": 16}
    text = {**towers, "width": 16, "depth": 2, "vocab_size": 50, "context_length": 7}
    if "SigLIP" in variant:
        text["projection"] = 24
    else:
        image["projection"] = text["projection"] = 8
    model = models.build("clip", variant, image=image, text=text)
    params = small_models.parameters(model)
    arrays = weights.save(params, name, architecture(model))
    if name == "big_vision_scan":
        np.savez(tmp_path / "w.npz", **arrays)
        arrays, found = weights.read(tmp_path / "w.npz", only_shapes=True)
        assert found == name
    positions = 514 if "roberta" in variant else 7
    assert weights.sizes.read(weights.shapes_of(arrays)) == ((24, 3), (16, 2), 16, 3, 50, positions)


def write_bert(folder, start, end, pad):
    """A tokenizer.json that puts a start and an end token around words."""
    words = (pad, start, end, "<unk>", "a", "red", "cat")
    around = f"{start} $A {end}"
    small_models.write_tokenizer(folder, words, "<unk>", special=words[:3], single=around)


def write_tiny(folder, monkeypatch, variant, image, name, **text):
    """Random weights of two blocks of the variant's family, which are the variant "tiny"."""
    width, patch = 16, 8
    sizes = variants.VARIANTS[variant]._replace(
        image=(width, 2, 2, 24), text=(width, 2, 2, 32), embed=6, image_size=32, patch_size=patch
    )
    monkeypatch.setattr(variants, "VARIANTS", {"tiny": sizes})
    model = models.build("clip", "tiny", image=image, text={"vocab_size": 7, **text})
    params = small_models.parameters(model, 0.3)
    save_file(weights.save(params, name, architecture(model)), folder / FILES[name])
    return model, params


FILES = {"openai": "open_clip_model.safetensors", "hf_clip": "model.safetensors",
         "open_clip_pe": "open_clip_model.safetensors"}  # fmt: skip


def test_openvisions_folder_is_loaded_as_it_was_trained(tmp_path, monkeypatch):
    """Its config.json is open_clip's; its tokenizer BERT's, without the end token."""
    write_bert(tmp_path, "[CLS]", "[SEP]", "[PAD]")
    model, params = write_tiny(tmp_path, monkeypatch, "OpenVision-B/16", {}, "openai")
    norm = {"norm_kwargs": {"eps": 1e-6}}
    vision = {"image_size": 32, "width": 16, "head_width": 8, "no_ln_pre": True, **norm}
    vision |= {"pool_type": "avg", "final_ln_after_pool": True}
    text = {"context_length": 80, "vocab_size": 7, "hf_tokenizer_name": "bert-base-uncased", **norm}
    text |= {"tokenizer_kwargs": {"strip_sep_token": True}, "heads": 2, "pool_type": "last"}
    text |= {"no_causal_mask": True, "act_kwargs": {"approximate": "tanh"}}
    pixels = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    pixels |= {"interpolation": "bilinear", "resize_mode": "squash"}
    config = {"model_cfg": {"vision_cfg": vision, "text_cfg": text}, "preprocess_cfg": pixels}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    loaded = vlc_jax.load(tmp_path)
    assert loaded.config["input"]["eval_crop"] == "none"
    ids = loaded.tokenizer(["a red cat"])
    assert ids.tolist() == [[1, 4, 5, 6, *(0 for _ in range(76))]]
    expected = compilations.apply(model, {"params": params}, ids, method="encode_text")
    np.testing.assert_allclose(loaded.embed_texts(["a red cat"]), expected.pooled, atol=1e-5)
    # the same folder with the JAX checkpoint in place of open_clip's file
    (tmp_path / FILES["openai"]).unlink()
    openvision.write_orbax(
        tmp_path, openvision.flax_tree(weights.save(params, "openai", architecture(model)))
    )
    of_jax = vlc_jax.load(tmp_path)
    assert of_jax.config == loaded.config
    np.testing.assert_allclose(of_jax.embed_texts(["a red cat"]), expected.pooled, atol=1e-5)
    vision["pool_type"] = "tok"
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsError, match="vision_cfg: pool_type is 'tok'; only 'avg'"):
        vlc_jax.load(tmp_path)


def write_metaclip_2(folder, monkeypatch):
    write_bert(folder, "<s>", "</s>", "<pad>")
    eos = {"eos_id": 2}
    write_tiny(folder, monkeypatch, "B/32", {"activation": "gelu"}, "hf_clip", **eos)
    monkeypatch.setattr(weights_config, "WORLDWIDE_TOKENS", (7,))
    sections = {
        f"{part}_config": {"num_attention_heads": 2, "hidden_act": "gelu"}
        for part in ("vision", "text")
    }
    sections["text_config"] |= {"vocab_size": 7, "eos_token_id": 2}
    sections["vision_config"] |= {"image_size": 32}
    config = {"model_type": "metaclip_2", **sections}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.slow
def test_a_recipe_finetunes_weights_of_another_family(tmp_path, monkeypatch):
    write_metaclip_2(tmp_path, monkeypatch)
    Image.fromarray(np.full((40, 50, 3), 90, np.uint8)).save(tmp_path / "a.png")
    row = {"image": "a.png", "caption": "a red cat"}
    rows = ({**row, "text": str(number)} for number in range(8))
    table = helpers.write_rows(tmp_path / "table.jsonl", rows)
    given = f"data=coco,family=clip_hf,variant=tiny,size=32,weights={tmp_path},path={table},batch=8"
    config = clip_ft.get_config(given)
    with config.unlocked():
        config.model.update({"activation": "gelu", "vocab_size": 7})
        config.update({"epochs": None, "steps": 1, "log_every": 1})
        config.optimizer.warmup_steps = 0
    (row,) = helpers.rows(train(config, tmp_path / "run") / "metrics.jsonl")
    assert row["train/infonce"] == pytest.approx(np.log(8), rel=1e-4)  # equal pairs


def test_metaclip_2s_folder_is_loaded_as_it_was_trained(tmp_path, monkeypatch):
    write_metaclip_2(tmp_path, monkeypatch)
    loaded = vlc_jax.load(tmp_path)
    assert loaded.config["model"]["text"]["activation"] == "gelu"
    assert loaded.tokenizer(["a red cat"])[0, :6].tolist() == [1, 4, 5, 6, 2, 0]
    assert loaded.config["text"]["context_length"] == 77
    with pytest.raises(UsageError, match="context_length is 77, here 200"):
        vlc_jax.load(tmp_path, context_length=200)
    assert vlc_jax.load(tmp_path, context_length=248).tokenizer(["a"]).shape == (1, 248)


def test_pe_core_is_known_by_its_arrays(tmp_path, monkeypatch):
    write_tiny(tmp_path, monkeypatch, "PE-Core-L/14-336", {"pool_heads": 2}, "open_clip_pe")
    vision = {"timm_model_name": "vit_pe_core_large_patch14_336", "timm_pool": "map"}
    config = {"model_cfg": {"vision_cfg": {**vision, "timm_proj": None}, "text_cfg": {"heads": 2}}}
    pixels = {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bilinear"}
    config["preprocess_cfg"] = {**pixels, "resize_mode": "squash", "size": [32, 32]}
    config["model_cfg"]["text_cfg"] |= {"context_length": 32, "vocab_size": 7}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    found = weights_config.config_of_weights(tmp_path)
    assert (found.model.variant, found.text.tokenizer) == ("tiny", "clip")
    assert (found.text.context_length, found.input.image_size) == (32, 32)
    assert (found.input.normalisation, found.input.interpolation) == ("siglip", "bilinear")


def test_dinov2_embeds_images_and_has_no_texts(tmp_path, monkeypatch):
    sizes = variants.VARIANTS["DINOv2-B/14"]._replace(image=(16, 2, 2, 64))
    monkeypatch.setitem(variants.VARIANTS, "tiny", sizes)
    model = models.build("clip", "tiny", image={"registers": 4}, image_size=70)
    params = small_models.parameters(model, 0.3)
    arrays = weights.save({"image": params["image"]}, "hf_dinov2", architecture(model))
    save_file(arrays, tmp_path / "model.safetensors")
    config = {"model_type": "dinov2_with_registers", "image_size": 70, "num_attention_heads": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    processor = {"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 32},
                 "crop_size": 28}  # fmt: skip
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    loaded = vlc_jax.load(tmp_path)
    assert loaded.config["input"]["eval_crop"] == "centre_margin"
    pictures = [*np.random.default_rng(0).integers(0, 256, (2, 40, 50, 3)).astype(np.uint8)]
    assert loaded.preprocess(pictures).shape == (2, 28, 28, 3)
    embeddings = loaded.embed_images(pictures)
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-5)
    assert embeddings.shape == (2, 16)
    for call in (lambda: loaded.embed_texts(["a"]), lambda: loaded.score([pictures[0]], ["a"])):
        with pytest.raises(UsageError, match="no texts"):
            call()


def test_sizes_of_a_resnet_are_read():
    image = {"width": 4, "stages": (1, 2, 1, 1), "heads": 2, "image_size": 96, "projection": 8}
    text = {"width": 16, "depth": 2, "heads": 2, "vocab_size": 50, "context_length": 7}
    model = models.build("clip", "RN50", image=image, text={**text, "projection": 8})
    params = small_models.parameters(model)
    arrays = weights.save(params, "openai_resnet", architecture(model))
    assert weights.detect(arrays) == "openai_resnet"
    assert weights.sizes.read(weights.shapes_of(arrays)) == ((4, 5), (16, 2), 32, 3, 50, 7)
