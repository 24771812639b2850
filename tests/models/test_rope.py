"""Rotary embedding: what it leaves alone, what it depends on, and complex numbers as its oracle."""

import jax
import numpy as np
import pytest

from vlc_jax.models import rope

rotate = jax.jit(rope.rotate)
rotate_features = jax.jit(rope.rotate_features, static_argnums=(1, 2, 3))


@pytest.fixture
def x():
    """(batch, 1 + 3 x 3 tokens, heads, features)."""
    return np.random.default_rng(0).normal(size=(2, 10, 3, 8)).astype(np.float32)


@pytest.fixture
def rotation():
    return rope.table(rope.grid_angles(3, 4), num_prefix_tokens=1)


def test_pairs_are_complex_numbers_times_a_phase(x, rotation):
    features = np.asarray(x, np.float64).view(complex)
    positions = [(row, column) for row in range(3) for column in range(3)]
    expected = features.copy()
    for token, (row, column) in enumerate(positions, start=1):
        phase = np.array([row, row / 100, column, column / 100])  # 10,000 ** (0, -1/2)
        expected[:, token] = features[:, token] * np.exp(1j * phase)
    np.testing.assert_allclose(rotate(x, rotation), expected.view(float), atol=1e-5)


def test_lengths_and_the_class_token_stay(x, rotation):
    turned = np.asarray(rotate(x, rotation))
    np.testing.assert_array_equal(turned[:, 0], x[:, 0])
    assert np.all(np.abs(turned - x).max(axis=(0, 2, 3))[2:] > 0.1)  # token 1 is at the origin
    lengths = [np.linalg.norm(y, axis=-1) for y in (turned, x)]
    np.testing.assert_allclose(*lengths, rtol=1e-5)


def test_a_score_depends_on_the_difference_of_positions_only():
    grid = 5
    query, key = np.random.default_rng(1).normal(size=(2, 8)).astype(np.float32)
    rotation = rope.table(rope.grid_angles(grid, 4))
    both = np.broadcast_to([[query], [key]], (2, grid**2, 8))
    turned = np.asarray(rotate(both, rotation))
    scores = (turned[0] @ turned[1].T).reshape(grid, grid, grid, grid)
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
    positions = np.array([7, 0])
    picked = jax.jit(rope.at)(rotation, positions)
    whole = np.asarray(rotate(x, rotation))
    for index, position in enumerate(positions):
        part = np.asarray(rotate(x[:, position][:, None], picked))
        np.testing.assert_array_equal(part[index, 0], whole[index, position])


def test_features_without_heads_turn_alike(x, rotation):
    turned = np.asarray(rotate(x, rotation))
    np.testing.assert_array_equal(rotate(x[:, :, 1], rotation), turned[:, :, 1])


def test_an_odd_number_of_pairs_is_refused():
    with pytest.raises(ValueError, match="even number of pairs, got 3"):
        rope.grid_angles(2, 3)


def complex_pairs(x, layout):
    """The pairs of features as complex numbers."""
    x = np.asarray(x, np.float64)
    if layout == "halves":
        return x[..., : x.shape[-1] // 2] + 1j * x[..., x.shape[-1] // 2 :]
    return x[..., ::2] + 1j * x[..., 1::2]


@pytest.mark.parametrize("layout", rope.LAYOUTS)
@pytest.mark.parametrize("positions", ["feature_1d", "feature_2d"])
def test_features_are_turned_by_the_place_of_their_token(layout, positions):
    x = np.random.default_rng(0).normal(size=(2, 9, 8)).astype("f4")
    turned = complex_pairs(x, layout)
    for token in range(9):
        if positions == "feature_1d":
            phase = token * 100.0 ** -np.array([0, 2 / 8, 4 / 8, 6 / 8])  # base**(-2k / width)
        else:
            row, column = divmod(token, 3)
            phase = np.array([row, row / 10, column, column / 10])
        turned[:, token] *= np.exp(1j * phase)
    parts = [turned.real, turned.imag]
    if layout == "interleaved":
        expected = np.stack(parts, axis=-1).reshape(x.shape)
    else:
        expected = np.concatenate(parts, axis=-1)
    found = rotate_features(x, positions, 100.0, layout)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_authors_features_leave_the_first_patch_unturned():
    x = np.random.default_rng(0).normal(size=(1, 5, 6)).astype("f4")
    found = np.asarray(rotate_features(x, "feature_1d"))
    np.testing.assert_array_equal(found[0, 0], x[0, 0, [0, 2, 4, 1, 3, 5]])
    lengths = [np.linalg.norm(y, axis=-1) for y in (found, x)]
    np.testing.assert_allclose(*lengths, rtol=1e-6)
    assert np.abs(found[0, 1] - x[0, 1, [0, 2, 4, 1, 3, 5]]).max() > 0.1


@pytest.mark.parametrize("layout", rope.LAYOUTS)
def test_a_score_in_a_line_depends_on_the_difference_of_places(layout):
    query, key = np.random.default_rng(1).normal(size=(2, 8)).astype(np.float32)
    rotation = rope.table(rope.line_angles(6, 4), layout=layout)
    turned = np.asarray(rotate(np.broadcast_to([[query], [key]], (2, 6, 8)), rotation))
    scores = turned[0] @ turned[1].T
    diagonals = [np.diagonal(scores, offset) for offset in range(-5, 6)]
    assert max(np.ptp(diagonal) for diagonal in diagonals) < 1e-5
    assert np.diff(np.sort([diagonal[0] for diagonal in diagonals])).min() > 1e-4


def test_an_unknown_layout_is_refused():
    with pytest.raises(ValueError, match="got 'pairs'"):
        rope.table(rope.line_angles(2, 2), layout="pairs")
    with pytest.raises(ValueError, match="got 'qk_1d'"):
        rotate_features(np.zeros((1, 4, 4), np.float32), "qk_1d")
