"""DINOv2's weights give transformers' numbers: every block, tokens and the class token, at the
resolution of the weights and at others."""

import functools

import jax
import numpy as np
import pytest

import vlc_jax
from vlc_jax import models, types, weights
from vlc_jax.models import layers
from vlc_jax.setup import weights_config
from vlc_jax.setup.init_from import architecture

pytestmark = pytest.mark.slow

SCRIPT = "dinov2_reference.py"
TOLERANCE = 2e-5  # float32, absolute, of outputs of order 1
IMAGE = {"width": 32, "mlp_width": 128, "depth": 2, "heads": 4, "patch_size": 4}
VARIANTS = {"plain": "DINOv2-B/14", "registers": "DINOv2-B/14", "swiglu": "DINOv2-g/14"}
# of a hidden width of 4 x 32, two thirds, rounded up to a multiple of 8
MORE = {"registers": {"registers": 4}, "swiglu": {"mlp_width": 88}}


def build(case, size):
    options = {**IMAGE, "image_size": size, **MORE.get(case, {})}
    return models.build("clip", VARIANTS[case], image=options)


def load(folder, model):
    shapes = jax.eval_shape(functools.partial(models.init, model), jax.random.key(0))
    image = {"image": shapes["image"]}
    return weights.load(folder, image, architecture(model))[0]


def differences(folder, case, size):
    """Name -> largest absolute difference to the reference."""
    model = build(case, size)
    params = load(folder / case, model)
    unit = types.FeatureRequest("normed", is_unit=False)

    @jax.jit
    def run(params, pixels):
        features, state = model.apply(
            {"params": params},
            pixels,
            method=lambda module, x: module.image(x, unit),
            capture_intermediates=lambda module, _: isinstance(module, layers.Block),
        )
        blocks = state["intermediates"]["image"]
        return features, [blocks[f"block_{i}"]["__call__"][0] for i in range(2)]

    with np.load(folder / f"{case}.npz") as io:
        features, blocks = run(params, io[f"image_{size}"])
        expected = io[f"tokens_{size}"]
        if registers := model.image.registers:
            expected = np.delete(expected, range(1, 1 + registers), axis=1)
        pairs = {"pooled": (features.pooled, io[f"pooled_{size}"])}
        pairs["tokens"] = (features.tokens, expected)
        pairs |= {f"block {i}": (x, io[f"block_{i}_{size}"]) for i, x in enumerate(blocks)}
        return {name: np.abs(ours - theirs).max() for name, (ours, theirs) in pairs.items()}


@pytest.mark.parametrize(
    ("case", "size"), [("plain", 16), ("plain", 40), ("registers", 16), ("swiglu", 28)]
)
def test_every_block_and_token_is_that_of_the_reference(folder, case, size):
    found = differences(folder, case, size)
    assert max(found.values()) <= TOLERANCE, found


@pytest.mark.parametrize("case", VARIANTS)
def test_arrays_read_and_written_again_have_the_same_bytes(folder, case):
    model = build(case, 28)
    theirs, name = weights.read(folder / case)
    ours = weights.save(load(folder / case, model), name, architecture(model))
    assert theirs.pop("embeddings.mask_token").shape == (1, 32)  # of pretraining alone
    assert ours.keys() == theirs.keys()
    for key, array in theirs.items():
        assert (ours[key].shape, ours[key].tobytes()) == (array.shape, array.tobytes()), key


def test_pixels_are_those_of_the_folders_processor(folder, monkeypatch):
    variants = weights_config.variants.VARIANTS
    tiny = variants["DINOv2-B/14"]._replace(patch_size=4, image=(32, 2, 4, 128))
    monkeypatch.setitem(variants, "tiny", tiny)
    model = vlc_jax.load(folder / "plain")
    assert (model.config["input"]["image_size"], model.config["model"]["variant"]) == (224, "tiny")
    with np.load(folder / "pixels.npz") as io:
        pixels = model.pixels(io["picture"])
        mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
        np.testing.assert_allclose((pixels / 255 - mean) / std, io["pixels"], atol=1e-5)
