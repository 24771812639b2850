"""Speed and memory of the heads: forward and gradient of their training loss on stored features.

  python speed/heads.py
  python speed/heads.py --heads dcsm --models B/16 --batches 16

Towers are frozen: only the head has gradients. Prints seconds per step (median over rounds), CPU
seconds of all cores, and XLA's planned temporaries.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, from any folder

from speed import harness

HEADS = ("dcsm", "pacl")


def main(
    heads: tuple = HEADS, models: tuple = ("B/32",), batches: tuple = (16, 256), rounds: int = 5
) -> None:
    for case in ((head, model, batch) for head in heads for model in models for batch in batches):
        options = dict(zip(("head", "model", "batch"), case, strict=True))
        worker = harness.Worker("ours", sys.executable, "heads.py", **options)
        title, steps = "{}, {}, batch {}".format(*case), {"ours": partial(worker.ask, "step")}
        facts = {"ours": {"planned GiB": worker.facts["planned GiB"]}}
        harness.compare(title, steps, rounds, "ours", facts=facts, warm_up=0)
        worker.close()


def build(head: str, model: str, batch: int) -> tuple[dict, harness.Ask]:
    """Facts of a case, and a function that takes a step."""
    import jax

    from speed.train_step import random_arrays
    from vlc_jax import losses, models
    from vlc_jax.models.parameters import Parameters, merge_trees
    from vlc_jax.train import compiled_step

    # text tokens of DCSM as in its authors' code
    net = models.build(head, model, **({"context_length": 30} if head == "dcsm" else {}))
    shapes = jax.eval_shape(lambda key: models.init(net, key), jax.random.key(0))
    parameters = Parameters(net, 0, shapes, ("image", "text", "head/functional_words"))
    params, frozen = parameters.split(shapes)
    frozen = {"head": frozen.get("head", {})}

    def loss(params, frozen, batch, key):
        variables = {"params": merge_trees(frozen, params)}
        outputs = net.apply(variables, batch, rngs={"dropout": key})
        return losses.total({"infonce": {"weight": 1.0}}, outputs, batch)[0]

    features, key = stored(net, shapes, batch), jax.random.key(0)
    gradient = jax.jit(jax.value_and_grad(loss))
    compiled = compiled_step.compile_and_count(gradient, params, frozen, features, key)
    arrays = (random_arrays(each, net.text) for each in (params, frozen, features))
    # on the device before the first step: else every step would copy them there
    placed = jax.device_put(tuple(arrays))
    planned = compiled.program.memory_analysis().temp_size_in_bytes

    def step() -> None:
        jax.block_until_ready(compiled(*placed, key))

    step()  # the first step allocates memory
    return {"planned GiB": planned / harness.GIB}, lambda _: harness.timed(step)[1]


def stored(model: Any, params: Any, batch: int) -> dict:
    """Shapes of the stored features that `model.head` requests, and of the texts."""
    import jax

    from vlc_jax import models

    rows = jax.eval_shape(lambda: models.example_batch(model, batch))
    towers = partial(model.apply, method="tower_features")
    features = jax.eval_shape(towers, {"params": params}, rows)
    del rows["image"]
    return rows | features | {"mask": jax.ShapeDtypeStruct((batch,), bool)}


if __name__ == "__main__":
    harness.command(main, build, heads=HEADS)
