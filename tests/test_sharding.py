"""The mesh, the rule that places the state, and the batch on devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from vlc_jax import devices, optimizer, sharding, types
from vlc_jax.errors import UsageError


def test_minus_one_takes_all_devices_that_are_left():
    assert dict(sharding.make_mesh(data=-1, fsdp=2).shape) == {"data": 4, "fsdp": 2}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"data": 3}, "needs 3 devices, found 8"),
        ({"data": -1, "fsdp": -1}, "at most one of them -1"),
        ({"batch_size": 30}, "batch_size 30 is not divisible by 8 devices; use 24 or 32"),
        ({"batch_size": 3}, "use 8"),
    ],
)
def test_a_mesh_that_does_not_fit_is_an_error_with_the_cure(arguments, words):
    with pytest.raises(UsageError, match=words):
        sharding.make_mesh(**arguments)


def test_big_leaves_split_their_longest_divisible_axis_over_fsdp():
    mesh = sharding.make_mesh(data=2, fsdp=4)
    shapes = {
        "wide": jax.ShapeDtypeStruct((128, 512), jnp.float32),
        "odd": jax.ShapeDtypeStruct((501, 128), jnp.float32),
        "small": jax.ShapeDtypeStruct((8, 8), jnp.float32),
    }
    specs = jax.tree.map(lambda s: s.spec, sharding.state_shardings(mesh, shapes))
    assert specs == {
        "wide": PartitionSpec(None, "fsdp"),
        "odd": PartitionSpec(None, "fsdp"),
        "small": PartitionSpec(None, None),
    }


def test_optimizer_state_lies_like_its_parameters():
    mesh = sharding.make_mesh(data=1, fsdp=8)

    def init():
        params = {"a": {"kernel": jnp.ones((256, 128)), "bias": jnp.ones(128)}}
        return params, make(params).init(params)

    def make(params):
        return optimizer.make(
            params,
            learning_rate=optimizer.schedule("constant", 1.0, 1),
            weight_decay=0.1,
            b1=0.9,
            b2=0.98,
            eps=1e-6,
            clip_norm=1.0,
            decay_exclude="",
            learning_rate_multipliers=(),
        )

    where = sharding.state_shardings(mesh, jax.eval_shape(init))
    params, opt_state = jax.jit(init, out_shardings=where)()
    moments = [x for x in jax.tree.leaves(opt_state) if x.shape == (256, 128)]
    assert len(moments) == 2
    for moment in moments:
        assert moment.sharding == params["a"]["kernel"].sharding
        assert moment.sharding.spec == PartitionSpec("fsdp", None)
        assert len(moment.addressable_shards) == 8
        assert moment.addressable_shards[0].data.shape == (32, 128)


def test_a_batch_is_split_over_every_device_in_order():
    mesh = sharding.make_mesh(data=4, fsdp=2)
    batch = sharding.put_batch(mesh, {"text": np.arange(32).reshape(16, 2).astype(np.int32)})
    np.testing.assert_array_equal(batch["text"], np.arange(32).reshape(16, 2))
    assert {s.data.shape for s in batch["text"].addressable_shards} == {(2, 2)}


def test_shard_batch_splits_activations_and_leaves_values_alone():
    mesh = sharding.make_mesh(data=4, fsdp=2)
    double = jax.jit(lambda x: types.shard_batch(x * 2))
    x = jnp.ones((16, 3))
    with jax.set_mesh(mesh):
        doubled = double(x)
    assert doubled.sharding.spec[0] == types.BATCH_AXES
    np.testing.assert_array_equal(doubled, 2 * x)
    assert types.shard_batch(x) is x


def test_another_platform_than_asked_for_is_an_error():
    devices.require_platform("any")
    devices.require_platform("cpu")
    with pytest.raises(UsageError, match=r"asks for 'gpu' but JAX found 'cpu'"):
        devices.require_platform("gpu")


def test_the_cpu_peak_is_measured_and_shared_among_simulated_devices():
    peak, source = devices.peak_flops()
    assert "measured" in source
    assert 1e8 < peak < 1e14
