"""Position embeddings at another resolution or context."""

import jax
import numpy as np
import pytest
from scipy import interpolate, optimize

from vlc_jax.errors import WeightsError
from vlc_jax.weights import position


@pytest.mark.parametrize(("have", "want"), [(14, 24), (24, 14), (7, 16), (16, 7), (5, 5), (2, 9)])
def test_resampling_is_the_antialiased_bicubic_of_jax_image(have, want):
    grid = np.random.default_rng(0).normal(size=(have, have, 3)).astype(np.float32)
    expected = jax.image.resize(grid, (want, want, 3), "cubic", antialias=True)
    np.testing.assert_allclose(position.resample(grid, want), expected, atol=1e-5)  # float32 there


def test_plain_resampling_weighs_four_neighbours_at_any_scale():
    """Bicubic with a = -3/4 and without antialiasing, as torch resamples DINOv2's positions."""
    line = np.broadcast_to(np.arange(14.0)[:, None, None], (14, 14, 1)).astype(np.float32)
    shrunk = position.resample(line, 2, antialias=False)[:, 0, 0]
    np.testing.assert_allclose(shrunk, [3, 10], atol=1e-6)  # positions of the two outputs
    spike = np.zeros((14, 14, 1), np.float32)
    spike[3] = 1
    grown = position.resample(spike, 28, antialias=False)[:, 0, 0]
    weights = [0, -0.03515625, -0.10546875, 0.26171875, 0.87890625]  # 1.75 to .25 away
    np.testing.assert_allclose(grown[2:7], weights, atol=1e-6)
    ones = position.resample(np.ones((14, 14, 1), np.float32), 9, antialias=False)
    np.testing.assert_allclose(
        ones, 1, atol=1e-6
    )  # the pixel at the border stands for those beyond


def params(grid, extra, length):
    rng = np.random.default_rng(1)
    tables = {
        position.IMAGE: rng.normal(size=(grid**2 + extra, 4)).astype(np.float32),
        position.TEXT: rng.normal(size=(length, 4)).astype(np.float32),
    }
    return tables | ({"image/class_embedding": np.ones(4)} if extra else {})


@pytest.mark.parametrize(
    ("extra", "of"), [(0, ""), (1, "class_embedding"), (1, "pooling/query/kernel")]
)
def test_the_row_outside_the_grid_stays_and_texts_are_cut(extra, of):
    """Of a class token, or of the query of a ResNet's pooling."""
    before = params(4, 0, 9) | params(4, extra, 9)
    if of:
        before[f"image/{of}"] = before.pop("image/class_embedding")
    shapes = {position.IMAGE: (36 + extra, 4), position.TEXT: (5, 4)}
    after = position.fit(before, shapes, may_cut_text=True)
    assert {key: after[key].shape for key in shapes} == shapes
    np.testing.assert_array_equal(after[position.IMAGE][:extra], before[position.IMAGE][:extra])
    np.testing.assert_array_equal(after[position.TEXT], before[position.TEXT][:5])
    grid = before[position.IMAGE][extra:].reshape(4, 4, 4)
    np.testing.assert_array_equal(
        after[position.IMAGE][extra:].reshape(6, 6, 4), position.resample(grid, 6)
    )


def test_what_fits_is_left_alone():
    before = params(4, 1, 9)
    after = position.fit(before, {k: v.shape for k, v in before.items()}, may_cut_text=False)
    assert all(np.array_equal(after[key], before[key]) for key in before)


@pytest.mark.parametrize(
    ("length", "may_cut", "words"),
    [(12, True, "context_length=9 or less"), (5, False, "context_length=9$")],
)
def test_texts_are_not_stretched_nor_cut_where_all_tokens_are_read(length, may_cut, words):
    before = params(4, 1, 9)
    shapes = {position.IMAGE: (17, 4), position.TEXT: (length, 4)}
    with pytest.raises(WeightsError, match=words):
        position.fit(before, shapes, may_cut_text=may_cut)


def test_texts_are_stretched_as_by_long_clip():
    """Positions 20 and on are four apart, with three between; the last goes on as before."""
    table = np.random.default_rng(0).normal(size=(77, 3)).astype(np.float32)
    expected = [*table[:20]]
    for row in range(20, 77):
        here, step = table[row], table[min(row + 1, 76)] - table[min(row, 75)]
        expected += [here + part / 4 * step for part in range(4)]
    assert position.stretched_length(77) == len(expected) == 248
    before = {position.TEXT: table}
    after = position.fit(before, {position.TEXT: (248, 3)}, may_cut_text=True)
    np.testing.assert_allclose(after[position.TEXT], expected, atol=1e-6)
    for length, may_cut in ((247, True), (248, False)):
        with pytest.raises(WeightsError, match="tokens, the model 24"):
            position.fit(before, {position.TEXT: (length, 3)}, may_cut_text=may_cut)


def test_grids_that_are_not_square_are_refused():
    with pytest.raises(WeightsError, match="only square grids"):
        position.fit(
            params(4, 1, 9), {position.IMAGE: (13, 4), position.TEXT: (9, 4)}, may_cut_text=True
        )


@pytest.mark.parametrize(("window", "other"), [(7, 12), (12, 7)])
def test_biases_of_another_window_are_the_spline_of_beit_and_xvlm(window, other):
    """Old offsets in a geometric progression up to the new largest, cubic splines of scipy."""
    before, after = 2 * window - 1, 2 * other - 1
    table = np.random.default_rng(0).normal(size=(before**2, 2)).astype(np.float32)
    path = f"image/stage_1_block_0/{position.BIAS}"
    shapes = {path: (after**2, 2)}
    found = position.fit({path: table}, shapes, may_cut_text=False)[path].reshape(after, after, 2)
    ratio = 1.01  # where the authors' search for it begins
    if other > window:
        ratio = optimize.brentq(lambda q: sum(q**i for i in range(window - 1)) - other + 1, 1, 2)
    steps = np.cumsum(ratio ** np.arange(window - 1))
    places, offsets = [*-steps[::-1], 0.0, *steps], np.arange(1.0 - other, other)
    for head in range(2):
        grid = table[:, head].reshape(before, before)
        spline = interpolate.RectBivariateSpline(places, places, grid, s=0)
        np.testing.assert_allclose(found[..., head], spline(offsets, offsets), atol=2e-4)
    # transposed, or spread evenly, it is another table
    even = np.linspace(-other + 1, other - 1, before)
    spline = interpolate.RectBivariateSpline(even, even, grid, s=0)
    assert np.abs(found[..., 1] - spline(offsets, offsets)).max() > 0.1
    assert np.abs(found[..., 1].T - found[..., 1]).max() > 0.1


def test_biases_of_other_heads_or_of_no_grid_are_refused():
    path = f"image/stage_1_block_0/{position.BIAS}"
    for old, new in (((25, 2), (81, 4)), ((24, 2), (81, 2)), ((9, 2), (81, 2))):
        with pytest.raises(WeightsError, match="position_bias has shape"):
            position.fit({path: np.ones(old, np.float32)}, {path: new}, may_cut_text=False)
