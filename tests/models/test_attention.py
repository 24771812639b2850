"""Which attention a tower has, why, and that it works."""

import functools
import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vlc_jax import models
from vlc_jax.configs import default
from vlc_jax.errors import UsageError
from vlc_jax.models import attention, layers
from vlc_jax.setup import model as model_setup
from vlc_jax.setup import resolve

GOOD = {"platform": "gpu", "dtype": "bfloat16", "head_dim": 64, "mask": "causal"}
REFUSED = [
    ({"platform": "cpu"}, "cuDNN is of NVIDIA GPUs, this is cpu"),
    ({"platform": "tpu"}, "cuDNN is of NVIDIA GPUs, this is tpu"),
    ({"dtype": "float32"}, "cuDNN takes bfloat16 and float16, not float32"),
    ({"head_dim": 36}, "multiples of 8 up to 128 channels a head, not 36"),
    ({"head_dim": 256}, "multiples of 8 up to 128 channels a head, not 256"),
    ({"mask": "lengths"}, "masks of padding are left to XLA"),
]


def no_probe():
    raise AssertionError("asked what works, where it is known")


def test_cudnn_is_taken_where_every_condition_holds_and_it_works():
    for wanted in ("auto", "cudnn"):
        for change in ({}, {"dtype": "float16"}, {"mask": "none"}, {"head_dim": 128}):
            choice = attention.choose(wanted, **GOOD | change, probe=lambda: None)
            assert choice.implementation == "cudnn"
    assert choice.reason == "bfloat16, 128 channels a head, mask causal"


@pytest.mark.parametrize(("change", "reason"), REFUSED)
def test_where_a_condition_fails_auto_is_xla(change, reason):
    choice = attention.choose("auto", **GOOD | change, probe=no_probe)
    assert choice.implementation == "xla"
    assert reason in choice.reason
    with pytest.raises(UsageError, match=f"config.model.attention=cudnn: .*{reason}; use auto"):
        attention.choose("cudnn", **GOOD | change, probe=no_probe)


def test_the_probe_decides_where_all_else_speaks_for_cudnn():
    choice = attention.choose("auto", **GOOD, probe=lambda: "cudnn fails: too old")
    assert choice == attention.Choice("xla", "cudnn fails: too old")
    with pytest.raises(UsageError, match="cudnn fails: too old; use auto or xla"):
        attention.choose("cudnn", **GOOD, probe=lambda: "cudnn fails: too old")


def test_xla_asks_nothing_and_other_names_are_refused():
    assert attention.choose("xla", **GOOD, probe=no_probe).implementation == "xla"
    with pytest.raises(UsageError, match="did you mean 'cudnn'"):
        attention.choose("cudn", **GOOD, probe=no_probe)


def test_the_probe_finds_failures_and_other_results(monkeypatch):
    kind = {"dtype": "bfloat16", "head_dim": 8, "length": 6, "is_causal": True}
    assert attention.failure("xla", **kind) is None
    assert attention.failure("cudnn", **kind).startswith("cudnn fails: ")  # no GPU here
    computed = jax.nn.dot_product_attention

    def forgets_the_mask(*arrays, is_causal, implementation):
        is_causal &= implementation == "xla"
        return computed(*arrays, is_causal=is_causal)

    monkeypatch.setattr(jax.nn, "dot_product_attention", forgets_the_mask)
    assert attention.failure("cudnn", **kind) == "cudnn gives results that differ from XLA's"


@pytest.mark.parametrize("is_causal", [False, True])
def test_an_odd_number_of_tokens_is_padded_for_cudnn(monkeypatch, is_causal):
    computed, lengths = jax.nn.dot_product_attention, []

    def as_cudnn(*arrays, implementation, **options):
        lengths.extend(array.shape[1] for array in arrays if implementation == "cudnn")
        return computed(*arrays, **options)

    monkeypatch.setattr(jax.nn, "dot_product_attention", as_cudnn)
    rng = np.random.default_rng(0)
    *arrays, weights = (rng.normal(size=(2, 7, 2, 8)).astype(np.float32) for _ in range(4))

    def value_and_gradients(implementation):
        def total(query, key, value):
            mixed = attention.full_attention(query, key, value, is_causal, implementation)
            return (mixed * weights).sum(), mixed

        gradients, mixed = jax.grad(total, argnums=(0, 1, 2), has_aux=True)(*arrays)
        return [mixed, *gradients]

    padded, plain = jax.jit(lambda: [value_and_gradients(name) for name in ("cudnn", "xla")])()
    assert lengths == [8, 8, 8]
    for array, expected in zip(padded, plain, strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("is_causal", [False, True])
def test_16_bit_attention_is_as_near_to_float64_as_that_of_jax(is_causal):
    rng = np.random.default_rng(0)
    means = np.array([0, 0, 1, 0]).reshape(4, 1, 1, 1, 1)  # all values have a part in common
    arrays = jnp.asarray(rng.normal(means, size=(4, 2, 50, 3, 16)), jnp.bfloat16)

    def by_jax(*arrays):
        return jax.nn.dot_product_attention(*arrays, is_causal=is_causal, implementation="xla")

    def by_hand(*arrays):
        return attention.full_attention(*arrays, is_causal, "xla")

    @functools.partial(jax.jit, static_argnums=0)
    def outputs(attend, arrays):
        mixed, pull_back = jax.vjp(attend, *arrays[:3])
        return jnp.stack([mixed, *pull_back(arrays[3])])

    with jax.enable_x64(True):
        exact = np.asarray(outputs(by_jax, jnp.asarray(arrays, jnp.float64)))

    def errors(attend):
        return ((np.asarray(outputs(attend, arrays), np.float64) - exact) ** 2).mean((1, 2, 3, 4))

    assert np.all(errors(by_hand) < 1.4 * errors(by_jax))


@pytest.fixture
def asked(monkeypatch):
    """The implementation of every attention that is computed, in order."""
    found, computed = [], jax.nn.dot_product_attention

    def record(*arrays, implementation, **options):
        found.append(implementation)
        return computed(*arrays, **options)

    monkeypatch.setattr(jax.nn, "dot_product_attention", record)
    return found


def test_attention_of_one_query_is_left_to_xla(asked):
    net = models.build(variant="mini", image={"attention": "cudnn"})
    jax.eval_shape(lambda: models.init(net, jax.random.key(1)))
    image, text = net.image.depth, net.text.depth
    assert asked == ["cudnn"] * (image - 1) + ["xla"] + ["xla"] * text
    asked.clear()
    init = layers.initialisers("big_vision", 16, 1)
    layer = layers.Attention(2, init, implementation="cudnn")
    x, ends = jnp.zeros((3, 5, 16)), jnp.zeros(3, jnp.int32)
    for queries, positions in ((x, None), (x[:1, :1], None), (x, ends)):
        jax.eval_shape(
            lambda q, p: layer.init(jax.random.key(0), q, x, positions=p), queries, positions
        )
    assert asked == ["cudnn", "xla", "xla"]


def test_kept_features_are_those_of_any_attention():
    towers = [models.build(image={"attention": name}).image for name in ("xla", "cudnn")]
    assert towers[0] != towers[1]
    assert str(towers[0]) == str(towers[1])  # by which vlc_jax/encode/encoder.py knows them


def test_each_tower_has_its_own_and_one_line_says_why(monkeypatch, caplog):
    net = models.build(variant="B/32", text={"padding_mask": True}, dtype="bfloat16")
    monkeypatch.setattr(attention, "failure", lambda *_, **__: None)
    with caplog.at_level(logging.INFO):
        chosen = model_setup.with_attention(net, "auto", "gpu")
    assert (chosen.image.attention, chosen.text.attention) == ("cudnn", "xla")
    assert caplog.messages == [
        "attention: image cudnn (bfloat16, 64 channels a head, mask none), "
        "text xla (masks of padding are left to XLA)"
    ]


def test_on_a_cpu_auto_changes_nothing_and_cudnn_is_refused():
    net = models.build(variant="mini")
    assert model_setup.with_attention(net, "auto", "cpu") == net
    config = default.get_config()
    config.model.attention = "cudnn"
    with pytest.raises(UsageError, match="NVIDIA GPUs, this is cpu; use auto or xla"):
        resolve(config, "eval")
    assert resolve(config, "weights").model.image.attention == "xla"  # of a run on a GPU


def test_queries_in_blocks_give_the_attention_of_all(monkeypatch):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(2, 11, 2, 4)).astype(np.float32) for _ in range(3)]
    lengths = np.array([11, 4], np.int32)

    def total(arrays, lengths):
        mixed = attention.padded_attention(*arrays, lengths)
        return (mixed**2).sum(), mixed

    whole, in_blocks = (jax.value_and_grad(total, has_aux=True) for _ in range(2))
    expected = jax.jit(whole)(arrays, lengths)
    monkeypatch.setattr(attention, "QUERY_BLOCK", 4)
    found = jax.jit(in_blocks)(arrays, lengths)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    changed = [arrays[0], *(x.copy() for x in arrays[1:])]
    changed[1][1, 4:], changed[2][1, 4:] = 7.0, -9.0  # behind the length
    again = jax.jit(in_blocks)(changed, lengths)[0][1]
    np.testing.assert_allclose(again, expected[0][1], atol=1e-5)
