"""CLIP's ResNets: statistics of batch norm, tokens, and the resolution that they need."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vlc_jax import errors, types, weights
from vlc_jax.setup import optimizer


def test_a_step_of_training_changes_all_but_the_statistics_of_batch_norm(make, compiled):
    model, params, batch = make("resnet")
    steps = optimizer.make(params, lambda _: 1e-2, optimizer.AdamW(0.1, clip_norm=1.0))

    def stepped(params):
        def loss(params):
            pooled = model.apply({"params": params}, batch["image"], method="encode_image").pooled
            return jnp.sum(pooled * jnp.arange(32.0).reshape(4, 8))

        updates, _ = steps.update(jax.grad(loss)(params), steps.init(params), params)
        return jax.tree.map(jnp.add, params, updates)

    before = weights.flatten(params["image"])
    after = weights.flatten(jax.device_get(compiled(stepped)(params))["image"])
    for path, value in before.items():
        is_statistic = path.endswith(("/mean", "/variance"))
        assert np.array_equal(after[path], value) == is_statistic, path


def test_projected_tokens_are_projections_of_the_value_of_each_feature(make, encode):
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


def test_remat_recomputes_every_block(make):
    def blocks(**options):
        model, params, batch = make("resnet", **options)
        image = {"image": params["image"]}
        encode = functools.partial(model.apply, method="encode_image")
        return str(jax.make_jaxpr(encode)({"params": image}, batch["image"])).count("remat2[")

    assert (blocks(), blocks(remat="block")) == (0, 4)


def test_images_of_another_size_are_refused(make):
    model, params, _ = make("resnet")
    image = jnp.zeros((1, 96, 96, 3))
    with pytest.raises(errors.UsageError, match=r"shape \(64, 64, 3\), got \(96, 96, 3\)"):
        model.apply({"params": params}, image, types.POOLED_ONLY, method=lambda m, *x: m.image(*x))
