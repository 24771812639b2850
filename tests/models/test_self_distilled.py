"""The model self_distilled: crops and masked patches of images, and projections of both."""

import math
from functools import partial

import jax
import numpy as np
import pytest

from tests.support import small_models
from tests.support.compilations import apply
from vlc_jax import errors, models
from vlc_jax.models import vit

SMALL = {"width": 16, "heads": 2, "depth": 1, "mlp_width": 24, "projection": 8}
TEXT = {**SMALL, "vocab_size": 30, "context_length": 7, "eos_id": 2}
HEAD = {"prototypes": 5, "hidden": 6, "bottleneck": 4}
ROWS, MASKED = 3, np.array([[0, 2, 3], [1, 2, 8], [4, 5, 6]], np.int32)


def build(size=12, name="self_distilled", head=HEAD, **tower):
    image = {**SMALL, "image_size": size, "patch_size": 4, **tower}
    return models.build(name, "B/32", head=head, image=image, text=TEXT)


def random_params(model, seed=0):
    return small_models.parameters(model, 0.5, seed=seed)


@pytest.fixture(scope="module")
def start():
    """A model of nine patches, its parameters, and a batch with two crops of four patches."""
    model, rng = build(), np.random.default_rng(1)
    batch = {
        "image": rng.normal(size=(ROWS, 12, 12, 3)).astype(np.float32),
        "text": rng.integers(3, 30, (ROWS, 7)).astype(np.int32),
        "crops": rng.normal(size=(ROWS, 2, 8, 8, 3)).astype(np.float32),
        "masked_patches": MASKED,
    }
    params = random_params(model)
    forward = jax.jit(model.apply)
    return model, params, batch, partial(forward, {"params": params})


def test_the_student_predicts_masked_patches_unseen(start):
    _, _, batch, forward = start
    expected = forward(batch).view_logits
    image = batch["image"].copy()
    for row, places in enumerate(MASKED):
        for place in places:
            y, x = 4 * (place // 3), 4 * (place % 3)
            image[row, y : y + 4, x : x + 4] += 1.0
    found = forward({**batch, "image": image}).view_logits
    np.testing.assert_allclose(found.masked, expected.masked, atol=1e-6)
    assert np.abs(found.patches - expected.patches).max() > 0.05
    # any other pixel is seen
    image = batch["image"].copy()
    image[:, 4:8, 0:4] += np.array([1.0, 0.0, 1.0], np.float32)[:, None, None, None]  # patch 3
    moved = np.abs(forward({**batch, "image": image}).view_logits.masked - expected.masked)
    assert moved[0].max() < 1e-6
    assert moved[2].max() > 1e-3


def test_a_teacher_and_its_student_compare_the_same_patches(start):
    model, params, batch, forward = start
    given = {key: x for key, x in batch.items() if key not in ("crops", "masked_patches")}
    outputs = apply(model, {"params": params}, given)
    every = np.asarray(outputs.view_logits.patches)
    assert outputs.view_logits.crops is None
    assert outputs.view_logits.masked is None
    expected = np.take_along_axis(every, MASKED[:, :, None], axis=1)
    found = forward(batch).view_logits
    np.testing.assert_allclose(found.patches, expected, atol=1e-5)
    np.testing.assert_allclose(found.mean_patch, every.mean(axis=1), atol=1e-6)


def test_a_crop_has_positions_between_those_of_the_grid(start):
    _, params, batch, forward = start
    rng, small = np.random.default_rng(2), build(size=8)
    # the same everywhere, so that a smaller grid has the same
    positions = np.array(params["image"]["position_embedding"])
    positions[1:] = rng.normal(size=16)
    image = {**params["image"], "position_embedding": positions}
    of_small = {**params, "image": {**image, "position_embedding": positions[:5]}}
    crops = batch["crops"].reshape(-1, 8, 8, 3)
    whole = {"image": crops, "text": batch["text"].repeat(2, 0)}
    expected = apply(small, {"params": of_small}, whole).view_logits.image
    given = forward.func({"params": {**params, "image": image}}, batch).view_logits.crops
    np.testing.assert_allclose(given.reshape(-1, 5), expected, atol=1e-5)


def test_positions_of_a_smaller_grid_are_of_the_same_places():
    rows, columns = np.mgrid[:6, :6].reshape(2, -1)
    positions = np.stack([rows, columns, rows * columns], axis=1).astype(np.float32)
    positions = np.concatenate([np.full((1, 3), 9, np.float32), positions])
    found = jax.jit(vit._resampled, static_argnums=(1, 2))(positions, 1, 2)
    # centres of 2 x 2 patches are patches 1 and 4 of the 6 x 6
    expected = [[9, 9, 9], [1, 1, 1], [1, 4, 4], [4, 1, 4], [4, 4, 16]]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_scores_are_those_of_clip_with_the_same_towers(start):
    _, params, batch, forward = start
    plain, towers = build(name="clip", head={}), {**params}
    del towers["head"]
    pairs = {key: batch[key] for key in ("image", "text")}
    outputs = apply(plain, {"params": towers}, pairs)
    np.testing.assert_allclose(forward(batch).scores, outputs.scores, atol=1e-6)
    assert outputs.view_logits is None


def test_a_projection_is_an_mlp_and_cosines_with_prototypes(start):
    _, params, batch, forward = start
    outputs, tree = forward(batch), params["head"]["pooled_projection"]
    x = np.asarray(outputs.image.pooled, np.float64) * math.sqrt(
        8
    )  # of unit length without the factor
    for index in range(3):
        if index:
            x *= (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2
        x = x @ tree[f"dense_{index}"]["kernel"] + tree[f"dense_{index}"]["bias"]

    def unit(x):
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    expected = unit(x) @ unit(tree["prototypes"]).T
    np.testing.assert_allclose(outputs.view_logits.image, expected, atol=1e-5)


def test_a_single_prototype_is_refused():
    model = models.build("self_distilled", "B/32", head={"prototypes": 1})
    with pytest.raises(errors.UsageError, match=r"2 prototypes or more.* got 1, 2048 and 256"):
        jax.eval_shape(lambda: models.init(model, jax.random.key(0)))


def test_a_tower_without_patches_to_mask_is_refused():
    with pytest.raises(errors.UsageError, match=r"transformer over squares, and .* is a ResNet"):
        models.build("self_distilled", "RN50")
