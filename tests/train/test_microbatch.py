"""config.microbatch: the loss and gradient of the whole batch, with the memory of a few rows."""

import functools
from functools import partial

import jax
import numpy as np
import optax
import pytest
from jax.sharding import AxisType

from tests.losses import oracle
from tests.support.marks import slow_but
from vlc_jax import losses, models, setup
from vlc_jax.configs import default
from vlc_jax.devices import sharding
from vlc_jax.models.heads import Decoding
from vlc_jax.setup.state import init_state, initial_memory
from vlc_jax.setup.validate import check_microbatch
from vlc_jax.train import compiled_step
from vlc_jax.train import step as train_step
from vlc_jax.types import State

pytestmark = pytest.mark.devices

BATCH, ROWS = 32, 8
SMALL = {"width": 16, "heads": 2, "depth": 1, "mlp_width": 24, "projection": 8}
# Head -> its options, losses, and other fields of the config. Each of the table's losses is in one.
DCSM = {"num_functional_words": 0, "network": "mlp", "hidden": 32, "standardise": "running"}
CASES = {
    "clip": (
        {},
        [
            name
            for name in losses.LOSSES
            if name not in ("sparc_local", "caption", "itm", *losses.CENTRED, *oracle.LOCAL)
        ],
        {"input.negatives.count": 2},
    ),
    "dcsm": ({**DCSM, "dropout": 0.5}, ["infonce"], {"frozen": ("image",)}),
    "pacl": ({"dropout": 0.5}, ["infonce"], {"lora.targets": ".*/query/kernel"}),
    "sparc": ({"dropout": 0.5}, ["infonce", "sparc_local"], {}),
    "pooled": ({"rule": "fsc", "scoring": "global"}, ["infonce", "hn_focal_local"], {}),
    "labclip": ({}, ["sigmoid", "svlc_negative"], {"sub_batches": 2}),
    "self_distilled": (
        {"prototypes": 5, "hidden": 6, "bottleneck": 4},
        ["infonce", *losses.CENTRED],
        {},
    ),
    "captioner": ({"width": 8, "depth": 1}, ["caption"], {}),
    "vlm2vec": (
        {"width": 8, "depth": 2},
        ["infonce", "negclip"],
        {"lora.targets": "head/lm/blocks/(query|down)/kernel", "lora.dora": True, "lora.rank": 2},
    ),
}


def configured(names, batch_size=BATCH, microbatch=None, **fields):
    config = default.get_config()
    config.update_from_flattened_dict({"init_from": "towers", "optimizer.warmup_steps": 1})
    with config.unlocked():
        config.losses = {
            name: default.loss(0.3 + i / 7, duplicates="mask") for i, name in enumerate(names)
        }
    config.update_from_flattened_dict({"batch_size": batch_size, "microbatch": microbatch})
    config.update_from_flattened_dict(fields)
    return config


def build(head, options, size=8, **tower):
    sizes = {"image": {**SMALL, **tower, "image_size": size, "patch_size": 4}}
    sizes["text"] = {**SMALL, **tower, "vocab_size": 30, "context_length": 7, "eos_id": 2}
    scale = {"logit_bias_init": -3.0, "logit_scale_init": 8.0}
    return models.build(head, "B/32", head=options, **sizes, **scale)


def make_batch(names, size=8):
    """Two hard texts each of the kinds that the losses need, some missing; a padding row, and two
    equal captions."""
    rng = np.random.default_rng(0)
    batch = {
        "image": rng.integers(0, 256, (BATCH, size, size, 3), np.uint8),
        "text": rng.integers(3, 30, (BATCH, 7)).astype(np.int32),
        "id": rng.integers(0, 2**32, (BATCH, 2)).astype(np.uint32),
        "mask": np.arange(BATCH) != 13,
        "stop": np.zeros(BATCH, bool),
    }
    batch["text"][9] = batch["text"][2]
    batch["question"] = rng.integers(3, 30, (BATCH, 7)).astype(np.int32)
    batch["question"][::3, 4], batch["question"][1::3, 0] = 2, 2  # their ends
    if "self_distill" in names:  # crops of one patch
        batch["crops"] = rng.integers(0, 256, (BATCH, 2, 4, 4, 3), np.uint8)
        batch["masked_patches"] = rng.permuted(np.tile(np.arange(4), (BATCH, 1)), axis=1)[:, :2]
    for kind in sorted({kind for name in names for kind in losses.LOSSES[name].needs}):
        batch[f"{kind}_text"] = rng.integers(3, 30, (BATCH, 2, 7)).astype(np.int32)
        batch[f"{kind}_mask"] = rng.random((BATCH, 2)) < 0.6
    return batch


def on_devices(run, count, fsdp=1):
    shape, kinds = (count // fsdp, fsdp), (AxisType.Auto,) * 2
    mesh = jax.make_mesh(shape, ("data", "fsdp"), kinds, devices=jax.devices()[:count])
    return run._replace(mesh=mesh)


def with_gradients(run):
    """The optimizer keeps the gradient, with fewer operations to compile than Adam has."""
    return run._replace(optimization=run.optimization._replace(optimizer=optax.trace(decay=0.0)))


@functools.cache
def start(case):
    """Setup and first state of a head, frozen parameters, and a batch; the state of the optimizer
    is the gradient."""
    options, names, fields = CASES[case]
    run = setup.step_setup(configured(names, **fields), build(case, options), 10)
    run = with_gradients(run)
    rng = np.random.default_rng(1)
    params, stats = jax.tree.map(  # no parameter is zero, and nothing is compiled
        lambda x: (0.2 * rng.normal(size=x.shape)).astype(np.float32),
        (run.parameters.shapes, jax.eval_shape(run.parameters.init_batch_stats)),
    )
    trained, frozen = run.parameters.split(params)
    if run.parameters.lora:
        trained = jax.tree.map(
            lambda x: (0.2 * rng.normal(size=x.shape)).astype(np.float32),
            run.parameters.trained_shapes(),
        )
    # the teacher has other parameters, or its distance would be 0
    teacher = jax.tree.map(lambda x: 0.7 * x, trained)
    memory = initial_memory(run.optimization, teacher)
    moments = jax.jit(run.optimization.optimizer.init)(trained)
    state = State(np.int32(0), trained, moments, stats, memory=memory)
    batch = make_batch(names)
    if isinstance(run.model.head, Decoding):
        batch["has_image"] = np.arange(BATCH) % 5 != 1
    return run, jax.device_get((state, frozen)), batch


def length(tree):
    return np.sqrt(sum(np.square(x, dtype=np.float64).sum() for x in jax.tree.leaves(tree)))


def gradient(case, devices, microbatch):
    """Metrics, gradient, and statistics and memory of a step; dropout draws the same numbers every
    time."""
    run, (state, frozen), batch = start(case)
    optimization = run.optimization._replace(microbatch=microbatch)
    run = on_devices(run._replace(optimization=optimization), devices)
    state, frozen = jax.device_put((state, frozen), sharding.replicated(run.mesh))
    batch = sharding.put_batch(run.mesh, batch)
    state, metrics = compiled_step.compile_step(run, state, frozen, batch)(state, frozen, batch)
    return jax.device_get((metrics, state.opt_state.trace, (state.batch_stats, state.memory)))


whole = functools.cache(functools.partial(gradient, devices=1, microbatch=None))


@pytest.mark.parametrize(
    ("case", "devices"),
    slow_but((("clip", 8), ("pacl", 8)), [("pacl", 1), *((case, 8) for case in CASES)]),
)
def test_microbatches_give_the_gradient_of_the_batch(case, devices):
    expected, slopes, stats = whole(case)
    found, found_slopes, found_stats = gradient(case, devices, ROWS)
    assert expected.keys() >= {*CASES[case][1], "loss", "grad_norm"}
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=2e-6, atol=1e-6, err_msg=name)
    norm = length(slopes)
    # plain steps on 1 and on 8 devices differ by .7e-6 (AVX2) to 1.1e-6 (AVX-512)
    assert length(jax.tree.map(np.subtract, found_slopes, slopes)) <= 3e-6 * norm
    assert norm > 1e-5
    for a, b in zip(jax.tree.leaves(found_stats), jax.tree.leaves(stats), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def temporaries(batch_size, microbatch, case="clip"):
    """Bytes that a step needs besides its state and its batch."""
    head = {"width": 32, "depth": 1} if case == "vlm2vec" else {}
    model = build(case, head, size=32, width=32)
    config = configured(["infonce"], batch_size, microbatch)
    config.losses.infonce.update({"implementation": "chunked", "chunk": ROWS})
    run = with_gradients(on_devices(setup.step_setup(config, model, 10), 1))
    where = sharding.batch_sharding(run.mesh)
    batch = {
        key: jax.ShapeDtypeStruct((batch_size, *x.shape[1:]), x.dtype, sharding=where)
        for key, x in make_batch(["infonce"], size=32).items()
    }
    state = jax.eval_shape(partial(init_state, run), {})
    step = jax.jit(train_step.make_step(run)).lower(state, {}, batch).compile()
    return step.memory_analysis().temp_size_in_bytes


@pytest.mark.parametrize("case", slow_but(("clip",), ("clip", "vlm2vec")))
def test_memory_is_that_of_a_microbatch_whatever_their_number(case):
    one, eight = temporaries(32, 32, case), temporaries(256, 32, case)
    assert eight < 1.2 * one


@pytest.mark.parametrize(
    ("rows", "sub_batches", "message"),
    [
        (12, 1, r"microbatch=12 must be a multiple of 8 devices .* 64 rows .*; use 8"),
        (24, 1, "must be a multiple of 8 devices and divide the 64 rows of a sub-batch .* use 16"),
        (64, 2, "divide the 32 rows of a sub-batch .* use 32"),
        (0, 1, "microbatch=0 must be a multiple of 8 devices .* use 8"),
        (8, 16, "divide the 4 rows of a sub-batch .* set it to None"),
    ],
)
def test_a_microbatch_that_does_not_fit_names_one_that_does(rows, sub_batches, message):
    config = configured(["infonce"], 64, rows, sub_batches=sub_batches)
    with pytest.raises(setup.validate.UsageError, match=message):
        check_microbatch(config, 8)


def test_a_microbatch_that_fits_is_taken():
    for rows in (None, 8, 16, 64):
        check_microbatch(configured(["infonce"], 64, rows), 8)
