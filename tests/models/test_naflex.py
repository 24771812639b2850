"""Image towers over pictures of any aspect ratio: grids, positions, masks, one training step."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import small_models
from vlc_jax import errors, models
from vlc_jax.input_pipeline.images.naflex import mosaic
from vlc_jax.models import naflex

PATCH, GRIDS = 2, [(3, 3), (1, 8), (4, 2), (9, 1)]
SIZES = {"width": 16, "depth": 2, "heads": 2, "mlp_width": 24}
IMAGE = {**SIZES, "image_size": 6, "patch_size": PATCH, "position_grid": 4}
TEXT = {**SIZES, "projection": 16, "vocab_size": 20, "context_length": 5, "eos_id": 1}


def build(name="clip", **image):
    return models.build(name, "SigLIP2-B/16-naflex", image={**IMAGE, **image}, text=TEXT)


@functools.cache
def parameters():
    return small_models.parameters(build(), 0.3)


def mosaics(side, grids=GRIDS):
    """Normalised pictures: the same for a grid, whatever the side of the mosaic."""
    pictures = []
    for rows, columns in grids:
        rng = np.random.default_rng(10 * rows + columns)
        shape = (rows * PATCH, columns * PATCH, 3)
        pictures.append(rng.integers(0, 256, shape, dtype=np.uint8))
    return np.stack([mosaic(x, PATCH, side) for x in pictures]).astype(np.float32) / 64 - 1.5


@functools.partial(jax.jit, static_argnums=0)
def encode(model, params, image):
    return model.apply({"params": params}, image, method="encode_image").pooled


@jax.jit
def read_grids(image):
    return naflex.grids(image, 9)


def test_grids_are_read_after_any_normalisation():
    image = mosaics(6) * np.array([0.2, 3.0, 1.0], np.float32) - 5
    found = jax.device_get(read_grids(image))
    np.testing.assert_array_equal(np.stack(found, axis=1), GRIDS)
    noise = np.random.default_rng(0).normal(0, 50, image.shape).astype(np.float32)
    noise[0] = noise[0, 0, 0]
    rows, columns = jax.device_get(read_grids(noise))
    assert (rows[0], columns[0]) == (1, 1)
    assert min(rows.min(), columns.min()) >= 1
    assert (rows * columns).max() <= 9


def resampled(old, new):
    """Weights (new, old) by the loop of torch's upsample_bilinear2d_aa."""
    weights, scale = np.zeros((new, old)), old / new
    support = max(scale, 1.0)
    for i in range(new):
        centre = scale * (i + 0.5)
        first, last = max(int(centre - support + 0.5), 0), min(int(centre + support + 0.5), old)
        for j in range(first, last):
            weights[i, j] = max(0.0, 1 - abs((j - centre + 0.5) / support))
        weights[i] /= weights[i].sum()
    return weights


def test_positions_are_those_of_torchs_loop():
    table = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
    sizes = [(4, 4), (2, 8), (7, 2), (1, 16), (3, 5), (1, 3)]
    grids = naflex.Grids(*map(jax.device_put, np.array(sizes, np.int32).T))
    positions = jax.jit(naflex.positions, static_argnums=2)
    found = np.asarray(positions(jax.device_put(table), grids, 16))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[0], table, atol=1e-6)
    grid = table.reshape(4, 4, 3)
    for (height, width), ours in zip(sizes, found, strict=True):
        of_rows, of_columns = resampled(4, height), resampled(4, width)
        wanted = np.einsum("ir,jc,rcw->ijw", of_rows, of_columns, grid).reshape(-1, 3)
        np.testing.assert_allclose(ours[: height * width], wanted, atol=2e-6)


def test_padding_and_other_images_change_no_embedding():
    model, params, image = build(), parameters(), mosaics(6)
    found = encode(model, params, image)
    assert np.abs(found[0] - found[1]).max() > 1e-2
    larger = encode(build(image_size=8), params, mosaics(8))
    np.testing.assert_allclose(larger, found, atol=2e-6)
    np.testing.assert_allclose(encode(model, params, image[::-1]), found[::-1], atol=2e-6)
    changed = image.copy()
    changed[1, 5:, 4:] = 7.0  # the ninth patch, where the image has eight
    np.testing.assert_array_equal(encode(model, params, changed), found)
    changed[0, 5:, 4:] = 7.0
    assert np.abs(encode(model, params, changed)[0] - found[0]).max() > 1e-3


def test_a_square_is_embedded_as_by_a_tower_of_squares():
    picture, params = mosaics(8, [(4, 4)]), parameters()
    squares = build(position_grid=None, image_size=8)
    wanted = encode(squares, params, picture[:, 1:])
    found = encode(build(image_size=8), params, picture)
    np.testing.assert_allclose(found, wanted, atol=2e-6)


def test_a_step_lowers_the_loss_with_finite_gradients():
    model, image = build(), mosaics(6)
    image[3] = image[3, 0, 0]  # a blank row that fills the batch
    texts = np.random.default_rng(0).integers(2, 20, (4, 5)).astype(np.int32)

    def loss(params, batch):
        out = model.apply({"params": params}, batch)
        logits = out.logit_scale * out.scores + out.logit_bias
        return -jax.nn.log_sigmoid(logits * (2 * jnp.eye(4) - 1)).sum()

    @jax.jit
    def step(params, batch):
        value, gradient = jax.value_and_grad(loss)(params, batch)
        moved = jax.tree.map(lambda p, g: p - 1e-4 * g, params, gradient)
        return value, gradient, loss(moved, batch)

    batch = {"image": image, "text": texts}
    before, gradient, after = jax.device_get(step(parameters(), batch))
    assert after < before
    for path, array in jax.tree.leaves_with_path(gradient):
        assert np.isfinite(array).all(), path
        assert np.abs(array).max() > 0, path


@pytest.mark.parametrize("name", ["pacl", "sparc", "dcsm"])
def test_heads_that_read_patches_are_refused(name):
    model = build(name)
    with pytest.raises(errors.UsageError, match="heads and maps that read patches need"):
        jax.eval_shape(lambda: models.init(model, jax.random.key(0)))


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ({"image_size": 7}, "multiple of patch_size; got 7 and 2"),
        ({"pooling": "mean"}, "has pooling='map'; got 'mean'"),
        ({"class_token": True}, "has class_token=False; got True"),
        ({"rope": "qk_2d"}, "has rope='none'; got 'qk_2d'"),
    ],
)
def test_what_a_naflex_tower_does_not_have_is_refused(image, message):
    with pytest.raises(errors.UsageError, match=message):
        build(**image)


def test_pixels_without_the_row_of_the_grid_are_refused():
    with pytest.raises(errors.UsageError, match=r"shape \(7, 6, 3\), got \(6, 6, 3\)"):
        jax.eval_shape(functools.partial(encode, build()), parameters(), mosaics(6)[:, 1:])
