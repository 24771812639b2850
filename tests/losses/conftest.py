"""Random embeddings, meshes and the three implementations of each loss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.fixture
def arrays():
    """24 examples, the last 5 of them padding."""
    rng = np.random.default_rng(0)
    return {
        "image": jnp.asarray(unit(rng.normal(size=(24, 6))), jnp.float32),
        "text": jnp.asarray(unit(rng.normal(size=(24, 6))), jnp.float32),
        "logit_scale": jnp.float32(7.0),
        "logit_bias": jnp.float32(-3.0),
        "mask": jnp.arange(24) < 19,
    }


@pytest.fixture
def make_mesh():
    def make(data, fsdp):
        axes = ("data", "fsdp")
        devices = jax.devices()[: data * fsdp]
        return jax.make_mesh((data, fsdp), axes, (AxisType.Auto,) * 2, devices=devices)

    return make


@pytest.fixture
def value_and_gradient():
    """A differently weighted sum of per-example losses, and its gradients by every real input."""
    weights = jnp.linspace(0.5, 1.5, 24)

    def make(loss):
        def weighted(inputs, mask):
            return jnp.sum(weights * loss(**inputs, mask=mask))

        def call(arrays):
            inputs = {k: v for k, v in arrays.items() if k != "mask"}
            return jax.jit(jax.value_and_grad(weighted))(inputs, arrays["mask"])

        return call

    return make
