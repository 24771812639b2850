"""CLIP's ResNets: statistics of batch norm, tokens, and the resolution that they need."""

import jax
import jax.numpy as jnp
import numpy as np

from tests.models.conftest import encode, make
from tests.support.training import optimizer_of
from vlc_jax import weights


def test_training_changes_all_but_the_statistics_of_batch_norm():
    model, params, batch = make("resnet")
    steps = optimizer_of(params, learning_rate=lambda _: 1e-2)

    def stepped(params):
        def loss(params):
            pooled = model.apply({"params": params}, batch["image"], method="encode_image").pooled
            return jnp.sum(pooled * jnp.arange(32.0).reshape(4, 8))

        updates, _ = steps.update(jax.grad(loss)(params), steps.init(params), params)
        return jax.tree.map(jnp.add, params, updates)

    before = weights.flatten(params["image"])
    after = weights.flatten(jax.device_get(jax.jit(stepped)(params))["image"])
    for path, value in before.items():
        is_statistic = path.endswith(("/mean", "/variance"))
        assert np.array_equal(after[path], value) == is_statistic, path


def test_projected_tokens_are_projections_of_their_values():
    model, params, batch = make("resnet")
    raw, found = (
        np.asarray(encode(model, params, "image", batch["image"], tokens=tokens).tokens)
        for tokens in ("raw", "projected")
    )
    assert raw.shape == (4, 4, 128)
    params = jax.device_get(params["image"])
    key_value, projection = params["pooling"]["key_value"], params["projection"]
    values = raw @ key_value["kernel"][:, 128:] + key_value["bias"][128:]
    expected = values @ projection["kernel"] + projection["bias"]
    expected /= np.linalg.norm(expected, axis=-1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=1e-5)
