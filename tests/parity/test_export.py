"""Exported folders load in the reference libraries and give our numbers."""

import functools
import json
import re

import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.support.small_models import FOLDER, normal
from vlc_jax import models, weights
from vlc_jax.errors import WeightsError
from vlc_jax.models import lora
from vlc_jax.setup.init_from import architecture
from vlc_jax.tools import verify_export
from vlc_jax.weights import folder

pytestmark = pytest.mark.slow

IMAGE = {"width": 32, "mlp_width": 48, "depth": 3, "heads": 4, "image_size": 24, "patch_size": 8}
TEXT = {"width": 32, "mlp_width": 40, "depth": 2, "heads": 4, "context_length": 12,
        "vocab_size": 60, "eos_id": 59}  # fmt: skip
RESNET = {"width": 8, "stages": (1, 1, 1, 1), "heads": 4, "image_size": 64, "projection": 16}
RESNET_TEXT = {**TEXT, "projection": 16}
CLIP = {"variant": "B/32", "image": {**IMAGE, "projection": 16}, "text": {**TEXT, "projection": 16}}
SIGLIP = {"variant": "SigLIP-B/16", "image": IMAGE, "text": {**TEXT, "projection": 32}}
NAFLEX = {
    "variant": "SigLIP2-B/16-naflex",
    "image": {**IMAGE, "position_grid": 4},
    "text": SIGLIP["text"],
}
EVA02_TEXT = {**TEXT, "projection": 512}  # open_clip has image towers of the published sizes only
CASES = {
    "hf clip": ("hf", "hf_clip", CLIP, folder.hugging_face, "model"),
    "hf clip gelu": ("hf", "hf_clip", {**CLIP, "activation": "gelu"}, folder.hugging_face, "model"),
    "hf siglip": ("hf", "hf_siglip", SIGLIP, folder.hugging_face, "model"),
    "hf naflex": (*("hf", "hf_siglip2_naflex", NAFLEX), *(folder.hugging_face, "model")),
    "open_clip": ("open_clip", "openai", CLIP, folder.open_clip, "open_clip_model"),
    "open_clip eva02": (
        *("open_clip", "open_clip_eva02", {"variant": "EVA02-B/16", "text": EVA02_TEXT}),
        *(folder.open_clip, "open_clip_model"),
    ),
    "open_clip resnet": (
        *("open_clip", "openai_resnet", {"variant": "RN50", "image": RESNET, "text": RESNET_TEXT}),
        *(folder.open_clip, "open_clip_model"),
    ),
    "open_clip gelu": (
        *("open_clip", "openai", {**CLIP, "activation": "gelu"}),
        *(folder.open_clip, "open_clip_model"),
    ),
}


def described(model, is_siglip):
    stages = getattr(model.image, "stages", ())
    image, text = (
        folder.Tower(t.width, t.depth, t.heads, other.mlp_width, other.activation, other.epsilon)
        for t, other in (
            (model.image, model.text if stages else model.image),
            (model.text, model.text),
        )
    )
    sizes = {"image_size": model.image.image_size, "patch_size": model.image.patch_size}
    sizes |= {"is_siglip": is_siglip, "is_eva": not getattr(model.image, "key_bias", True)}
    sizes |= {"stages": stages, "position_grid": getattr(model.image, "position_grid", None)}
    sizes |= dict.fromkeys(("mean", "std"), (0.5, 0.5, 0.5))
    return FOLDER._replace(image=image, text=text, embed=model.text.projection, **sizes)


def random_params(model):
    shapes = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    params = normal(shapes, 0.1 if model.image.width < 100 else 0.02)
    # a running variance is positive
    return jax.tree.map_with_path(lambda p, x: abs(x) if p[-1].key == "variance" else x, params)


def write(out, case, model, params):
    _, name, _, describe, file = CASES[case]
    out.mkdir()
    arrays = weights.save(params, name, architecture(model))
    save_file(arrays, out / f"{file}.safetensors", metadata={"format": "pt"})
    for config, content in describe(described(model, "siglip" in name)).items():
        (out / config).write_text(json.dumps(folder.without_none(content)))


def texts():
    text = np.random.default_rng(0).integers(3, 58, size=(3, 12)).astype(np.int32)
    text[0, 5], text[0, 6:], text[1:, -1] = 59, 0, 59
    return text


@pytest.mark.parametrize("case", CASES)
def test_an_exported_folder_gives_our_scores(python, tmp_path, case):
    target, _, options, _, _ = CASES[case]
    model = models.build("clip", **options)
    params = random_params(model)
    out = tmp_path / "exported"
    write(out, case, model, params)
    verdict = verify_export.check(out, target, model, jax.device_put(params), texts(), python)
    found = re.fullmatch(r"checked: .* gives the same scores, largest difference (.*)", verdict)
    assert float(found[1]) < 2e-5


def test_an_exported_folder_with_roberta_gives_our_scores(python, tmp_path, monkeypatch):
    text = {**TEXT, "width": 128, "heads": 2, "eos_id": 2, "projection": 16}
    model = models.build("clip", "roberta-B/32", image=CLIP["image"], text=text)
    # open_clip has no RoBERTa of this size: a name for it
    monkeypatch.setitem(folder._ROBERTA, (60, 128, 2, 2, 40), "roberta-base")
    params, out = random_params(model), tmp_path / "exported"
    out.mkdir()
    arrays = weights.save(params, "open_clip_roberta", architecture(model))
    save_file(arrays, out / "open_clip_model.safetensors", metadata={"format": "pt"})
    (config,) = folder.open_clip(described(model, False)._replace(roberta=("mean", "mlp"))).values()
    (out / "open_clip_config.json").write_text(json.dumps(config))
    ids = np.where(texts() == 59, 2, texts())
    ids[0, 6:] = 1
    params = jax.device_put(params)
    verdict = verify_export.check(out, "open_clip", model, params, ids, python)
    assert float(verdict.rpartition(" ")[2]) < 2e-5
    read = weights.metadata.read(out)
    assert (read["text_pooling"], read["text_heads"]) == ("mean", 12)


@pytest.mark.parametrize("case", ["hf clip", "open_clip"])
def test_a_folder_with_other_numbers_is_noticed(python, tmp_path, case):
    target, _, options, _, _ = CASES[case]
    model = models.build("clip", **options)
    params = random_params(model)
    write(tmp_path / "exported", case, model, params)
    params["image"]["projection"]["kernel"] = params["image"]["projection"]["kernel"].copy()
    params["image"]["projection"]["kernel"][0, 0] += 0.1
    params = jax.device_put(params)
    with pytest.raises(WeightsError, match="computes other scores"):
        verify_export.check(tmp_path / "exported", target, model, params, texts(), python)
    (tmp_path / "exported/config.json").write_text("{")
    (tmp_path / "exported/open_clip_config.json").write_text("{")
    with pytest.raises(WeightsError, match="cannot load the exported folder"):
        verify_export.check(tmp_path / "exported", target, model, params, texts(), python)


@pytest.mark.parametrize(
    ("case", "targets", "dora"),  # DoRA's magnitudes come on top of LoRA's arrays
    [
        ("hf clip", ".*/(query|value)/kernel", True),
        ("hf clip", ".*/query_key_value/kernel|.*/(out|up|down)/kernel|.*projection/kernel", True),
        ("hf clip", "image/patch_embedding/kernel", True),
        ("hf siglip", "(image|text)/block_.*/(key|down)/kernel|text/projection/kernel", True),
        ("hf siglip", "(image|text)/block_.*/(key|down)/kernel|text/projection/kernel", False),
    ],
)
def test_an_adapter_gives_our_scores_in_peft(python, tmp_path, case, targets, dora):
    _, name, options, _, _ = CASES[case]
    model = models.build("clip", **options)
    params = random_params(model)
    write(tmp_path / "base", case, model, params)
    params = jax.device_put(params)
    init = jax.jit(functools.partial(lora.init, targets=targets, rank=3, dora=dora))
    new = jax.device_get(init(jax.random.key(0), params))
    rng = np.random.default_rng(1)
    trained = jax.tree.map(lambda x: x + 0.2 * rng.normal(size=x.shape).astype(np.float32), new)
    trained = jax.device_put(trained)
    rules = weights.FORMATS[name].rules(architecture(model))
    arrays = weights.peft.save(jax.device_get(lora.adapters(trained)), rules)
    out = tmp_path / "adapter"
    out.mkdir()
    save_file(arrays, out / "adapter_model.safetensors", metadata={"format": "pt"})
    config = weights.peft.config(arrays, rank=3, alpha=6.0, base=str(tmp_path / "base"))
    (out / "adapter_config.json").write_text(json.dumps(config))

    merged = jax.jit(functools.partial(lora.merge, alpha=6.0))(params, trained)
    verdict = verify_export.check(out, "peft", model, merged, texts(), python)
    assert float(verdict.rpartition(" ")[2]) < 2e-5
    with pytest.raises(WeightsError, match="computes other scores"):  # the adapter does something
        verify_export.check(out, "peft", model, params, texts(), python)
