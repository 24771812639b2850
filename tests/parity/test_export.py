"""Exported folders load in the reference libraries and give our numbers."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from vlc_jax import build, models, weights
from vlc_jax.weights import folder

pytestmark = pytest.mark.slow

IMAGE = {"width": 32, "mlp_width": 48, "depth": 3, "heads": 4, "image_size": 24, "patch_size": 8}
TEXT = {"width": 32, "mlp_width": 40, "depth": 2, "heads": 4, "context_length": 12,
        "vocab_size": 60, "eos_id": 59}  # fmt: skip
CLIP = {
    "variant": "B/32",
    "image": {**IMAGE, "projection": 16},
    "text": {**TEXT, "projection": 16},
}
SIGLIP = {"variant": "SigLIP-B/16", "image": IMAGE, "text": {**TEXT, "projection": 32}}
EVA02_TEXT = {**TEXT, "projection": 512}  # open_clip has image towers of the published sizes only
CASES = {
    "hf clip": ("hf", "hf_clip", CLIP, folder.hugging_face, "model"),
    "hf clip gelu": ("hf", "hf_clip", {**CLIP, "activation": "gelu"}, folder.hugging_face, "model"),
    "hf siglip": ("hf", "hf_siglip", SIGLIP, folder.hugging_face, "model"),
    "open_clip": ("open_clip", "openai", CLIP, folder.open_clip, "open_clip_model"),
    "open_clip eva02": (
        *("open_clip", "open_clip_eva02", {"variant": "EVA02-B/16", "text": EVA02_TEXT}),
        *(folder.open_clip, "open_clip_model"),
    ),
    "open_clip gelu": (
        *("open_clip", "openai", {**CLIP, "activation": "gelu"}),
        *(folder.open_clip, "open_clip_model"),
    ),
}


def described(model, is_siglip):
    image, text = model.image, model.text
    towers = [
        folder.Tower(t.width, t.depth, t.heads, t.mlp_width, t.activation, t.epsilon)
        for t in (image, text)
    ]
    return folder.Model(
        *towers,
        embed=text.projection,
        image_size=image.image_size,
        patch_size=image.patch_size,
        context_length=12,
        vocab_size=60,
        bos_id=58,
        eos_id=59,
        pad_id=1,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        crop="centre",
        is_siglip=is_siglip,
    )


@pytest.mark.parametrize("case", CASES)
def test_an_exported_folder_gives_our_embeddings(there, tmp_path, case):
    target, name, options, describe, file = CASES[case]
    model = models.build("clip", **options)
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    std = 0.1 if model.image.width < 100 else 0.02
    params = jax.tree.map(lambda x: rng.normal(size=x.shape, scale=std).astype(np.float32), shapes)

    out = tmp_path / "exported"
    out.mkdir()
    arrays = weights.save(params, name, build.architecture(model))
    save_file(arrays, out / f"{file}.safetensors", metadata={"format": "pt"})
    for config, content in describe(described(model, name == "hf_siglip")).items():
        (out / config).write_text(json.dumps(folder.without_none(content)))

    side = model.image.image_size
    image = rng.normal(size=(3, side, side, 3)).astype(np.float32)
    text = rng.integers(3, 58, size=(3, 12)).astype(np.int32)
    text[0, 5], text[0, 6:], text[1:, -1] = 59, 0, 59
    np.savez(tmp_path / "in.npz", image=image, text=text)
    there("load_exported.py", target, out, tmp_path / "in.npz", tmp_path / "out.npz")

    def both(module, image, text):
        return module.encode_image(image).pooled, module.encode_text(text).pooled

    params = jax.tree.map(jnp.asarray, params)
    ours = model.apply({"params": params}, jnp.asarray(image), jnp.asarray(text), method=both)
    with np.load(tmp_path / "out.npz") as theirs:
        for embeds, part in zip(ours, ("image", "text"), strict=True):
            expected = theirs[part] / np.linalg.norm(theirs[part], axis=-1, keepdims=True)
            np.testing.assert_allclose(embeds, expected, atol=2e-5)
        np.testing.assert_allclose(np.exp(params["logit_scale"]), theirs["scale"].item(), rtol=1e-5)
