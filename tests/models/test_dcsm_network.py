"""The layers of DCSM's network against those of XLA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vlc_jax.models import dcsm_network


@pytest.mark.parametrize(
    ("name", "channels"), [("shifted", 1), ("shifted", 4), ("multiplied", 4), ("multiplied", 20)]
)
def test_every_way_to_compute_it_is_the_convolution(name, channels):
    (of_x, of_kernel), y = value(dcsm_network.convolved, *drawn(channels))
    (same_x, same_kernel), same = value(getattr(dcsm_network, name), *drawn(channels))
    np.testing.assert_allclose(same, y, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(same_x, of_x, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(same_kernel, of_kernel, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("channels", [1, 4])
def test_the_gradient_of_a_kernel_on_other_devices_is_the_same(channels):
    x, kernel, weights = drawn(channels)
    (_, of_kernel), _ = value(dcsm_network.convolved, x, kernel, weights)
    elsewhere = jax.jit(dcsm_network._kernel_gradient)(x, weights)
    np.testing.assert_allclose(elsewhere, of_kernel, rtol=1e-5, atol=1e-4)


def drawn(channels):
    """Maps, a kernel, and weights of what comes out."""
    rng = np.random.default_rng(0)
    shapes = (channels, 7, 5, 6), (4, channels, 3, 3), (4, 7, 5, 6)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def value(convolve, x, kernel, weights):
    """Gradients of the weighed sum, and what comes out."""

    def weighed(x, kernel):
        y = convolve(x, kernel)
        return jnp.sum(weights * y), y

    return jax.jit(jax.grad(weighed, argnums=(0, 1), has_aux=True))(x, kernel)
