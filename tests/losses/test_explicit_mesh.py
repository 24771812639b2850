"""Under a mesh with explicit axis types every loss gives the values and gradients of one device."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType

from tests.losses import conftest, oracle
from vlc_jax import losses, types

pytestmark = pytest.mark.devices

OPTIONS = {
    "dense": {},
    "chunked": {"implementation": "chunked", "chunk": 5},
    "ring": {"implementation": "ring"},
}


def outputs(batch):
    """Of a model; two tokens per caption with groups of patches, some of them padding."""
    text = types.TextFeatures(
        *(batch["text"], batch["negative"][:, :2], batch["positive_mask"]),
        ids=batch["tokens"][:, :2],
    )
    found = conftest.outputs(batch)
    # below 0 as log probabilities are, without which the captioning loss would be nearly 0
    own_scores = found.own_scores - 1
    return found._replace(text=text, token_groups=batch["positive"], own_scores=own_scores)


def value_and_gradient(name, options):
    config = {name: {"weight": 1.0, "duplicates": "mask", **options}}

    def value(outputs, batch):
        return losses.total(config, outputs, batch)[0]

    return jax.jit(jax.value_and_grad(value, allow_int=True))  # a padding mask is bool


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in losses.LOSSES if name not in oracle.LOCAL])
def test_a_loss_under_an_explicit_mesh_equals_the_plain_one(repeated, name):
    given = jax.jit(outputs)(repeated), conftest.contract(repeated)
    mesh = jax.make_mesh((4, 2), ("data", "fsdp"), (AxisType.Explicit,) * 2)
    rows = jax.sharding.NamedSharding(mesh, jax.P(("data", "fsdp")))
    sharded = jax.tree.map(lambda x: jax.device_put(x, rows) if np.size(x) > 3 else x, given)

    @functools.cache
    def plain(implementation):
        return value_and_gradient(name, OPTIONS[implementation])(*given)

    for implementation in losses.LOSSES[name].implementations:
        with jax.set_mesh(mesh):
            found = value_and_gradient(name, OPTIONS[implementation])(*sharded)
        assert found[1].image.pooled.sharding.spec[0] == ("data", "fsdp")
        # chunked and ring have slopes by embeddings, dense by scores
        expected = plain("dense" if implementation == "dense" else "chunked")
        assert expected[0] > 0.1
        jax.tree.map(assert_close, found, expected)


def assert_close(found, expected):
    if jnp.issubdtype(expected.dtype, jnp.floating):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)
