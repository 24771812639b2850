"""Swin Transformer: what a token attends to, and what becomes of four tokens between stages."""

import jax
import numpy as np
import pytest

from vlc_jax.models import swin


@pytest.mark.parametrize("shift", [0, 2])
def test_tokens_attend_inside_their_window(shift):
    grid, window, width = 8, 4, 4
    block = swin.Block(2, window, shift, "gelu", 1e-5)
    x = jax.random.normal(jax.random.key(0), (1, grid**2, width))
    params = jax.jit(block.init)(jax.random.key(1), x)
    influence = jax.jit(jax.jacobian(lambda x: block.apply(params, x)[0, :, 0]))(x)
    attends = np.abs(influence[:, 0]).max(axis=-1) > 0
    band = (np.arange(grid) + (window - shift) % window) // window  # a shift cuts the outer bands
    ids = (3 * band[:, None] + band[None]).ravel()
    np.testing.assert_array_equal(attends, ids[:, None] == ids[None])


def test_the_bias_of_a_pair_is_that_of_its_rows_and_columns():
    window = 3
    found = swin.relative_positions(window)
    places = [divmod(i, window) for i in range(window**2)]
    offsets = {}
    for i, (row, column) in enumerate(places):
        for j, (other_row, other_column) in enumerate(places):
            pair = row - other_row, column - other_column
            assert offsets.setdefault(pair, found[i, j]) == found[i, j]
    assert sorted(offsets.values()) == [*range(25)]
