"""Layers of DCSM's network: convolutions and dropout over many maps, the last axis."""

import itertools
import math
import re
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Array, Float


def convolved(
    x: Float[Array, "channels height width maps"], kernel: Float[Array, "out channels 3 3"]
) -> Float[Array, "out height width maps"]:
    """A 3 x 3 convolution, stride 1, zero padding of 1, as torch.nn.Conv2d."""
    axes = ("CHWN", "OIHW", "CHWN")
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=axes, precision="highest"
    )


def multiplied(
    x: Float[Array, "channels height width maps"], kernel: Float[Array, "out channels 3 3"]
) -> Float[Array, "out height width maps"]:
    """`convolved` for many channels: on CPU as a matrix product with the nine shifts of the input.

    XLA's CPU convolution (jax 0.10) takes 6 times as long inside a loop, and heads.map_chunks is
    one. Other platforms use XLA's convolution.
    """
    return jax.lax.platform_dependent(x, kernel, cpu=_product, default=convolved)


def _product(x: Array, kernel: Array) -> Array:
    height, width = x.shape[1:3]
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifts = [padded[:, i : i + height, j : j + width] for i, j in np.ndindex(3, 3)]
    kernel = kernel.reshape(*kernel.shape[:2], 9)
    return jnp.einsum("ocs,schwm->ohwm", kernel, jnp.stack(shifts), precision="highest")


@jax.custom_vjp
# outside a jitted step, its many small operations would be compiled one by one
@jax.jit
def shifted(
    x: Float[Array, "channels height width maps"], kernel: Float[Array, "out channels 3 3"]
) -> Float[Array, "out height width maps"]:
    """`convolved` for few channels: on CPU as a sum over the nine shifts of each channel.

    With 1 or 4 channels XLA's CPU convolution (jax 0.10) takes 6 times as long. Other platforms use
    XLA's convolution; the shifts were not timed there.
    """
    return jax.lax.platform_dependent(x, kernel, cpu=_sum_of_shifts, default=convolved)


def _sum_of_shifts(x: Array, kernel: Array) -> Array:
    height, width = x.shape[1:3]
    # the barrier keeps XLA from padding again for each shift
    padded = jax.lax.optimization_barrier(jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))))
    y = jnp.zeros(())
    for channel, row, column in np.ndindex(len(x), 3, 3):
        part = padded[channel, row : row + height, column : column + width]
        y += kernel[:, channel, row, column][:, None, None, None] * part[None]
    return y


def _shifted_forward(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return shifted(x, kernel), (x, kernel)


def _shifted_backward(saved: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    x, kernel = saved
    x_gradient = shifted(gradient, jnp.swapaxes(kernel, 0, 1)[:, :, ::-1, ::-1])
    kernel_gradient = jax.lax.platform_dependent(
        x, gradient, cpu=_kernel_gradient_by_rows, default=_kernel_gradient
    )
    return x_gradient, kernel_gradient


shifted.defvjp(_shifted_forward, _shifted_backward)


def _kernel_gradient(
    x: Float[Array, "channels height width maps"], gradient: Float[Array, "out height width maps"]
) -> Float[Array, "out channels 3 3"]:
    return jax.linear_transpose(
        lambda kernel: convolved(x, kernel), jnp.zeros((len(gradient), len(x), 3, 3))
    )(gradient)[0]


def _kernel_gradient_by_rows(
    x: Float[Array, "channels height width maps"], gradient: Float[Array, "out height width maps"]
) -> Float[Array, "out channels 3 3"]:
    """`_kernel_gradient`, by rows of the map: nine shifts of one row fit the CPU's cache."""
    channels, height, width = x.shape[:3]
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))

    def add(total: Array, row: Array) -> tuple[Array, None]:
        rows = jax.lax.dynamic_slice_in_dim(padded, row, 3, axis=1)
        shifts = [rows[c, i, j : j + width].ravel() for c, i, j in np.ndindex(channels, 3, 3)]
        row_gradient = jax.lax.dynamic_index_in_dim(gradient, row, axis=1, keepdims=False)
        return total + jnp.einsum(
            "om,sm->os",
            row_gradient.reshape(len(row_gradient), -1),
            jnp.stack(shifts),
            precision="highest",
        ), None

    total = jax.lax.scan(add, jnp.zeros((len(gradient), 9 * channels)), jnp.arange(height))[0]
    return total.reshape(-1, channels, 3, 3)


def score(
    net: Mapping[str, Array],
    x: Float[Array, "patches length maps"],
    layout: str,
    rate: float,
    keys: jax.Array | None,
) -> Float[Array, "maps 1"]:
    """The output of the network for standardised maps.

    net: of `parameters`, whose names tell its layers.   rate, keys: of dropout, a key per map; None
    for none.
    """
    # keys per map: two convolutions, two hidden layers, the score
    drop = [None] * 5
    if keys is not None:
        drop = list(jax.vmap(lambda key: jax.random.split(key, 5), out_axes=1)(keys))
    if "conv_0" in net:
        x, convolve = (grid(x), multiplied) if layout == "grid" else (x[None], shifted)
        for name, layer_keys in zip(("conv_0", "conv_1"), drop[:2], strict=True):
            x = jax.nn.relu(convolve(x, net[name]) + net[f"{name}_bias"][:, None, None, None])
            x = dropout(x, rate, layer_keys, (len(x), 1, 1))
    x = x.reshape(-1, x.shape[-1]).T
    *inner, last = (name for name in net if re.fullmatch(r"dense_\d", name))
    for name, layer_keys in zip(inner, drop[2:], strict=False):
        x = jax.nn.relu(x @ net[name] + net[f"{name}_bias"][None])
        x = dropout(x, rate, layer_keys, x.shape[1:], maps=0)
    x = x @ net[last] + net[f"{last}_bias"][None]
    return dropout(x, rate, drop[4], x.shape[1:], maps=0)


def grid(maps: Float[Array, "patches length maps"]) -> Float[Array, "length side side maps"]:
    """Maps as images of a channel per text token."""
    side = math.isqrt(len(maps))
    return jnp.swapaxes(maps, 0, 1).reshape(maps.shape[1], side, side, -1)


def dropout(
    x: Float[Array, "*axes"],
    rate: float,
    keys: jax.Array | None,
    shape: tuple[int, ...],
    maps: int = -1,
) -> Float[Array, "*axes"]:
    """Dropout with a key per map and one draw per entry of `shape`.

    maps: the axis of maps, not part of `shape`.
    """
    if keys is None:
        return x
    draw = jax.vmap(lambda key: jax.random.bernoulli(key, 1 - rate, shape), out_axes=maps)
    return jnp.where(draw(keys), x / (1 - rate), 0)


def parameters(
    network: str, layout: str, patches: int, length: int, hidden: int
) -> dict[str, tuple[nn.initializers.Initializer, tuple[int, ...]]]:
    """Parameter name -> initialiser (torch's default) and shape, in the order of use."""
    cells, shapes = patches * length, {}
    if network == "cnn":
        inputs, channels = (1, hidden // 32) if layout == "flat" else (length, hidden // 4)
        shapes |= {"conv_0": (channels, inputs, 3, 3), "conv_1": (channels, channels, 3, 3)}
        flat = channels * (cells if layout == "flat" else patches)
        widths = (flat, hidden, 1)
    else:
        widths = (cells, hidden // 2, hidden // 4, 1)
    shapes |= {f"dense_{i}": pair for i, pair in enumerate(itertools.pairwise(widths))}
    initialised = {}
    for name, shape in shapes.items():
        is_conv = len(shape) == 4
        init = _uniform(math.prod(shape[1:]) if is_conv else shape[0])
        initialised[name] = (init, shape)
        initialised[f"{name}_bias"] = (init, (shape[0] if is_conv else shape[1],))
    return initialised


def _uniform(fan_in: int) -> nn.initializers.Initializer:
    bound = fan_in**-0.5
    return lambda key, shape: jax.random.uniform(key, shape, minval=-bound, maxval=bound)
