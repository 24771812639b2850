"""Adapters change what the papers' formulas say, nothing at the start, and train alone."""

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from tests.models.conftest import make
from vlc_jax import models
from vlc_jax.configs import default, svlc
from vlc_jax.errors import UsageError
from vlc_jax.models import lora
from vlc_jax.weights import rename

ATTENTION = "image/block_0/attention"
RANK, ALPHA = 2, 3.0
EVERYTHING = ".*/(query|key|value)/kernel|.*/(up|down|out)/kernel|.*(projection|embedding)/kernel"


@pytest.fixture(scope="module")
def params():
    return jax.device_get(make("clip")[1])


def init(seed, params, **options):
    new = jax.jit(lora.init, static_argnames=options.keys())
    return new(jax.random.key(seed), params, **options)


def merge(params, tree):
    return jax.device_get(jax.jit(lora.merge, static_argnames="alpha")(params, tree, alpha=ALPHA))


def trained_tree(params, targets, dora=False, **options):
    """An adapter of which no part is zero."""
    tree = init(1, params, **{"targets": targets, "rank": RANK, "dora": dora, **options})
    rng = np.random.default_rng(2)
    return jax.tree.map(
        lambda x: np.asarray(x) + 0.1 * rng.normal(size=x.shape).astype(np.float32), tree
    )


def same(a, b, **tolerance):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **tolerance), a, b)


@pytest.mark.parametrize("initialisation", ["uniform", "gaussian"])
@pytest.mark.parametrize("dora", [False, True])
def test_a_new_adapter_changes_nothing(dora, initialisation):
    one = {"depth": 1}
    _, params, _ = make("clip", one, one)
    options = {"dora": dora, "initialisation": initialisation, "full": "logit_scale"}

    def merged(params):
        key = jax.random.key(0)
        new = lora.init(key, params, targets=EVERYTHING, rank=RANK, **options)
        return lora.merge(params, new, ALPHA)

    # compiled, m / sqrt(n) becomes m * rsqrt(n), which is rounded otherwise
    same(jax.jit(merged)(params), params, rtol=1e-6 if dora else 0)


def test_lora_is_the_papers_formula(params):
    tree = trained_tree(params, ".*/mlp/up/kernel")
    merged = merge(params, tree)
    adapter = tree["lora"]["text"]["block_1"]["mlp"]["up"]["kernel"]
    a, b = np.float64(adapter["a"]), np.float64(adapter["b"])
    before = np.float64(params["text"]["block_1"]["mlp"]["up"]["kernel"])
    expected = before + ALPHA / RANK * a @ b
    np.testing.assert_allclose(
        merged["text"]["block_1"]["mlp"]["up"]["kernel"], expected, rtol=1e-5, atol=1e-6
    )
    untouched = {k: v for k, v in flatten_dict(merged, sep="/").items() if "/up/kernel" not in k}
    assert all(np.array_equal(v, flatten_dict(params, sep="/")[k]) for k, v in untouched.items())


def test_dora_is_direction_times_magnitude(params):
    tree = trained_tree(params, "image/projection/kernel", dora=True)
    merged = merge(params, tree)["image"]["projection"]["kernel"]
    adapter = tree["lora"]["image"]["projection"]["kernel"]
    v = np.float64(params["image"]["projection"]["kernel"])
    v = v + ALPHA / RANK * np.float64(adapter["a"]) @ np.float64(adapter["b"])
    for column in range(v.shape[1]):
        direction = v[:, column] / np.sqrt((v[:, column] ** 2).sum())
        expected = direction * adapter["magnitude"][column]
        np.testing.assert_allclose(merged[:, column], expected, rtol=1e-4, atol=1e-6)


def test_no_gradient_flows_through_the_length_of_doras_direction():
    params = {"up": {"kernel": np.float32([[3.0, 1.0], [4.0, 2.0]])}}
    options = {"targets": "up/kernel", "rank": 1, "dora": True}
    tree = init(0, params, **options)
    gradient = jax.grad(lambda t, p: lora.merge(p, t, 1.0)["up"]["kernel"].sum())
    gradient = jax.jit(gradient)(tree, params)
    # with the length as a constant, d merged / d b = a whatever direction b moves in
    a = np.asarray(tree["lora"]["up"]["kernel"]["a"])
    np.testing.assert_allclose(
        gradient["lora"]["up"]["kernel"]["b"], np.full((1, 2), a.sum()), rtol=1e-5
    )


def test_keys_and_values_are_adapted_apart(params):
    merged = merge(params, trained_tree(params, f"{ATTENTION}/value/kernel"))
    before, after = (
        p["image"]["block_0"]["attention"]["key_value"]["kernel"] for p in (params, merged)
    )
    width = before.shape[1] // 2
    assert np.array_equal(before[:, :width], after[:, :width])
    assert not np.array_equal(before[:, width:], after[:, width:])


def test_query_key_value_is_one_matrix_of_three_widths(params):
    tree = trained_tree(params, f"{ATTENTION}/query_key_value/kernel")
    merged = merge(params, tree)["image"]["block_0"]["attention"]
    attention = params["image"]["block_0"]["attention"]
    adapter = tree["lora"]["image"]["block_0"]["attention"]["query_key_value"]["kernel"]
    change = ALPHA / RANK * adapter["a"] @ adapter["b"]
    width = attention["query"]["kernel"].shape[1]
    assert adapter["b"].shape == (RANK, 3 * width)
    same(merged["query"]["kernel"], attention["query"]["kernel"] + change[:, :width], atol=1e-6)
    same(
        merged["key_value"]["kernel"],
        attention["key_value"]["kernel"] + change[:, width:],
        atol=1e-6,
    )


def test_a_convolution_is_adapted_as_loralib_adapts_it(params):
    """(B A) viewed as the kernel, B of (outputs * patch, rank * patch), times alpha / rank."""
    tree = trained_tree(params, "image/patch_embedding/convolution/kernel")
    adapter = tree["lora"]["image"]["patch_embedding"]["convolution"]["kernel"]
    ours = params["image"]["patch_embedding"]["kernel"]
    patch, outputs = 4, ours.shape[1]
    assert adapter["a"].shape == (3 * patch, RANK * patch)
    assert adapter["b"].shape == (RANK * patch, outputs * patch)
    product = np.float64(adapter["b"]).T @ np.float64(adapter["a"]).T
    change = ALPHA / RANK * product.reshape(outputs, 3, patch, patch)
    (kernel,) = rename.PATCHES.save(ours)
    (expected,) = rename.PATCHES.load(kernel + change)
    merged = merge(params, tree)["image"]["patch_embedding"]["kernel"]
    np.testing.assert_allclose(merged, expected, rtol=1e-5, atol=1e-6)


def test_xavier_draws_both_factors_of_packed_attention(params):
    targets = ".*/(query_key_value|out|up)/kernel"
    options = {"targets": targets, "rank": RANK, "b_initialisation": "xavier"}
    tree = init(0, params, **options)
    for name, adapter in lora.adapters(tree).items():
        if not name.endswith("query_key_value/kernel"):
            assert not np.any(adapter["b"])
            continue
        for part in adapter.values():  # uniform up to sqrt(6 / (fan_in + fan_out))
            bound = (6 / sum(part.shape)) ** 0.5
            assert 0.8 * bound < np.abs(part).max() <= bound
    merged = merge(params, tree)
    changed = [
        path
        for path, x in flatten_dict(merged, sep="/").items()
        if not np.array_equal(x, flatten_dict(params, sep="/")[path])
    ]
    assert changed
    assert all(path.endswith(("query/kernel", "key_value/kernel")) for path in changed)


def test_a_parameter_trained_in_full_replaces_the_frozen_one(params):
    tree = trained_tree(params, ".*/query/kernel", full="logit_scale|.*/norm/scale")
    assert set(tree) == {"lora", "logit_scale", "image", "text"}
    merged = merge(params, tree)
    assert merged["logit_scale"] == tree["logit_scale"] != params["logit_scale"]
    assert jax.tree.structure(merged) == jax.tree.structure(params)


def test_adapter_sizes_of_svlc():
    """Rank 4 in ViT-B/32 as SVLC's code has it: packed attention, the convolution's factors."""
    config = default.get_config()
    with config.unlocked():
        svlc.use_lora(config)
    further = ("alpha", "dropout")
    options = {key: value for key, value in config.lora.items() if key not in further}
    model = models.build("clip", "B/32")
    shapes = jax.eval_shape(lambda: models.init(model, jax.random.key(0)))
    tree = jax.eval_shape(lambda p: lora.init(jax.random.key(0), p, **options), shapes)
    assert set(tree) == {"lora"}
    count = sum(x.size for x in jax.tree.leaves(tree))
    per_width = 4 * (1 + 3) + 4 * (1 + 1) + 2 * 4 * (1 + 4)  # in_proj, out_proj, two of 4 x width
    convolution = (4 * 32) * (3 * 32 + 768 * 32)
    assert count == 12 * per_width * (768 + 512) + convolution


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"targets": ".*/qeury/kernel"}, "matches no whole name"),
        ({"targets": "("}, "no regular expression"),
        ({"targets": ".*/(query|query_key_value)/kernel"}, "overlap"),
        ({"targets": ".*/query/kernel", "rank": 17}, "from 1 to 16"),
        ({"targets": ".*/query/kernel", "rank": 0}, "from 1 to 16"),
        ({"targets": ".*/query/kernel", "full": ".*/query/kernel"}, "choose one"),
        ({"targets": ".*/query/kernel", "full": "logit_sclae"}, "matches no whole name"),
        ({"targets": ".*/query/kernel", "initialisation": "xavier"}, "gaussian"),
        ({"targets": ".*/query_key_value/kernel", "b_initialisation": "gaussian"}, "xavier"),
        ({"targets": ".*/query/kernel", "b_initialisation": "xavier"}, "matches none"),
        ({"targets": ".*/convolution/kernel", "dora": True}, "DoRA has no columns"),
        ({"targets": ".*/patch_embedding/.*"}, "overlap"),
    ],
)
def test_wrong_requests(params, options, message):
    with pytest.raises(UsageError, match=message):
        init(0, params, **{"rank": RANK, **options})
