"""The layers of DCSM's network against those of XLA."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vlc_jax.models import map_network

# Compilation is most of the time of these tests.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@pytest.mark.parametrize("channels", [1, 4])
def test_a_sum_of_shifts_is_the_convolution_in_value_and_gradient(channels):
    rng = np.random.default_rng(0)
    x, kernel, weights = (
        jnp.asarray(rng.normal(size=shape), jnp.float32)
        for shape in ((channels, 7, 5, 6), (4, channels, 3, 3), (4, 7, 5, 6))
    )

    def value(convolve):
        def weighed(x, kernel):
            y = convolve(x, kernel)
            return jnp.sum(weights * y), y

        return jit(jax.grad(weighed, argnums=(0, 1), has_aux=True))(x, kernel)

    (of_x, of_kernel), y = value(map_network.convolved)
    (same_x, same_kernel), same = value(map_network.shifted)
    np.testing.assert_allclose(same, y, atol=1e-5)
    np.testing.assert_allclose(same_x, of_x, atol=1e-5)
    np.testing.assert_allclose(same_kernel, of_kernel, rtol=1e-5, atol=1e-4)
    elsewhere = map_network._kernel_gradient(x, weights)  # what other devices compute
    np.testing.assert_allclose(elsewhere, of_kernel, rtol=1e-5, atol=1e-4)
