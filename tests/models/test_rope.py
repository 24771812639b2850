"""Rotary embedding: what it leaves alone, what it depends on, and complex numbers as its oracle."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vlc_jax.models import rope


@pytest.fixture
def x():
    """(batch, 1 + 3 x 3 tokens, heads, features)."""
    return jax.random.normal(jax.random.key(0), (2, 10, 3, 8))


@pytest.fixture
def rotation():
    return rope.table(rope.grid_angles(3, 4), unturned=1)


def test_pairs_are_complex_numbers_times_a_phase(x, rotation):
    features = np.asarray(x, np.float64).view(complex)
    positions = [(row, column) for row in range(3) for column in range(3)]
    expected = features.copy()
    for token, (row, column) in enumerate(positions, start=1):
        phase = np.array([row, row / 100, column, column / 100])  # 10,000 ** (0, -1/2)
        expected[:, token] = features[:, token] * np.exp(1j * phase)
    np.testing.assert_allclose(rope.rotate(x, rotation), expected.view(float), atol=1e-5)


def test_lengths_and_the_class_token_stay(x, rotation):
    turned = rope.rotate(x, rotation)
    np.testing.assert_array_equal(turned[:, 0], x[:, 0])
    assert np.all(np.abs(turned - x).max(axis=(0, 2, 3))[2:] > 0.1)  # token 1 is at the origin
    lengths = [jnp.linalg.norm(y, axis=-1) for y in (turned, x)]
    np.testing.assert_allclose(*lengths, rtol=1e-5)


def test_a_score_depends_on_the_difference_of_positions_only():
    grid = 5
    query, key = jax.random.normal(jax.random.key(1), (2, 8))
    rotation = rope.table(rope.grid_angles(grid, 4))
    turned = [rope.rotate(jnp.broadcast_to(y, (1, grid**2, 8)), rotation)[0] for y in (query, key)]
    scores = np.asarray(turned[0] @ turned[1].T).reshape(grid, grid, grid, grid)
    found = {}
    for (a, b, c, d), score in np.ndenumerate(scores):
        found.setdefault((c - a, d - b), []).append(score)
    assert len(found) == 9 * 9
    assert max(np.ptp(same) for same in found.values()) < 1e-5
    values = np.sort([same[0] for same in found.values()])
    assert np.diff(values).min() > 1e-5  # and it does depend on it, row and column apart


def test_the_span_stretches_the_grid():
    np.testing.assert_allclose(rope.grid_angles(4, 4, span=2), rope.grid_angles(4, 4) / 2)
    np.testing.assert_allclose(
        rope.grid_angles(4, 4, span=2).reshape(4, 4, 4)[::2, ::2].reshape(4, 4),
        rope.grid_angles(2, 4),
    )


def test_rows_of_a_table(x, rotation):
    positions = jnp.array([7, 0])
    picked = rope.at(rotation, positions)
    whole = rope.rotate(x, rotation)
    for index, position in enumerate(positions):
        part = rope.rotate(x[:, position][:, None], picked)[index, 0]
        np.testing.assert_array_equal(part, whole[index, position])


def test_features_without_heads_turn_alike(x, rotation):
    np.testing.assert_array_equal(
        rope.rotate(x[:, :, 1], rotation), rope.rotate(x, rotation)[:, :, 1]
    )


def test_an_odd_number_of_pairs_is_refused():
    with pytest.raises(ValueError, match="even number of pairs, got 3"):
        rope.grid_angles(2, 3)
