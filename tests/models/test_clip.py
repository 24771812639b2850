"""The whole model: scores, outputs, precision, rematerialisation, sharding."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding

from tests.models.conftest import assert_close, encode, make
from tests.support.marks import slow_but
from vlc_jax import models, types
from vlc_jax.models import layers
from vlc_jax.train import step as train_step

FAMILIES = ("clip", "siglip", "eva02", "roberta", "mini")
SHALLOW = {"image": {"depth": 1}, "text": {"depth": 1}}  # for what depth has no part in


def start(model, batch):
    """What the untrained model starts from; compiled without the towers, which play no part."""

    def logits(key):
        outputs = model.init_with_output(key, batch)[0]
        return outputs.logit_scale, outputs.logit_bias

    return jax.jit(logits)(jax.random.key(0))


def mean_score(model, batch):
    """A number that depends on both towers and the logit scale, through `__call__`."""

    def value(params):
        outputs = model.apply({"params": params}, batch)
        return outputs.logit_scale * jnp.sum(outputs.scores * jnp.arange(16.0).reshape(4, 4))

    return value


@pytest.mark.parametrize("family", FAMILIES)
def test_each_tower_alone_equals_both_together(family):
    model, params, batch = make(family, **SHALLOW)
    outputs = jax.device_get(jax.jit(model.apply)({"params": params}, batch))
    image = encode(model, {"image": params["image"]}, "image", batch["image"])
    text = encode(model, {"text": params["text"]}, "text", batch["text"])
    image, text = jax.device_get((image, text))
    np.testing.assert_allclose(image.pooled, outputs.image.pooled, atol=1e-6)
    np.testing.assert_allclose(text.pooled, outputs.text.pooled, atol=1e-6)
    np.testing.assert_allclose(outputs.scores, image.pooled @ text.pooled.T, atol=1e-6)
    assert np.abs(outputs.scores).max() <= 1 + 1e-6


def test_scores_row_is_an_image_and_options_are_row_major():
    image = types.ImageFeatures(np.eye(2, 3, dtype=np.float32))
    text = types.TextFeatures(np.arange(12, dtype=np.float32).reshape(4, 3))
    model = models.build()
    scores, of_options = jax.jit(lambda *x: (model.score(*x), model.score_options(*x)))(image, text)
    np.testing.assert_array_equal(scores, [[0, 3, 6, 9], [1, 4, 7, 10]])
    np.testing.assert_array_equal(of_options, [[0, 3], [7, 10]])


def with_hard_texts(batch, negatives=3, positives=2):
    rng = np.random.default_rng(1)
    shapes = {"negative_text": negatives, "positive_text": positives}
    more = {key: rng.integers(2, 30, (4, count, 7)) for key, count in shapes.items() if count}
    return {**batch, **{key: text.astype(np.int32) for key, text in more.items()}}


@pytest.mark.parametrize("family", ["clip", "siglip"])
@pytest.mark.parametrize("counts", [(3, 2), (0, 1)], ids=str)
def test_one_pass_over_all_texts_equals_a_pass_for_each(family, counts):
    model, params, plain = make(family, **SHALLOW)
    batch = with_hard_texts(plain, *counts)
    apply = jax.jit(model.apply)
    outputs, alone = jax.device_get([apply({"params": params}, x) for x in (batch, plain)])
    np.testing.assert_allclose(outputs.text.pooled, alone.text.pooled, atol=1e-6)
    np.testing.assert_allclose(outputs.scores, alone.scores, atol=1e-6)
    np.testing.assert_allclose(outputs.own_scores, np.diag(outputs.scores), atol=1e-6)
    assert alone.negative_text is alone.positive_scores is None
    images = outputs.image.pooled
    for kind, count in zip(("negative", "positive"), counts, strict=True):
        if not count:
            assert f"{kind}_text" not in batch
            continue
        texts = getattr(outputs, f"{kind}_text")
        assert texts.pooled.shape[:2] == texts.mask.shape[:2] == (4, count)
        for k in range(count):
            one = encode(model, {"text": params["text"]}, "text", batch[f"{kind}_text"][:, k])
            one = jax.device_get(one)
            np.testing.assert_allclose(texts.pooled[:, k], one.pooled, atol=1e-6)
            np.testing.assert_array_equal(texts.mask[:, k], one.mask)
            scores = images @ one.pooled.T
            found = getattr(outputs, f"{kind}_scores")[:, :, k]
            np.testing.assert_allclose(found, scores, atol=1e-6)
            own = getattr(outputs, f"own_{kind}_scores")[:, k]
            np.testing.assert_allclose(own, np.diag(scores), atol=1e-6)


def test_logit_scale_and_bias_start_where_published():
    batch = make("clip", **SHALLOW)[2]
    for family, scale, bias in (("clip", 1 / 0.07, None), ("siglip", 10.0, -10.0)):
        model = make(family, **SHALLOW)[0]
        start_scale, start_bias = start(model, batch)
        np.testing.assert_allclose(start_scale, scale, rtol=1e-6)
        assert start_bias == bias
    model = make("clip", **SHALLOW, logit_scale_init=5.0, logit_bias_init=-1.0)[0]
    start_scale, start_bias = start(model, batch)
    np.testing.assert_allclose(start_scale, 5.0, rtol=1e-6)
    assert start_bias == -1.0


@pytest.mark.parametrize(
    ("scale", "maximum", "minimum", "expected"),
    [
        (200.0, 100.0, 1.0, 100.0),
        (0.5, 100.0, 1.0, 1.0),
        (50.0, 100.0, 1.0, 50.0),
        (117.0, None, 1.0, 117.0),
        (0.5, None, None, 0.5),
    ],
)
def test_clamp_brings_the_linear_scale_into_its_range(scale, maximum, minimum, expected):
    params = {"logit_scale": np.log(np.float32(scale)), "image": {"kernel": np.ones(3, "f4")}}
    clamped = train_step.clamp_logit_scale(params, maximum, minimum)
    np.testing.assert_allclose(np.exp(clamped["logit_scale"]), expected, rtol=1e-5)
    assert clamped["image"] is params["image"]
    np.testing.assert_allclose(np.exp(params["logit_scale"]), scale, rtol=1e-5)


def test_bfloat16_computes_with_float32_parameters_and_scores():
    model, params, batch = make("clip", **SHALLOW)
    half = make("clip", **SHALLOW, dtype="bfloat16")[0]
    shapes = jax.eval_shape(half.init, jax.random.key(0), batch)
    assert {x.dtype for x in jax.tree.leaves(shapes)} == {jnp.dtype("float32")}
    exact, rounded = jax.device_get(
        [jax.jit(m.apply)({"params": params}, batch) for m in (model, half)]
    )
    assert rounded.scores.dtype == rounded.image.pooled.dtype == jnp.float32
    assert 1e-6 < np.abs(rounded.scores - exact.scores).max() < 0.05


@pytest.fixture(scope="module")
def without_remat():
    """Function of a family: value and gradient, and the program."""

    @functools.cache
    def call(family):
        model, params, batch = make(family, **SHALLOW)
        value = jax.jit(mean_score(model, batch))
        return jax.jit(jax.value_and_grad(value))(params), str(jax.make_jaxpr(value)(params))

    return call


@pytest.mark.parametrize(
    ("family", "policy"),
    slow_but(
        (("clip", "block"),),
        [
            *(("clip", policy) for policy in ("minimal", "dots", "block", "offload")),
            *(("eva02", "block"), ("roberta", "block")),
        ],
    ),
)
def test_remat_equals_plain_in_value_and_gradient_and_is_on(without_remat, family, policy):
    expected, program = without_remat(family)
    assert "remat2[" not in program
    remat, params, batch = make(family, **SHALLOW, remat=policy)
    value = jax.jit(mean_score(remat, batch))  # traced once for both
    assert_close(jax.jit(jax.value_and_grad(value))(params), expected, 1e-4)
    assert str(jax.make_jaxpr(value)(params)).count("remat2[") == 2  # blocks


@pytest.mark.parametrize(("family", "count"), [("resnet", 4), ("swin", 3)])
def test_remat_recomputes_every_block(family, count):
    def blocks(**options):
        model, params, batch = make(family, **options)
        encode = functools.partial(model.apply, method="encode_image")
        program = jax.make_jaxpr(encode)({"params": {"image": params["image"]}}, batch["image"])
        return str(program).count("remat2[")

    assert (blocks(), blocks(remat="block")) == (0, count)


def test_each_remat_policy_keeps_less_than_the_one_before():
    def kept(policy):
        model, params, batch = make("clip", remat=policy)
        pull_back = jax.eval_shape(lambda p: jax.vjp(mean_score(model, batch), p)[1], params)
        return sum(x.size for x in jax.tree.leaves(pull_back))

    policies = ["none", "minimal", "dots", "block"]
    assert [*layers.REMAT] == [*policies, "offload"]  # which keeps as much as dots, elsewhere
    sizes = [kept(policy) for policy in policies]
    assert all(more > 1.1 * less for more, less in itertools.pairwise(sizes)), sizes


@pytest.mark.parametrize("family", slow_but(("clip",), ("clip", "siglip", "eva02")))
def test_work_left_out_for_pooled_features_changes_no_gradient(family):
    model, params, batch = make(family, **SHALLOW)
    parts = ("image",) if family == "eva02" else ("image", "text")  # whose texts are CLIP's

    def towers(part, tokens):
        return lambda module, x: getattr(module, part)(x, types.FeatureRequest(tokens))

    def value(params, *, tokens):
        features = [
            model.apply({"params": params}, batch[part], method=towers(part, tokens)).pooled
            for part in parts
        ]
        weights = jnp.arange(16.0).reshape(4, 4)
        return jnp.sum(weights * (features[0] @ features[-1].T))

    short, full = (
        jax.jit(jax.value_and_grad(functools.partial(value, tokens=tokens)))(params)
        for tokens in ("none", "projected")
    )
    assert_close(short, full, 2e-5)


def test_the_batch_axis_is_sharded_before_and_after_every_block(monkeypatch):
    model, params, batch = make("clip")
    shapes = []

    def shard_batch(x):
        shapes.append(x.shape)
        return x

    monkeypatch.setattr(types, "shard_batch", shard_batch)
    jax.eval_shape(model.apply, {"params": params}, batch)
    assert shapes == [(4, 10, 16), (4, 10, 16), (4, 1, 16), (4, 7, 16), (4, 7, 16), (4, 1, 16)]


@pytest.mark.devices
@pytest.mark.parametrize(
    ("family", "part"),
    [("eva02", "image"), ("resnet", "image"), ("swin", "image"), ("roberta", "text"),
     ("llm2clip", "text")],
)  # fmt: skip
def test_a_tower_of_a_sharded_batch_is_that_of_one_device(family, part):
    """Features and gradients; no reshape or gather of either pass crosses examples. CLIP's own
    towers: see the test of hard texts, and tests/train/test_microbatch.py.
    """
    model, params, _ = make(family)
    rng, side = np.random.default_rng(0), model.image.image_size
    images = rng.normal(size=(8, side, side, 3)).astype(np.float32)
    texts = {"roberta": rng.integers(2, 30, (8, 7)).astype(np.int32),
             "llm2clip": rng.normal(size=(8, 6)).astype(np.float32)}  # fmt: skip
    given = {part: params[part]}, images if part == "image" else texts[family]

    @jax.jit
    def run(params, array):
        def total(params):
            pooled = model.apply({"params": params}, array, method=f"encode_{part}").pooled
            return jnp.sum(pooled**3), pooled

        return jax.grad(total, has_aux=True)(params)

    mesh = jax.make_mesh((8,), ("data",), (AxisType.Auto,))
    where = NamedSharding(mesh, jax.P()), NamedSharding(mesh, jax.P("data"))
    split = jax.device_put(jax.device_get(given), where)
    program = run.lower(*split).compile()
    assert_close(program(*split), run(*given))
    hlo = program.as_text()
    assert "all-reduce" in hlo
    for collective in ("all-gather", "all-to-all", "collective-permute"):
        assert collective not in hlo, collective


@pytest.mark.devices
def test_hard_texts_of_a_sharded_batch_stay_on_their_devices():
    model, params, batch = make("clip")
    batch = with_hard_texts(batch, positives=0)
    batch = {key: np.concatenate([x] * 4) for key, x in batch.items()}
    mesh = jax.make_mesh((8,), ("data",), (AxisType.Auto,))
    batch = jax.device_put(batch, NamedSharding(mesh, jax.P("data")))
    params = jax.device_put(params, NamedSharding(mesh, jax.P()))

    def total(params, batch):
        outputs = model.apply({"params": params}, batch)
        return jnp.sum(outputs.own_negative_scores**3) + jnp.sum(outputs.own_scores**3)

    hlo = jax.jit(jax.grad(total)).lower(params, batch).compile().as_text()
    assert "all-reduce" in hlo
    for collective in ("all-gather", "all-to-all", "collective-permute"):
        assert collective not in hlo, collective
