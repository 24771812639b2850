"""Weights of the reference libraries give their numbers: every block of both towers, embeddings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vlc_jax import models, weights
from vlc_jax.models import layers

pytestmark = pytest.mark.slow

TOLERANCE = 2e-5  # float32, absolute, of outputs of order 1

IMAGE = {"width": 32, "mlp_width": 128, "depth": 3, "heads": 4, "image_size": 24, "patch_size": 8}
TEXT = {"width": 24, "mlp_width": 96, "depth": 2, "heads": 2, "context_length": 12,
        "vocab_size": 60, "eos_id": 59}  # fmt: skip
TINY = {"variant": "B/32", "image": {**IMAGE, "projection": 16}, "text": {**TEXT, "projection": 16}}
HF = {
    **TINY,
    "image": {**TINY["image"], "mlp_width": 48},
    "text": {**TINY["text"], "mlp_width": 40},
}
HF_SIGLIP = {
    "variant": "SigLIP-B/16",
    "image": {**IMAGE, "mlp_width": 48},
    "text": {**TEXT, "mlp_width": 40, "width": 32, "heads": 4, "projection": 32},
}
CASES = {
    "tiny_quick_gelu": TINY,
    "tiny_gelu": {**TINY, "activation": "gelu"},
    "tiny_custom_text": {**TINY, "activation": "gelu"},
    "hf_clip_quick_gelu": HF,
    "hf_clip_gelu": {**HF, "activation": "gelu"},
    "hf_siglip": HF_SIGLIP,
    "hf_siglip2": {**HF_SIGLIP, "text": {**HF_SIGLIP["text"], "vocab_size": 256_000}},
    "B/32": {"variant": "B/32"},
    "B/16": {"variant": "B/16"},
    "L/14": {"variant": "L/14"},
    "SigLIP-B/16": {"variant": "SigLIP-B/16", "activation": "gelu"},
    "SigLIP2-B/16": {  # open_clip gives only its text tower the activation it was trained with
        "variant": "SigLIP-B/16",
        "vocab_size": 256_000,
        "image": {"activation": "gelu"},
    },
}


def load(model, path):
    shapes = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    heads = {"image": model.image.heads, "text": model.text.heads}
    return weights.load(path, shapes, weights.Architecture(model.image.patch_size, heads))[0]


def differences(model, params, io):
    """Name -> largest absolute difference to the reference."""

    def run(params, image, text):
        def both(module, image, text):
            whole = module.encode_image(image, tokens=True), module.encode_text(text, tokens=True)
            return whole, module.encode_image(image).pooled, module.encode_text(text).pooled

        (whole, image_embeds, text_embeds), state = model.apply(
            {"params": params},
            image,
            text,
            method=both,
            capture_intermediates=lambda module, _: isinstance(module, layers.Block),
        )
        blocks = {
            f"{part}_{index}": blocks[f"block_{index}"]["__call__"][0]
            for part, blocks in state["intermediates"].items()
            for index in range(len(blocks))
        }
        pooled = {"image_embeds": whole[0].pooled, "text_embeds": whole[1].pooled}
        return blocks, pooled, {"image_embeds": image_embeds, "text_embeds": text_embeds}

    blocks, pooled, short = jax.jit(run)(params, jnp.asarray(io["image"]), jnp.asarray(io["text"]))
    assert {*blocks, *pooled, "image", "text"} == set(io.files)
    found = {name: np.abs(x - io[name]).max() for name, x in {**blocks, **pooled}.items()}
    return found | {f"{name} alone": np.abs(x - io[name]).max() for name, x in short.items()}


@pytest.mark.parametrize("case", CASES)
def test_every_block_and_the_embeddings_are_those_of_the_reference(reference, case):
    folder, model = reference(case), models.build("clip", **CASES[case])
    files = sorted({*folder.glob("weights.*"), *([folder] * (folder / "config.json").exists())})
    assert files
    for path in files:
        with np.load(folder / "io.npz") as io:
            found = differences(model, load(model, path), io)
        wrong = {name: value for name, value in found.items() if not value <= TOLERANCE}
        assert not wrong, path


def controls(case):
    """Models and changes of parameters that must not pass."""
    right = CASES[case]
    yield {**right, "activation": "gelu"}, lambda params: params
    yield {**right, "epsilon": 1e-3}, lambda params: params
    yield (
        {**right, "text": {**right["text"], "eos_id": 58}},  # a token no text has: last position
        lambda params: params,
    )

    def transposed(params):
        kernel = params["image"]["block_1"]["attention"]["out"]["kernel"]
        params["image"]["block_1"]["attention"]["out"]["kernel"] = kernel.T
        return params

    yield right, transposed


@pytest.mark.parametrize("index", range(4), ids=["activation", "epsilon", "end", "transpose"])
def test_what_is_wrong_by_a_little_is_found(reference, index):
    folder = reference("tiny_quick_gelu")
    options, change = list(controls("tiny_quick_gelu"))[index]
    model = models.build("clip", **options)
    params = change(load(model, folder / "weights.pt"))
    with np.load(folder / "io.npz") as io:
        assert max(differences(model, params, io).values()) > TOLERANCE
