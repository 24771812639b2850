"""SigLIP and PaliGemma against big_vision's own models: names, outputs, loss and gradients.

VLC_BIG_VISION is the folder of its checkout; it is on no package index.
"""

import functools
import importlib
import os
import sys
import types
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from tests.support import plain_llava
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
def big_vision():
    """Imports its modules by name; the utilities, which import TensorFlow, are left out."""
    folder = os.environ.get("VLC_BIG_VISION")
    if not folder:
        pytest.skip("VLC_BIG_VISION is not set: the folder of a checkout of big_vision")
    sys.path.insert(0, folder)
    package = importlib.import_module("big_vision")
    package.utils = sys.modules["big_vision.utils"] = types.ModuleType("big_vision.utils")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield lambda name: importlib.import_module(f"big_vision.models.{name}")
    sys.path.remove(folder)
    for name in [name for name in sys.modules if name.split(".")[0] == "big_vision"]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def two_towers(big_vision):
    return big_vision("proj.image_text.two_towers")


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
    assert weights.sizes.read(weights.shapes_of(unpacked)).image == (24, 3)


def test_positions_of_naflex_are_refused(tmp_path):
    params = jax.tree.map(lambda x: np.zeros(x.shape, np.float32), SHAPES)
    arrays = weights.save(params, "big_vision", architecture(MODEL))
    arrays["params/img/pos_embedding"] = np.zeros((16, 16, 24), np.float32)
    np.savez(tmp_path / "naflex.npz", **arrays)
    with pytest.raises(WeightsError, match=r"pos_embedding has shape \(16, 16, 24\)"):
        weights.load(tmp_path / "naflex.npz", SHAPES, architecture(MODEL))


IMAGE_TOKENS, TOLERANCE = 9, 5e-5  # of logits up to 6
GEMMA = {"width": 32, "depth": 3, "mlp_dim": 48, "num_heads": 4, "num_kv_heads": 1, "head_dim": 8,
         "norm_eps": 1e-6, "vocab_size": 60, "scan": True,
         "remat_policy": "nothing_saveable"}  # fmt: skip


@pytest.fixture(scope="module")
def paligemma(big_vision, tmp_path_factory):
    """The file of a tiny PaliGemma, its inputs, and big_vision's logits of the texts."""
    gemma, module = big_vision("ppp.gemma"), big_vision("proj.paligemma.paligemma")
    rng = np.random.default_rng(2)
    image, _ = batch()
    text = jnp.asarray(rng.integers(0, 60, (4, 11)), jnp.int32)
    is_answer = jnp.arange(11)[None] >= jnp.asarray([3, 5, 7, 8])[:, None]
    with pytest.MonkeyPatch.context() as patch, jax.numpy_rank_promotion("allow"):
        patch.setattr(gemma, "get_config", lambda variant: ConfigDict({"variant": variant} | GEMMA))
        tower = {"width": 24, "depth": 3, "num_heads": 4, "mlp_dim": 40, "patch_size": (8, 8)}
        model = module.Model(
            img={**tower, "pool_type": "none", "scan": True}, llm={"vocab_size": 60}
        )
        arguments = (image, text, is_answer.astype(jnp.int32))
        shapes = jax.eval_shape(model.init, jax.random.key(0), *arguments)["params"]
        params = jax.tree.map(lambda x: 0.2 * rng.standard_normal(x.shape, np.float32), shapes)
        logits = jax.jit(lambda params: model.apply({"params": params}, *arguments)[0])(params)
    path = tmp_path_factory.mktemp("paligemma") / "tiny.npz"
    np.savez(path, **{f"params/{name}": x for name, x in weights.flatten(params).items()})
    return path, (image, text, is_answer), np.asarray(logits)


def logits_of(path, inputs):
    sizes = weights.llava.read_sizes(path)
    model = plain_llava.build(sizes)
    shapes = jax.eval_shape(functools.partial(plain_llava.init, model), jax.random.key(0))
    params = weights.llava.load(path, sizes, shapes)
    image, text, is_answer = inputs
    ids = jnp.pad(text, ((0, 0), (IMAGE_TOKENS, 0)), constant_values=model.image_id)
    is_answer = jnp.pad(is_answer, ((0, 0), (IMAGE_TOKENS, 0)))
    apply = jax.jit(functools.partial(model.apply, method="text_logits"))
    logits = apply({"params": params}, image, ids, jnp.ones(ids.shape, bool), is_answer)
    return np.asarray(logits)[:, IMAGE_TOKENS:]


def test_logits_of_paligemma_are_those_of_big_vision(paligemma):
    path, inputs, expected = paligemma
    assert np.abs(expected).max() > 4
    np.testing.assert_allclose(logits_of(path, inputs), expected, atol=TOLERANCE)
