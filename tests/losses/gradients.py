"""Gradients of a tiny model with hard texts on the devices of any number of processes.

  python -m tests.losses.gradients COORDINATOR PROCESSES INDEX OUT

Process 0 writes OUT: the loss and the gradient of every parameter, one after the other, per case.
"""

import functools
import sys
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh

from vlc_jax import losses, models
from vlc_jax.devices import runtime, sharding

BATCH = 16
CASES = {
    "softmax": {"negclip": {"weight": 1.0}},
    "ring": {"negclip": {"weight": 1.0, "implementation": "ring"}},
    "sigmoid": {
        "sigmoid_negatives": {"weight": 1.0, "duplicates": "mask"},
        "svlc_negative": {"weight": 0.5},
        "analogy_symmetric": {"weight": 1.0},
    },
}
SMALL = {"width": 16, "heads": 2, "depth": 1, "mlp_width": 24, "projection": 8}


def make_batch() -> dict[str, np.ndarray]:
    """Three hard negatives and two hard positives, some of them missing; two equal captions."""
    rng = np.random.default_rng(0)
    batch = {
        "image": rng.normal(size=(BATCH, 8, 8, 3)).astype(np.float32),
        "text": rng.integers(3, 30, (BATCH, 7)).astype(np.int32),
        "id": rng.integers(0, 2**32, (BATCH, 2)).astype(np.uint32),
        "mask": np.arange(BATCH) != 13,
    }
    batch["text"][9] = batch["text"][2]
    for kind, count in (("negative", 3), ("positive", 2)):
        batch[f"{kind}_text"] = rng.integers(3, 30, (BATCH, count, 7)).astype(np.int32)
        batch[f"{kind}_mask"] = rng.random((BATCH, count)) < 0.6
        batch[f"{kind}_mask"][5] = False
    return batch


def compute(mesh: Mesh) -> dict[str, np.ndarray]:
    """case -> the loss and the gradient by all parameters, one flat array."""
    sizes = {"image": {**SMALL, "image_size": 8, "patch_size": 4}}
    sizes["text"] = {**SMALL, "vocab_size": 30, "context_length": 7, "eos_id": 2}
    model = models.build("clip", "B/32", **sizes, logit_bias_init=-3.0, logit_scale_init=8.0)
    rows = BATCH // jax.process_count()
    mine = slice(jax.process_index() * rows, (jax.process_index() + 1) * rows)
    batch = sharding.put_batch(mesh, {key: array[mine] for key, array in make_batch().items()})
    params = jax.jit(
        functools.partial(models.init, model), out_shardings=sharding.replicated(mesh)
    )(jax.random.key(0))

    def value(params, batch, weights):
        outputs = model.apply({"params": params}, batch)
        values = [losses.total(config, outputs, batch, mesh)[0] for config in CASES.values()]
        return sum(weight * value for weight, value in zip(weights, values, strict=True))

    # the case is an argument, so that the model is compiled once and not once per case
    step = jax.jit(jax.value_and_grad(value), out_shardings=sharding.replicated(mesh))
    found = {}
    for name in CASES:
        weights = tuple(float(name == case) for case in CASES)
        with jax.set_mesh(mesh):
            leaves = jax.tree.leaves(jax.device_get(step(params, batch, weights)))
        found[name] = np.concatenate([np.ravel(x) for x in leaves])
    return found


if __name__ == "__main__":
    coordinator, processes, index, out = sys.argv[1:]
    runtime.connect(coordinator, int(processes), int(index))
    results = compute(sharding.make_mesh(data=-1, fsdp=2))
    if jax.process_index() == 0:
        np.savez(Path(out), **results)
