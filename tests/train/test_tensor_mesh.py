"""A captioner on a mesh data x fsdp x tensor trains and scores as on one device."""

import functools

import jax
import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from vlc_jax import models, setup
from vlc_jax.configs import default
from vlc_jax.devices import sharding
from vlc_jax.errors import UsageError
from vlc_jax.setup.validate import check_tensor
from vlc_jax.train import compiled_step
from vlc_jax.types import State

pytestmark = pytest.mark.devices

ROWS, MESH = 4, {"data": 2, "fsdp": 2, "tensor": 2}
DECODER = "head/lm/blocks/(query|key|value|out|gate|up|down)/kernel"


def run_on(mesh):
    """The setup of a run that trains adapters of a tiny decoder, and its projector."""
    model = models.build(
        *("captioner", "B/32"),
        image={"width": 16, "depth": 1, "heads": 2, "image_size": 8, "patch_size": 4},
        text={"vocab_size": 128, "context_length": 6, "eos_id": 1},
        head={"decoder": "tiny", "prefix": (3,)},
        text_tower=False,
        remat="block",
    )
    config = default.get_config()
    with config.unlocked():
        config.losses = {"caption": default.loss(1.0)}
        config.init_from, config.batch_size = "towers", 8
        config.optimizer.warmup_steps = 1
        config.lora.update({"targets": DECODER, "rank": 4, "alpha": 8.0, "dropout": 0.3})
        config.lora.full = "head/projector/.*"
    return setup.step_setup(config, model, 10)._replace(mesh=mesh)


@pytest.fixture(scope="module")
def arrays():
    run = run_on(sharding.make_mesh())
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda x: rng.normal(0, 0.2, x.shape).astype(np.float32), run.parameters.shapes
    )
    trained = jax.tree.map(
        lambda x: rng.normal(0, 0.2, x.shape).astype(np.float32), run.parameters.trained_shapes()
    )
    batch = {
        "image": rng.integers(0, 256, (ROWS, 8, 8, 3), np.uint8),
        "text": rng.integers(2, 128, (ROWS, 6)).astype(np.int32),
        "id": rng.integers(0, 2**32, (ROWS, 2)).astype(np.uint32),
        "mask": np.ones(ROWS, bool),
        "stop": np.zeros(ROWS, bool),
    }
    return params, trained, batch


@functools.cache
def one_device():
    return sharding.make_mesh(hardware=jax.devices()[:1])


@functools.cache
def many():
    return sharding.make_mesh(**MESH)


def test_a_step_has_the_loss_and_gradients_of_one_device(arrays):
    params, trained, batch = arrays

    def step(mesh):
        run = run_on(mesh)
        optimizer = jax.jit(run.optimization.optimizer.init)(trained)
        state = State(np.int32(0), trained, optimizer, {})
        state, frozen = (
            sharding.put_like(jax.device_get(tree), sharding.place_shapes(mesh, tree))
            for tree in (state, params)
        )
        batch_ = sharding.put_batch(mesh, batch)
        after, metrics = compiled_step.compile_step(run, state, frozen, batch_)(
            state, frozen, batch_
        )
        return after, jax.device_get(metrics)

    (one, expected), (split, found) = step(one_device()), step(many())
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-5)
    # the first moments are a tenth of the gradients
    moments, others = (flatten_dict(state.opt_state[1].mu, sep="/") for state in (split, one))
    largest = max(np.abs(x).max() for x in others.values())
    for path, moment in moments.items():
        np.testing.assert_allclose(moment, others[path], atol=1e-5 * largest, err_msg=path)
        assert moment.sharding == flatten_dict(split.params, sep="/")[path].sharding
    specs = {path: tuple(moment.sharding.spec) for path, moment in moments.items()}
    adapter = "lora/head/lm/blocks/{}/kernel/{}"
    assert specs[adapter.format("gate", "b")] == (None, "fsdp", "tensor")
    assert specs[adapter.format("down", "a")] == (None, "tensor", "fsdp")


def test_scores_are_those_of_one_device(arrays):
    params, _, batch = arrays

    def scores(mesh):
        run = run_on(mesh)

        def score(module, rows):
            image = module.encode_image(run.normalise(rows["image"]))
            text = module.encode_text(rows["text"])
            return module.score(image, text), module.score_options(image, text)

        placed = sharding.put_like(params, sharding.place_shapes(mesh, run.parameters.shapes))
        rows = sharding.put_batch(mesh, {key: batch[key] for key in ("image", "text")})
        with jax.set_mesh(mesh):
            apply = jax.jit(functools.partial(run.model.apply, method=score))
            return jax.device_get(apply({"params": placed}, rows))

    expected, found = scores(one_device()), scores(many())
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    np.testing.assert_allclose(expected[1][:, 0], np.diagonal(expected[0]), atol=1e-5)


def test_what_tensor_cannot_split_is_refused():
    model = run_on(one_device()).model
    check_tensor(2, model)
    with pytest.raises(UsageError, match=r"must divide the decoder's 2 heads .* one of 1, 2"):
        check_tensor(4, model)
    with pytest.raises(UsageError, match=r"this model has none: set config\.mesh\.tensor=1"):
        check_tensor(2, models.build("clip", "mini"))
    with pytest.raises(UsageError, match="batch_size 6 is not divisible by 4 devices; use 4 or 8"):
        sharding.make_mesh(**MESH, batch_size=6)


def test_rows_are_split_over_all_axes_but_tensor():
    batch = sharding.put_batch(many(), {"text": np.arange(8).reshape(8, 1)})
    assert {shard.data.shape for shard in batch["text"].addressable_shards} == {(2, 1)}
    assert sharding.row_groups(many()) == 4
