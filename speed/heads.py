"""Speed and memory of the heads: forward and gradient of their training loss on stored features.

  python speed/heads.py --torch-python .venv-parity/bin/python
  python speed/heads.py --heads dcsm --models B/16 --batches 16

Compares ours with the plain formula in JAX (`naive`), for PACL also with the sum over patches as a
matrix product (`pooled`), and with the authors' formulation in torch (`torch`). For PACL, `torch`
is the formula of `naive`; the authors train `pacl_own`, which pools every image by its own caption
only. Towers are frozen: only the head has gradients.

Each side is a separate process; a round takes one step of each. Prints seconds per step (median
over rounds), CPU seconds of all cores, peak memory added by a step, XLA's planned temporaries (for
torch the tensors with values for every pair), and the ratio to ours by round. Cases above
4 GiB of planned memory or a TFLOP per step are not run. On a busy machine torch suffers
more, since its threads wait for each other: `taskset -c 0` gives all sides one core.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, from any folder

from speed import harness
from speed.harness import GIB

SIDES = {
    "dcsm": ("ours", "naive", "torch"),
    "pacl": ("ours", "pooled", "naive", "torch"),
    "pacl_own": ("ours", "torch"),
    "sparc": ("ours", "torch"),
}
# text tokens, as in the authors' code; other heads: the variant's
LENGTH = {"dcsm": 30}
LIMIT_BYTES, LIMIT_FLOPS = 4 * GIB, 1e12  # of temporaries and of a step
Built = tuple[dict, Callable[[], None]]


def main(
    heads: tuple = tuple(SIDES),
    models: tuple = ("B/32", "B/16", "L/14-336"),
    batches: tuple = (16, 256, 1024),
    no_torch: bool = False,
    torch_python: str = sys.executable,
    rounds: int = 5,
) -> None:
    pythons = {"torch": torch_python}
    for case in ((head, model, batch) for head in heads for model in models for batch in batches):
        workers, sizes = dict[str, harness.Worker](), None
        for name in SIDES[case[0]]:
            if name == "torch" and no_torch:
                continue
            options = dict(zip(("head", "model", "batch"), case, strict=True))
            # without JAX_PLATFORMS our sides would take a GPU, and torch the CPU
            workers[name] = harness.Worker(
                name, pythons.get(name, sys.executable), "heads.py", {"JAX_PLATFORMS": "cpu"},
                side=name, sizes=sizes, **options,
            )  # fmt: skip
            sizes = sizes or workers[name].facts["sizes"]
        steps = {
            name: partial(worker.ask, "step")
            for name, worker in workers.items()
            if worker.facts["can_run"]
        }
        facts = {
            name: {"planned GiB": planned / GIB} if (planned := worker.facts["planned"]) else {}
            for name, worker in workers.items()
        }
        title = "{}, {}, batch {}".format(*case)
        # workers take their first step before the first round
        harness.compare(title, steps, rounds, "ours", facts=facts, warm_up=0)
        for worker in workers.values():
            worker.close()


def build(side: str, sizes: dict | None, **case: Any) -> tuple[dict, harness.Ask]:
    """Facts of one side of a case, and a function that takes a step."""
    made = build_torch(sizes, case["head"]) if side == "torch" else build_jax(side, **case)
    facts, make_step = made
    operations = facts.get("sizes", sizes)["operations"]
    can_run = facts["planned"] <= LIMIT_BYTES and operations <= LIMIT_FLOPS
    if can_run:
        step = make_step()
        # the first step allocates memory, and would count as the peak of the first round
        step()

    def ask(_: str) -> dict:
        before = harness.memory("VmRSS")
        # resets VmHWM, the peak, to VmRSS: else the peak of the compiler hides that of the step
        Path("/proc/self/clear_refs").write_text("5")
        _, seconds = harness.timed(step)
        return {**seconds, "GiB": (harness.memory() - before) / GIB}

    return {**facts, "can_run": can_run}, ask


def build_jax(side: str, head: str, model: str, batch: int) -> Built:
    """Facts of one side in JAX, and a function that makes its step."""
    import jax

    from speed.train_step import random_arrays
    from vlc_jax import losses, models
    from vlc_jax.models.parameters import Parameters, merge_trees
    from vlc_jax.train import compiled_step

    name, _, is_own_caption = head.partition("_")
    options = {"pooling": "own_caption"} if is_own_caption else {}
    length = {"context_length": LENGTH[name]} if name in LENGTH else {}
    net = models.build(name, model, head=options, **length)
    if side != "ours":
        fields = {key: getattr(net.head, key) for key in models._fields(type(net.head))}
        net = net.clone(head=naive_head(name, side)(**fields | {"chunk": batch}))
    shapes = jax.eval_shape(lambda key: models.init(net, key), jax.random.key(0))
    parameters = Parameters(net, 0, shapes, ("image", "text", "head/functional_words"))
    params, frozen = parameters.split(shapes)
    frozen = {"head": frozen.get("head", {})}
    names = ("infonce", "sparc_local") if name == "sparc" else ("infonce",)

    def loss(params, frozen, batch, key):
        variables = {"params": merge_trees(frozen, params)}
        outputs = net.apply(variables, batch, rngs={"dropout": key})
        return losses.total({name: {"weight": 1.0} for name in names}, outputs, batch)[0]

    features, key = stored(net, shapes, batch), jax.random.key(0)
    gradient = jax.jit(jax.value_and_grad(loss))
    compiled = compiled_step.compile_and_count(gradient, params, frozen, features, key)
    image, text = net.image, net.text
    sizes = {
        "batch": batch,
        "patches": image.grid**2,
        "width": image.width,
        "embed": image.projection or image.width,
        "text_width": text.width,
        "length": text.context_length,
        "operations": round(compiled.flops.model),
    }

    def make_step() -> Callable[[], None]:
        arrays = (random_arrays(each, text) for each in (params, frozen, features))
        # on the device before the first step: else every step would copy them there
        placed = jax.device_put(tuple(arrays))
        return lambda: jax.block_until_ready(compiled(*placed, key))

    return {"planned": compiled.program.memory_analysis().temp_size_in_bytes, "sizes": sizes}, (
        make_step
    )


def build_torch(sizes: dict, head: str) -> Built:
    """The same in torch; "planned" counts tensors with values for every pair."""
    # here, since only the interpreter of --torch-python has torch
    from speed import torch_heads

    case = SimpleNamespace(**sizes)
    planned = 4 * case.batch**2 * torch_heads.floats_per_pair(head, case)
    return {"planned": planned}, partial(torch_heads.make_step, head, case)


def naive_head(name: str, side: str) -> type:
    """Class of a head that computes the printed formula for all pairs at once.

    side: "pooled" writes PACL's sum over patches as a matrix product.
    """
    import jax
    import jax.numpy as jnp
    from jaxtyping import Array

    from vlc_jax.models import dcsm, pacl

    class NaiveDCSM(dcsm.DCSM):
        def score(self, image, text, *, is_training: bool = False, scaling: Any = None) -> Array:
            maps = jnp.einsum("npd,mtd->nmpt", image.tokens, text.tokens, precision="highest")
            x = maps + self._word_columns(text)[None]
            x = ((x - x.mean()) / x.std(ddof=1)).reshape(-1, 1, *maps.shape[2:])
            for name in ("conv_0", "conv_1"):
                x = jax.lax.conv_general_dilated(x, self.net[name], (1, 1), "SAME")
                x = jax.nn.relu(x + self.net[f"{name}_bias"][None, :, None, None])
            x = x.reshape(len(x), -1) @ self.net["dense_0"] + self.net["dense_0_bias"][None]
            x = jax.nn.relu(x) @ self.net["dense_1"] + self.net["dense_1_bias"][None]
            return x.reshape(maps.shape[:2])

    class NaivePACL(pacl.PACL):
        def score(self, image, text, *, is_training: bool = False) -> Array:
            weights = self.weights(image.tokens, text.pooled[None])
            if side == "pooled":
                pooled = jnp.einsum("ipt,ipe->ite", weights, image.tokens)
            else:
                pooled = jnp.sum(weights[..., None] * image.tokens[:, :, None], axis=1)
            pooled *= jax.lax.rsqrt(jnp.sum(pooled**2, axis=-1, keepdims=True) + 1e-12)
            return jnp.einsum("ite,te->it", pooled, text.pooled)

    return {"dcsm": NaiveDCSM, "pacl": NaivePACL}[name]


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
    harness.command(main, build, heads=SIDES)
