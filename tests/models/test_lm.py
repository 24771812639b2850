"""The language model: cache, masks, positions, published sizes, adapters, sharded parameters."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import small_models
from tests.support.compilations import apply
from vlc_jax.devices import sharding
from vlc_jax.errors import UsageError
from vlc_jax.models import lm, lora, rope

LENGTH = 9
KINDS = {
    "grouped": {},
    "window": {"window": 3},
    "gemma": {
        "head_width": 12,
        "kv_heads": 1,
        "is_tied": True,
        "activation": "gelu_tanh",
        "unit_offset": True,
        "scales_embeddings": True,
    },
    "gemma3": {
        "head_width": 12,
        "is_tied": True,
        "activation": "gelu_tanh",
        "unit_offset": True,
        "scales_embeddings": True,
        "theta": 1e6,
        "scaling": rope.Scaling("linear", 0, 8.0),
        "window": 3,
        "global_every": 2,
        "qk_norm": True,
        "post_norms": True,
        "scale_width": 20,
    },
    "mpt": {"is_centred": True, "is_gated": False, "activation": "gelu", "alibi": 8.0},
    "longrope": {
        "scaling": rope.Scaling(
            "longrope", 6, 4.0, short=(1.0, 1.2, 1.5, 2.0), long=(2.0, 3.0, 5.0, 9.0)
        )
    },
}


@functools.cache
def make(**fields):
    decoder = lm.build("tiny", **fields)
    params = small_models.drawn(functools.partial(lm.init, decoder), scale=0.2)
    return decoder, jax.device_put(params)


def kind(name, **more):
    return make(**{**KINDS[name], **more})


def texts(rows=2, length=LENGTH, seed=1):
    ids = np.random.default_rng(seed).integers(0, 128, (rows, length))
    return ids.astype(np.int32)


def left_padded(ids, paddings):
    """Texts, the first `paddings[i]` slots of row i padding."""
    valid = np.arange(ids.shape[1])[None] >= np.array(paddings)[:, None]
    return np.where(valid, ids, 0), valid


@functools.partial(jax.jit, static_argnums=0)
def logits_of(decoder, params, ids, valid):
    return decoder.apply({"params": params}, ids, valid, method=lm.Decoder.text_logits)


@pytest.mark.parametrize("name", KINDS)
def test_steps_from_a_cache_equal_the_whole_text(name):
    decoder, params = kind(name)
    ids, valid = left_padded(texts(3), [0, 3, 0])
    whole = np.asarray(logits_of(decoder, params, ids, valid))

    @jax.jit
    def part(cache, start, ids):
        def run(module):
            hidden, grown = module(module.embed(ids), jnp.asarray(valid), cache=cache, start=start)
            return module.logits(hidden), grown

        return decoder.apply({"params": params}, method=run)

    first, cache = part(decoder.empty_cache(3, LENGTH), 0, ids[:, :4])
    steps = [first]
    for i in range(4, LENGTH):
        step, cache = part(cache, i, ids[:, i : i + 1])
        steps.append(step)
    found = np.concatenate(steps, axis=1)
    np.testing.assert_allclose(found[valid], whole[valid], atol=5e-5)
    assert part._cache_size() == 2  # of the prompt and of any step


@pytest.mark.parametrize("name", KINDS)
def test_a_row_does_not_depend_on_padding_or_on_other_rows(name):
    decoder, params = kind(name)
    if name == "longrope":  # shorter and longer texts with the same frequencies
        scaling = dataclasses.replace(decoder.scaling, original_length=LENGTH)
        decoder = decoder.clone(scaling=scaling)
    ids = texts(3)

    def run(ids, valid):
        return np.asarray(logits_of(decoder, params, ids, valid))

    alone = run(ids[1:2, 4:], np.ones((1, 5), bool))[0]
    for side, columns in (("left", slice(4, None)), ("right", slice(0, 5))):
        valid, moved = np.ones((3, LENGTH), bool), ids.copy()
        valid[1] = False
        valid[1, columns], moved[1, columns] = True, ids[1, 4:]
        np.testing.assert_allclose(run(moved, valid)[1, columns], alone, atol=2e-5, err_msg=side)


def test_a_token_sees_no_later_one_and_none_outside_its_window():
    for fields, seen in (({}, range(5)), ({"is_causal": False}, range(9))):
        decoder, params = make(**fields)
        embeds = apply(decoder, {"params": params}, texts(1), method="embed")

        def of_token(embeds, decoder=decoder, params=params):
            valid = jnp.ones((1, LENGTH), bool)
            return decoder.apply({"params": params}, embeds, valid)[0][0, 4].sum()

        gradient = np.asarray(jax.jit(jax.grad(of_token))(embeds))
        assert set(np.flatnonzero(np.abs(gradient[0]).sum(axis=-1))) == set(seen)
    mask_of = jax.jit(functools.partial(lm.attention_mask, start=0, length=LENGTH, window=3))
    mask = np.asarray(mask_of(np.ones((1, LENGTH), bool)))
    np.testing.assert_array_equal(np.flatnonzero(mask[0, 4]), [2, 3, 4])


@functools.partial(jax.jit, static_argnames="length")
def prefix_mask(prefix, start=0, length=6):
    return lm.attention_mask(jnp.ones((1, 6), bool), start, length, prefix=prefix)[0]


def test_a_prefix_sees_itself_in_both_directions():
    prefix = np.arange(6)[None] < 3
    mask = prefix_mask(prefix)
    expected = np.tril(np.ones((6, 6), bool))
    expected[:3, :3] = True
    np.testing.assert_array_equal(mask, expected)
    later = prefix_mask(prefix, start=4, length=2)
    np.testing.assert_array_equal(later, expected[4:])


def test_two_images_see_themselves_and_not_each_other():
    mask = prefix_mask(np.array([[1, 1, 0, 1, 1, 0]], bool))
    expected = np.tril(np.ones((6, 6), bool))
    expected[:2, :2] = expected[3:5, 3:5] = True
    np.testing.assert_array_equal(mask, expected)


def test_rows_without_a_token_are_finite():
    decoder, params = make()
    valid = np.array([[False] * LENGTH, [True] * LENGTH])
    assert np.isfinite(logits_of(decoder, params, texts(), valid)).all()


def test_longrope_follows_the_length_llama3_keeps_short_waves():
    scaling = KINDS["longrope"]["scaling"]
    short, factor = rope.frequencies(4, scaling=scaling, length=6)
    long, _ = rope.frequencies(4, scaling=scaling, length=7)
    plain, one = rope.frequencies(4)
    np.testing.assert_allclose(plain / short, scaling.short)
    np.testing.assert_allclose(plain / long, scaling.long)
    np.testing.assert_allclose([factor, one], [np.sqrt(1 + np.log(4) / np.log(6)), 1])
    llama, _ = rope.frequencies(64, 5e5, rope.Scaling("llama3", 8192, 8.0))
    ratio = rope.frequencies(64, 5e5)[0] / llama
    assert (ratio[:20] == 1).all()
    np.testing.assert_allclose(ratio[-20:], 8)
    assert (np.diff(ratio) >= -1e-9).all()
    with pytest.raises(ValueError, match="longrope needs 3 divisors"):
        rope.frequencies(3, scaling=scaling)


@functools.cache
def gradient(remat):
    ids, valid = texts(), np.ones((2, LENGTH), bool)
    decoder, params = make()

    def total(params):
        return jnp.sin(logits_of(decoder.clone(remat=remat), params, ids, valid)).sum()

    return jax.device_get(jax.jit(jax.grad(total))(params))


@pytest.mark.parametrize("remat", ["minimal", "dots", "block"])
def test_remat_changes_no_gradient(remat):
    found, expected = gradient(remat), gradient("none")
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), found, expected)


# published: Llama 2, Llama 3 and Phi-3 technical reports and files; 2.51 B of Gemma's report
COUNTS = {
    "vicuna_7b": 6_738_415_616,
    "llama3_8b": 8_030_261_248,
    "llama31_8b": 8_030_261_248,
    "phi3_mini": 3_821_079_552,
    "gemma_2b": 2_506_172_416,
    "paligemma_3b": 2_508_662_784,  # 2.92 B with the image tower
    "gemma3_4b": 3_880_263_168,  # 4.30 B with the image tower
    "mpt_7b": 6_649_286_656,
    "qwen3_vl_2b": 1_720_574_976,  # 2.13 B with the image tower
}


def abstract(variant):
    decoder = lm.build(variant)
    return jax.eval_shape(functools.partial(lm.init, decoder), jax.random.key(0))


def count(tree):
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize("variant", COUNTS)
def test_published_sizes(variant):
    assert count(abstract(variant)) == COUNTS[variant]


def test_no_sizes_that_do_not_fit():
    with pytest.raises(UsageError, match="kv_heads must divide heads; got 4 for 6"):
        jax.eval_shape(lambda k: lm.init(lm.build("tiny", kv_heads=4), k), jax.random.key(0))
    with pytest.raises(UsageError, match="did you mean 'vicuna_7b'"):
        lm.build("vicuna_13b")
    decoder, params = make()
    with pytest.raises(UsageError, match="valid has 5 slots, but the text has 9"):
        apply(decoder, {"params": params}, np.zeros((2, 9, 48)), np.ones((2, 5), bool))


def test_published_numbers_of_adapters():
    shapes = abstract("vicuna_7b")

    def adapters(names, rank, dora=False):
        targets = rf"blocks/({names})/kernel"
        make = functools.partial(lora.init, targets=targets, rank=rank, dora=dora)
        return count(jax.eval_shape(make, jax.random.key(0), shapes))

    assert adapters("query|key|value|out|gate|up|down", 128) == 319_815_680
    assert adapters("query|key|value|out|down", 8) == 12_255_232
    assert adapters("query|key|value|out|down", 8, dora=True) == 12_255_232 + 655_360


@pytest.mark.devices
@pytest.mark.parametrize("axes", [{"data": 2, "fsdp": 4}, {"data": 1, "fsdp": 4, "tensor": 2}])
def test_sharded_parameters_give_the_same_logits(axes):
    mesh = sharding.make_mesh(**axes)
    decoder, params = make(width=256, head_width=32, mlp_width=256)
    where = sharding.state_shardings(mesh, {"lm": params})["lm"]
    ids, valid = left_padded(texts(8), [0, 1, 2, 3, 0, 0, 0, 0])
    expected = logits_of(decoder, params, ids, valid)
    split = jax.device_put(jax.device_get(params), where)  # of numpy arrays no program takes parts
    shape = split["blocks"]["gate"]["kernel"].sharding.shard_shape((3, 256, 256))
    assert shape == (3, 64, 256 // axes.get("tensor", 1))
    with jax.set_mesh(mesh):
        found = logits_of(decoder, split, ids, valid)
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.devices
@pytest.mark.parametrize("variant", COUNTS)
def test_every_large_parameter_is_split(variant):
    mesh = sharding.make_mesh(data=1, fsdp=4, tensor=2)
    shapes = {"lm": abstract(variant)}
    where = sharding.state_shardings(mesh, shapes)
    sizes = jax.tree.map(lambda x, s: np.prod(s.shard_shape(x.shape)), shapes, where)
    assert sum(jax.tree.leaves(sizes)) < 1.01 * COUNTS[variant] / 8
