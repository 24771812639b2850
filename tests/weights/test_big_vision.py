"""SigLIP against big_vision's own model: names, outputs, loss and gradients, scanned and not.

VLC_BIG_VISION is the folder of its checkout; it is on no package index.
"""

import importlib
import os
import sys
import types
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vlc_jax import losses, models, weights
from vlc_jax.errors import WeightsError
from vlc_jax.setup.init_from import architecture

TOWER = {"width": 24, "depth": 3, "heads": 4, "mlp_width": 40}
MODEL = models.build(
    *("clip", "SigLIP-B/16"),
    image={**TOWER, "image_size": 24, "patch_size": 8},
    text={**TOWER, "vocab_size": 50, "context_length": 7, "projection": 24},
)
SHAPES = jax.eval_shape(lambda key: models.init(MODEL, key), jax.random.key(0))


@pytest.fixture(scope="module")
def two_towers():
    """Its module of two towers; the utilities, which import TensorFlow, are left out."""
    folder = os.environ.get("VLC_BIG_VISION")
    if not folder:
        pytest.skip("VLC_BIG_VISION is not set: the folder of a checkout of big_vision")
    sys.path.insert(0, folder)
    package = importlib.import_module("big_vision")
    package.utils = sys.modules["big_vision.utils"] = types.ModuleType("big_vision.utils")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield importlib.import_module("big_vision.models.proj.image_text.two_towers")
    sys.path.remove(folder)
    for name in [name for name in sys.modules if name.split(".")[0] == "big_vision"]:
        del sys.modules[name]


def theirs(two_towers, is_scan):
    tower = {"width": 24, "depth": 3, "num_heads": 4, "mlp_dim": 40, "scan": is_scan}
    return two_towers.Model(
        image={**tower, "patch_size": (8, 8), "pool_type": "map", "num_classes": None},
        text={**tower, "vocab_size": 50, "num_classes": 24},
        out_dim=(None, 24),
        temperature_init=10.0,
        bias_init=-10.0,
    )


def batch():
    rng = np.random.default_rng(0)
    image = rng.uniform(-1, 1, (4, 24, 24, 3)).astype(np.float32)
    return jnp.asarray(image), jnp.asarray(rng.integers(0, 50, (4, 7)), jnp.int32)


def sigmoid_loss(image, text, t, b):
    """Algorithm 1 of the paper."""
    z = image @ text.T * t.reshape(()) + b.reshape(())
    signs = 2 * jnp.eye(len(image)) - 1
    return -jnp.mean(jnp.sum(jax.nn.log_sigmoid(signs * z), axis=-1))


@pytest.mark.parametrize("is_scan", [False, True], ids=["loop", "scan"])
def test_outputs_loss_and_gradients_are_those_of_big_vision(two_towers, is_scan, tmp_path):
    image, text = batch()
    model = theirs(two_towers, is_scan)
    params = jax.jit(model.init)(jax.random.key(0), image, text)["params"]
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda x: x + 0.05 * rng.standard_normal(x.shape, np.float32), params)

    def their_loss(params):
        image_, text_, out = model.apply({"params": params}, image, text)
        return sigmoid_loss(image_, text_, out["t"], out["b"]), (image_, text_)

    (value, embeddings), gradient = jax.jit(jax.value_and_grad(their_loss, has_aux=True))(params)
    flat = {f"params/{name}": np.asarray(x) for name, x in weights.flatten(params).items()}
    np.savez(tmp_path / "siglip.npz", **flat)
    loaded, name = weights.load(tmp_path / "siglip.npz", SHAPES, architecture(MODEL))
    assert name == ("big_vision_scan" if is_scan else "big_vision")

    def our_loss(params):
        rows = {"image": image, "text": text, "mask": jnp.ones(4, bool)}
        outputs = MODEL.apply({"params": params}, rows)
        terms = {"sigmoid": {"weight": 1.0}}
        return losses.total(terms, outputs, rows)[0], (outputs.image.pooled, outputs.text.pooled)

    ours = jax.jit(jax.value_and_grad(our_loss, has_aux=True))
    (found, pooled), our_gradient = ours(jax.tree.map(jnp.asarray, loaded))
    for ours_, theirs_ in zip(pooled, embeddings, strict=True):
        np.testing.assert_allclose(ours_, theirs_, atol=2e-5)
    np.testing.assert_allclose(found, value, rtol=1e-5)
    saved = weights.save(jax.tree.map(np.asarray, our_gradient), name, architecture(MODEL))
    expected = weights.flatten(gradient)
    assert {f"params/{key}" for key in expected} == saved.keys()
    for key, x in expected.items():
        np.testing.assert_allclose(saved[f"params/{key}"], x, atol=2e-5, err_msg=key)


def test_blocks_are_stacked_and_unstacked_without_loss(tmp_path):
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: rng.standard_normal(x.shape, np.float32), SHAPES)
    arrays = weights.save(params, "big_vision_scan", architecture(MODEL))
    assert arrays["params/img/Transformer/encoderblock/LayerNorm_0/scale"].shape == (3, 24)
    assert not any("encoderblock_" in name for name in arrays)
    np.savez(tmp_path / "scan.npz", **arrays)
    loaded = weights.load(tmp_path / "scan.npz", SHAPES, architecture(MODEL))[0]
    jax.tree.map(np.testing.assert_array_equal, loaded, params)
    plain = weights.save(params, "big_vision", architecture(MODEL))
    unpacked, _ = weights.read(tmp_path / "scan.npz")
    assert unpacked.keys() == plain.keys()
    assert weights.sizes.read(unpacked).image == (24, 3)


def test_positions_of_naflex_are_refused(tmp_path):
    params = jax.tree.map(lambda x: np.zeros(x.shape, np.float32), SHAPES)
    arrays = weights.save(params, "big_vision", architecture(MODEL))
    arrays["params/img/pos_embedding"] = np.zeros((16, 16, 24), np.float32)
    np.savez(tmp_path / "naflex.npz", **arrays)
    with pytest.raises(WeightsError, match=r"pos_embedding has shape \(16, 16, 24\)"):
        weights.load(tmp_path / "naflex.npz", SHAPES, architecture(MODEL))
