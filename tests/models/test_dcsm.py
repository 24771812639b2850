"""DCSM: the map, its standardisation, functional words and the network, against plain numpy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vlc_jax import models, types
from vlc_jax.models import dcsm

# Compilation is most of the time of these tests.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

IMAGES, TEXTS, PATCHES, LENGTH, EMBED, WORDS = 3, 4, 10, 6, 5, 2
MARKS = np.zeros((TEXTS, LENGTH), np.int32)
MARKS[0, 2], MARKS[2, 1], MARKS[2, 4] = 1, 2, 1


@pytest.fixture(scope="module")
def features():
    rng = np.random.default_rng(0)

    def unit(*shape):
        x = rng.normal(size=shape)
        return jnp.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True), jnp.float32)

    image = types.ImageFeatures(unit(IMAGES, EMBED), unit(IMAGES, PATCHES, EMBED))
    tokens = unit(TEXTS, LENGTH, EMBED)
    return image, types.TextFeatures(unit(TEXTS, EMBED), tokens, None, jnp.asarray(MARKS))


def make(**options):
    return models.HEADS["dcsm"](PATCHES, LENGTH, **{"words": WORDS, **options})


def init(head, features):
    make = jit(lambda key: head.init(key, *features, method=scored))
    return make(jax.random.key(0))


def scored(module, image, text, method_name="score", **kwargs):
    return getattr(module, method_name)(module.image(image), module.text(text), **kwargs)


def run(head, variables, features, **kwargs):
    apply = functools.partial(head.apply, method=scored, **kwargs)
    return np.asarray(jit(apply)(variables, *features))


def maps(features, params, rows="replace"):
    """Every map with a loop over its columns."""
    image, text = (np.asarray(x.tokens, np.float64) for x in features)
    found = np.zeros((len(image), len(text), PATCHES, LENGTH))
    for i, patches in enumerate(image):
        for j, tokens in enumerate(text):
            columns = []
            for token, mark in zip(tokens, MARKS[j % TEXTS], strict=True):
                if mark:
                    columns.append(np.asarray(params["rows"], np.float64)[mark - 1])
                if not mark or rows == "insert":
                    columns.append(patches @ token)
            found[i, j] = np.stack(columns[:LENGTH], axis=1)
    return found


def network(x, params):
    """The authors' network on one standardised map."""
    x = x[None]
    for name in ("conv_0", "conv_1"):
        padded = np.pad(x, [(0, 0), (1, 1), (1, 1)])
        kernel, height, width = np.asarray(params[name], np.float64), *x.shape[1:]
        y = np.zeros((len(kernel), height, width))
        for row in range(3):
            for column in range(3):
                part = padded[:, row : row + height, column : column + width]
                y += np.einsum("oi,ihw->ohw", kernel[:, :, row, column], part)
        x = np.maximum(y + np.asarray(params[f"{name}_bias"])[:, None, None], 0)
    x = np.maximum(x.reshape(-1) @ params["dense_0"] + params["dense_0_bias"], 0)
    return (x @ params["dense_1"] + params["dense_1_bias"])[0]


@pytest.mark.parametrize("rows", ["replace", "insert"])
def test_the_score_is_the_network_of_the_standardised_map(features, rows):
    head = make(rows=rows)
    variables = init(head, features)
    params = jax.tree.map(np.asarray, variables["params"])
    whole = maps(features, params, rows)
    whole = (whole - whole.mean()) / whole.std(ddof=1)
    expected = [[network(x, params) for x in row] for row in whole]
    np.testing.assert_allclose(run(head, variables, features), expected, atol=2e-5)


def test_a_map_of_its_own_is_standardised_alone(features):
    head = make(standardise="per_pair")
    variables = init(head, features)
    params = jax.tree.map(np.asarray, variables["params"])
    whole = maps(features, params)
    expected = [[network((x - x.mean()) / x.std(ddof=1), params) for x in row] for row in whole]
    np.testing.assert_allclose(run(head, variables, features), expected, atol=2e-5)


def test_moments_are_those_of_all_maps(features):
    head = make()
    variables = init(head, features)
    whole = maps(features, variables["params"])

    def found(module, image, text):
        text = module.text(text)
        return dcsm.moments(image.tokens, text.tokens, module._columns(text))

    mean, square = head.apply(variables, *features, method=found)
    assert mean == pytest.approx(whole.mean(), rel=1e-5)
    assert square == pytest.approx((whole**2).mean(), rel=1e-5)


@pytest.mark.parametrize(("standardise", "chunk"), [("tensor", 2), ("per_pair", 1)])
def test_chunks_change_neither_scores_nor_gradients(features, standardise, chunk):
    weights = jnp.arange(IMAGES * TEXTS).reshape(IMAGES, TEXTS)

    def value(variables, features, chunk):
        head = make(standardise=standardise, chunk=chunk, train_rows=True)
        scores = head.apply(variables, *features, method=scored)
        return jnp.sum(weights * scores), scores

    variables = init(make(), features)
    grads = jax.grad(value, argnums=(0, 1), has_aux=True, allow_int=True)
    grads = jit(grads, static_argnums=2)
    (plain, scores), (parts, same) = (grads(variables, features, c) for c in (TEXTS, chunk))
    np.testing.assert_allclose(same, scores, atol=2e-5)
    for a, b in zip(jax.tree.leaves(parts), jax.tree.leaves(plain), strict=True):
        if a.dtype == jnp.float32:
            np.testing.assert_allclose(a, b, atol=1e-4)


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

    (of_x, of_kernel), y = value(dcsm.convolved)
    (same_x, same_kernel), same = value(dcsm.shifted)
    np.testing.assert_allclose(same, y, atol=1e-5)
    np.testing.assert_allclose(same_x, of_x, atol=1e-5)
    np.testing.assert_allclose(same_kernel, of_kernel, rtol=1e-5, atol=1e-4)
    elsewhere = dcsm._kernel_gradient(x, weights)  # what other devices compute
    np.testing.assert_allclose(elsewhere, of_kernel, rtol=1e-5, atol=1e-4)


def test_more_maps_than_an_int32_counts_have_moments():
    shapes = ((1024, 197, 2), (1024, 30, 2), (1024, 197, 30))
    arrays = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    mean, _ = jax.eval_shape(dcsm.moments, *arrays)
    assert mean.shape == ()


def test_options_are_standardised_with_those_of_their_image(features):
    head = make()
    variables = init(head, features)
    image, text = features
    alone = jax.tree.map(lambda x: x[1:2], image)
    repeated = jax.tree.map(lambda x: jnp.concatenate([x] * IMAGES), text)
    own = run(head, variables, (image, repeated), method_name="score_options")
    np.testing.assert_allclose(own[1:2], run(head, variables, (alone, text)), atol=2e-5)


def test_running_scores_stand_alone(features):
    head = make(standardise="running")
    variables = init(head, features)
    image, text = features

    def outputs(module, image, text):
        return module.outputs(module.image(image), module.text(text))

    statistics = head.apply(variables, *features, method=outputs)["statistics"]
    params = models.heads.averaged({"head": variables["params"]}, statistics)["head"]
    assert params["steps"] == 1
    trained = {"params": params}
    whole = run(head, trained, features)
    np.testing.assert_allclose(whole, run(make(), variables, features), atol=1e-3)
    alone = jax.tree.map(lambda x: x[1:2], image)
    np.testing.assert_allclose(run(head, trained, (alone, text)), whole[1:2], atol=1e-5)
    options = run(head, trained, (alone, text), method_name="score_options")
    np.testing.assert_allclose(options, whole[1:2], atol=1e-5)


def test_the_rows_are_fixed_unless_they_are_trained(features):
    for train_rows in (False, True):
        head = make(train_rows=train_rows)
        variables = init(head, features)
        gradient = jax.grad(lambda v, head=head: head.apply(v, *features, method=scored).sum())
        is_moved = bool(np.abs(jit(gradient)(variables)["params"]["rows"]).max() > 0)
        assert is_moved == train_rows


def test_rows_start_around_a_third():
    table = dcsm._rows(jax.random.key(0), (11, 197))
    assert table.mean() == pytest.approx(1 / 3, abs=2e-3)
    assert table.std() == pytest.approx(1 / 3 / 197**0.5, rel=0.1)


@pytest.mark.parametrize(
    ("variant", "options", "count"),
    [
        ("B/16", {}, 3_026_365),
        ("B/32", {}, 768_445),
        ("L/14-336", {}, 8_863_165),
        ("B/16", {"network": "mlp"}, 5_910 * 64 + 64 + 64 * 32 + 32 + 32 + 1),
    ],
)
def test_the_network_has_the_published_number_of_parameters(variant, options, count):
    model = models.build("dcsm", variant, head=options, context_length=30)
    shapes = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    total = sum(leaf.size for leaf in jax.tree.leaves(shapes["head"]))
    rows = 11 * (model.image.grid**2 + 1)
    assert total - rows == count


def test_the_grid_sees_neighbours_above_and_below(features):
    head = make(layout="grid")
    variables = init(head, features)
    assert variables["params"]["conv_0"].shape == (32, LENGTH, 3, 3)
    assert run(head, variables, features).shape == (IMAGES, TEXTS)


def test_dropout_is_of_training_only(features):
    head = make(dropout=0.5)
    variables = init(head, features)
    image, text = features
    key = {"dropout": jax.random.key(3)}

    @jit
    def train(rngs):
        return head.apply(variables, image, text, is_training=True, method=scored, rngs=rngs)

    np.testing.assert_array_equal(train(key), train(key))
    assert np.abs(np.asarray(train(key)) - run(head, variables, features)).max() > 1e-3
    plain = run(make(), variables, features)
    np.testing.assert_array_equal(run(head, variables, features), plain)
