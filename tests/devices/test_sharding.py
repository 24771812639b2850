"""The mesh, the rule that places the state, and the batch on devices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from tests.support.training import optimizer_of
from vlc_jax import models, setup, types
from vlc_jax.configs import default
from vlc_jax.devices import runtime as devices
from vlc_jax.devices import sharding
from vlc_jax.errors import UsageError
from vlc_jax.setup import state as setup_state

pytestmark = pytest.mark.devices


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


class Chip:
    """A device of a slice, as jax.experimental.mesh_utils looks at it."""

    def __init__(self, number, slice_index):
        self.id, self.slice_index, self.process_index = number, slice_index, slice_index
        self.platform, self.device_kind = "gpu", "a GPU"


def chips(*sizes):
    """Slices of these sizes, their devices in turn, as processes of several nodes may join."""
    made = [(place, index) for index, size in enumerate(sizes) for place in range(size)]
    return [Chip(number, index) for number, (_, index) in enumerate(sorted(made))]


@pytest.mark.parametrize(("fsdp", "shape"), [(1, (16, 1)), (2, (8, 2)), (4, (4, 4))])
def test_fsdp_stays_inside_a_slice_and_data_goes_over_them(fsdp, shape):
    mesh = sharding.over_slices(chips(4, 4, 4, 4), fsdp)
    assert mesh.shape == shape
    assert len({chip.id for chip in mesh.flat}) == 16
    assert all(len({chip.slice_index for chip in row}) == 1 for row in mesh)
    assert {chip.slice_index for chip in mesh[:, 0]} == {0, 1, 2, 3}


def test_a_larger_fsdp_takes_whole_slices():
    mesh = sharding.over_slices(chips(4, 4, 4, 4), 8)
    assert mesh.shape == (2, 8)
    assert [sorted({chip.slice_index for chip in row}) for row in mesh] == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("sizes", "fsdp", "words"),
    [
        ((4, 4), 3, "fsdp=3 does not fit 2 slices of 4 devices: take a divisor of 4, or 4 times"),
        ((4, 4), 6, "fsdp=6 does not fit"),
        ((4, 4, 4), 8, "fsdp=8 does not fit 3 slices"),
        ((4, 2), 2, r"slices hold \[2, 4\] devices"),
    ],
)
def test_slices_that_a_mesh_does_not_fit_are_an_error(sizes, fsdp, words):
    with pytest.raises(UsageError, match=words):
        sharding.over_slices(chips(*sizes), fsdp)


def test_devices_of_several_slices_get_such_a_mesh(monkeypatch):
    devices = chips(2, 2)
    monkeypatch.setattr(jax, "devices", lambda: devices)
    monkeypatch.setattr(jax, "device_count", lambda: 4)
    mesh = sharding.make_mesh(data=-1, fsdp=2, batch_size=8)
    assert dict(mesh.shape) == {"data": 2, "fsdp": 2}
    assert [[chip.slice_index for chip in row] for row in mesh.devices] == [[0, 0], [1, 1]]


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
        return params, optimizer_of(params).init(params)

    where = sharding.state_shardings(mesh, jax.eval_shape(init))
    params, opt_state = jax.jit(init, out_shardings=where)()
    moments = [x for x in jax.tree.leaves(opt_state) if x.shape == (256, 128)]
    assert len(moments) == 2
    for moment in moments:
        assert moment.sharding == params["a"]["kernel"].sharding
        assert moment.sharding.spec == PartitionSpec("fsdp", None)
        assert len(moment.addressable_shards) == 8
        assert moment.addressable_shards[0].data.shape == (32, 128)


def test_a_teacher_lies_like_the_parameters_that_it_follows():
    config = default.get_config()
    with config.unlocked():
        config.losses = {"infonce": default.loss(1.0), "distill": default.loss(1.0)}
    run = setup.step_setup(config, models.build("clip", "B/32"), 10_000)
    run = run._replace(mesh=sharding.make_mesh(data=1, fsdp=8))
    state = setup_state.state_shapes(run, {})
    teacher, params = (
        jax.tree.map(lambda x: (x.shape, x.sharding), tree)
        for tree in (state.memory["teacher"], state.params)
    )
    assert teacher == params
    whole = 4 * sum(x.size for x in jax.tree.leaves(state.params))
    assert sharding.shard_bytes(state.memory) < whole / 7


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


def test_the_cpu_peak_is_shared_among_simulated_devices():
    peak, source = devices.peak_flops()
    assert "measured" in source
    assert 1e8 < peak < 1e14
