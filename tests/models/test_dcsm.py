"""DCSM: the map, its standardisation, functional words and the network, against plain numpy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.compilations import apply
from vlc_jax import errors, models, types
from vlc_jax.models import dcsm

IMAGES, TEXTS, PATCHES, LENGTH, EMBED, WORDS = 3, 4, 10, 6, 5, 2
MARKS = np.zeros((TEXTS, LENGTH), np.int8)
MARKS[0, 2], MARKS[2, 1], MARKS[2, 4] = 1, 2, 1


@pytest.fixture(scope="module")
def features():
    rng = np.random.default_rng(0)

    def unit(*shape):
        x = rng.normal(size=shape)
        return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)

    image = types.ImageFeatures(unit(IMAGES, EMBED), unit(IMAGES, PATCHES, EMBED))
    tokens = unit(TEXTS, LENGTH, EMBED)
    return image, types.TextFeatures(unit(TEXTS, EMBED), tokens, None, MARKS)


def make(**options):
    return models.HEADS["dcsm"](PATCHES, LENGTH, **{"num_functional_words": WORDS, **options})


@functools.partial(jax.jit, static_argnums=0)
def init(head, features):
    return head.init(jax.random.key(0), *features, method=scored)


def scored(module, image, text, method_name="score", **kwargs):
    return getattr(module, method_name)(module.image(image), module.text(text), **kwargs)


@functools.partial(jax.jit, static_argnums=0, static_argnames=("method_name", "is_training"))
def scores(head, variables, features, **kwargs):
    return head.apply(variables, *features, method=scored, **kwargs)


def run(*args, **kwargs):
    return np.asarray(scores(*args, **kwargs))


def maps(features, params, rows="replace"):
    """Every map with a loop over its columns."""
    image, text = (np.asarray(x.tokens, np.float64) for x in features)
    found = np.zeros((len(image), len(text), PATCHES, LENGTH))
    for i, patches in enumerate(image):
        for j, tokens in enumerate(text):
            columns, marks = [patches @ token for token in tokens], MARKS[j % TEXTS]
            for mark in sorted(set(marks) - {0}):
                vector = np.asarray(params["functional_words"], np.float64)[mark - 1]
                place = list(marks).index(mark)
                columns[place : place + (rows == "replace")] = [vector]
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


@pytest.mark.parametrize(
    ("rows", "options"), [("replace", {}), ("insert", {}), ("replace", {"standardise": "per_pair"})]
)
def test_the_score_is_the_network_of_the_standardised_map(features, rows, options):
    head = make(functional_words=rows, **options)
    variables = init(head, features)
    params = jax.tree.map(np.asarray, variables["params"])
    whole = maps(features, params, rows)
    axes = (2, 3) if options else None  # each map alone, or all together
    whole = (whole - whole.mean(axes, keepdims=True)) / whole.std(axes, ddof=1, keepdims=True)
    expected = [[network(x, params) for x in row] for row in whole]
    np.testing.assert_allclose(run(head, variables, features), expected, atol=2e-5)


def test_moments_are_those_of_all_maps(features):
    head = make()
    variables = init(head, features)
    whole = maps(features, variables["params"])

    def found(module, image, text):
        text = module.text(text)
        return dcsm.moments(image.tokens, text.tokens, module._word_columns(text))

    mean, square = apply(head, variables, *features, method=found)
    assert mean == pytest.approx(whole.mean(), rel=1e-5)
    assert square == pytest.approx((whole**2).mean(), rel=1e-5)


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
    repeated = jax.tree.map(lambda x: np.concatenate([x] * IMAGES), text)
    own = run(head, variables, (image, repeated), method_name="score_options")
    np.testing.assert_allclose(own[1:2], run(head, variables, (alone, text)), atol=2e-5)


@pytest.mark.parametrize("standardise", ["tensor", "running", "per_pair"])
def test_all_texts_of_a_batch_are_standardised_together(features, standardise):
    head = make(standardise=standardise)
    variables = init(head, features)
    image, text = features
    groups = {"text": jax.tree.map(lambda x: x[:IMAGES], text)}
    groups["negative_text"] = jax.tree.map(lambda x: np.concatenate([x[1:], x[:3]]), text)
    both = jax.tree.map(lambda *x: np.concatenate(x), *groups.values())

    def all_scores(module, image, texts):
        texts = {kind: module.text(text) for kind, text in texts.items()}
        return module.outputs(module.image(image), texts)[0]

    found = apply(head, variables, image, groups, method=all_scores)
    whole = run(head, variables, (image, both), is_training=True)
    captions, negatives = whole[:, :IMAGES], whole[:, IMAGES:]
    np.testing.assert_allclose(found["text"][0], captions, atol=2e-5)
    np.testing.assert_allclose(found["negative_text"][0], negatives, atol=2e-5)
    np.testing.assert_allclose(found["text"][1][:, 0], np.diag(captions), atol=2e-5)
    own = [negatives[i, 2 * i : 2 * i + 2] for i in range(IMAGES)]
    np.testing.assert_allclose(found["negative_text"][1], own, atol=2e-5)
    alone = run(head, variables, (image, groups["text"]), is_training=True)
    assert (np.abs(alone - captions).max() < 1e-5) == (standardise == "per_pair")


def test_running_scores_stand_alone(features):
    features = jax.tree.map(lambda x: x[:IMAGES], features)
    head = make(standardise="running")
    variables = init(head, features)
    image, text = features

    def outputs(module, image, text):
        return module.outputs(module.image(image), {"text": module.text(text)})

    assert not any(jax.tree.leaves(variables["batch_stats"]))
    update = functools.partial(head.apply, method=outputs, mutable=["batch_stats"])
    updated = jax.jit(update)(variables, *features)[1]
    assert updated["batch_stats"]["steps"] == 1
    trained = {**variables, **updated}
    whole = run(head, trained, features)
    np.testing.assert_allclose(whole, run(make(), variables, features), atol=1e-3)
    alone = jax.tree.map(lambda x: x[1:2], image)
    np.testing.assert_allclose(run(head, trained, (alone, text)), whole[1:2], atol=1e-5)
    options = run(head, trained, (alone, text), method_name="score_options")
    np.testing.assert_allclose(options, whole[1:2], atol=1e-5)


def test_running_moments_are_a_mean_and_then_forget(features, monkeypatch):
    monkeypatch.setattr(dcsm, "MOMENT_STEPS", 3)
    features = jax.tree.map(lambda x: x[:IMAGES], features)
    head = make(standardise="running")
    variables = init(head, features)
    batches = [jax.tree.map(lambda x, k=k: np.float32(k) * x, features[0]) for k in range(1, 6)]

    @functools.partial(jax.jit, static_argnames="mutable")
    def updated(variables, image, mutable=("batch_stats",)):
        def outputs(module, image, text):
            return module.outputs(image, {"text": module.text(text)})

        return head.apply(variables, image, features[1], method=outputs, mutable=mutable)[1]

    def moments(image):
        maps_ = maps((image, features[1]), variables["params"])
        return np.array([maps_.mean(), (maps_**2).mean()])

    for step, image in enumerate(batches):
        variables = {**variables, **updated(variables, image)}
        found = [variables["batch_stats"][name] for name in ("mean", "square")]
        if step < 3:
            expected = np.mean([moments(x) for x in batches[: step + 1]], axis=0)
        else:
            expected = expected + (moments(image) - expected) / 3
        np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert updated(variables, image, mutable=("intermediates",)).keys() <= {"intermediates"}


def test_vectors_of_functional_words_start_around_a_third():
    draw = jax.jit(lambda key: dcsm._word_vectors(key, (11, 197)))
    table = np.asarray(draw(jax.random.key(0)))
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
    one = {"depth": 1}  # the head reads as many tokens as of all blocks
    model = models.build("dcsm", variant, head=options, image=one, text=one, context_length=30)
    shapes = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    total = sum(leaf.size for leaf in jax.tree.leaves(shapes["head"]))
    rows = 11 * (model.image.grid**2 + 1)
    assert total - rows == count


@pytest.mark.parametrize(
    ("variant", "adapter"),
    [
        ("SigLIP-B/16", False),
        ("SigLIP-B/16", True),
        ("B/32", True),
        pytest.param("SigLIP-SO400M/14-384", True, marks=pytest.mark.slow),
    ],
)
def test_it_reads_the_tokens_of_towers_of_published_sizes(variant, adapter):
    one = {"depth": 1}  # as many tokens as of all blocks
    model = models.build("dcsm", variant, head={"adapter": adapter}, image=one, text=one)
    shapes = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    batch = jax.eval_shape(lambda: models.example_batch(model, 2))
    outputs = jax.eval_shape(lambda p, b: model.apply({"params": p}, b), shapes, batch)
    patches = model.image.grid**2 + (variant == "B/32")
    length, embed = model.text.context_length, model.text.projection
    assert outputs.scores.shape == (2, 2)
    assert outputs.image.tokens.shape == (2, patches, embed)
    assert outputs.text.tokens.shape == (2, length, embed)
    assert shapes["head"]["dense_0"].shape == (4 * patches * length, 128)
    sizes = {"image_adapter": (model.image.width, embed), "text_adapter": (model.text.width, embed)}
    kernels = {name: shapes["head"][name]["kernel"].shape for name in sizes if adapter}
    assert kernels == (sizes if adapter else {})
    assert ("image_adapter" in shapes["head"]) == adapter


def test_adapters_take_the_place_of_projections(features):
    head = make(adapter=True, width=EMBED, standardise="per_pair")
    rng = np.random.default_rng(2)
    image, text = features
    image = image._replace(tokens=rng.normal(size=(IMAGES, PATCHES, 7)).astype("f4"))
    text = text._replace(tokens=rng.normal(size=(TEXTS, LENGTH, 8)).astype("f4"))
    variables = init(head, (image, text))
    params = dict(variables["params"])

    def mapped(tokens, adapter):
        y = np.asarray(tokens) @ np.asarray(adapter["kernel"]) + np.asarray(adapter["bias"])
        return y / np.linalg.norm(y, axis=-1, keepdims=True)

    projected = (
        image._replace(tokens=mapped(image.tokens, params.pop("image_adapter"))),
        text._replace(tokens=mapped(text.tokens, params.pop("text_adapter"))),
    )
    expected = run(make(standardise="per_pair"), {"params": params}, projected)
    np.testing.assert_allclose(run(head, variables, (image, text)), expected, atol=2e-5)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ({"functional_words": "swap"}, "replace"),
        ({"functional_word": "insert"}, "did you mean 'functional_words'"),
    ],
)
def test_an_unknown_option_or_value_is_refused(head, message):
    with pytest.raises(errors.UsageError, match=message):
        models.build("dcsm", "mini", head=head)


def test_the_grid_sees_neighbours_above_and_below(features):
    head = make(layout="grid")
    variables = init(head, features)
    assert variables["params"]["conv_0"].shape == (32, LENGTH, 3, 3)
    assert run(head, variables, features).shape == (IMAGES, TEXTS)


def test_dropout_is_of_training_only(features):
    head = make(dropout=0.5)
    variables = init(head, features)
    key = {"dropout": jax.random.key(3)}

    @functools.partial(jax.jit, static_argnums=0)
    def train(head, features):
        return head.apply(variables, *features, is_training=True, method=scored, rngs=key)

    np.testing.assert_array_equal(train(head, features), train(head, features))
    trained = np.asarray(train(head, features))
    assert np.abs(trained - run(head, variables, features)).max() > 1e-3
    plain = run(make(), variables, features)
    np.testing.assert_array_equal(run(head, variables, features), plain)
    parts = train(make(dropout=0.5, chunk=1), features)
    np.testing.assert_allclose(parts, trained, atol=1e-5)  # the same draws
