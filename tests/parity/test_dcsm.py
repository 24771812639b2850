"""DCSM's head from an archive of torch: scores and gradients are those of torch's network."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vlc_jax import models, types
from vlc_jax.losses import infonce, masks
from vlc_jax.weights import dcsm

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("network", "rows"), [("cnn", "replace"), ("cnn", "insert"),
                                               ("mlp", "replace")])  # fmt: skip
def test_scores_and_gradients_are_those_of_torch(there, tmp_path, network, rows):
    there("dcsm_reference.py", network, rows, tmp_path)
    with np.load(tmp_path / "io.npz") as saved:
        io = dict(saved)
    head = models.HEADS["dcsm"](197, 30, network=network, functional_words=rows)
    pooled = np.zeros((2, 512), np.float32)
    image = types.ImageFeatures(pooled, io["image"])
    text = types.TextFeatures(pooled, io["text"], None, io["marks"])
    image, text = jax.device_put((image, text))

    def score(module, image, text):
        return module.score(module.image(image), module.text(text), is_training=True)

    def loss(params, vectors):
        params = {**params, "functional_words": vectors}
        scores = head.apply({"params": params}, image, text, method=score)
        pair_masks = masks.pair_masks({"mask": jnp.ones(2, bool)})
        return 2 * infonce.dense(scores, jnp.ones(()), pair_masks).mean(), scores

    def init(key):
        return head.init(key, image, text, method=score)["params"]

    shapes = jax.eval_shape(init, jax.random.key(0))
    params, words = dcsm.load(tmp_path / "dcsm.pt", shapes)
    assert words is None
    params = jax.device_put(params)
    # the authors' optimizer leaves the vectors alone
    vectors = params.pop("functional_words")
    (value, scores), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params, vectors)
    np.testing.assert_allclose(scores, io["scores"], atol=2e-5)
    assert np.ptp(io["scores"]) > 1e-3
    np.testing.assert_allclose(value, io["loss"], rtol=1e-5)
    names = [name for name in io if name.startswith("gradient/")]
    assert len(names) == len(gradient)
    for name in names:
        layer, _, kind = name.removeprefix("gradient/").partition(".")
        ours = {"conv": "conv", "fc": "dense"}[layer[:-1]] + f"_{int(layer[-1]) - 1}"
        found = np.asarray(gradient[ours + ("_bias" if kind == "bias" else "")])
        expected = io[name].T if "dense" in ours and kind == "weight" else io[name]
        np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-4, err_msg=name)
