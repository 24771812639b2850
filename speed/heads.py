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
--limit-gb of planned memory or --limit-tflop per step are not run. On a busy machine torch suffers
more, since its threads wait for each other: `taskset -c 0` gives all sides one core.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, from any folder

from speed import harness
from speed.harness import GIB
from speed.head_sizes import Sizes

SIDES = {
    "dcsm": ("ours", "naive", "torch"),
    "pacl": ("ours", "pooled", "naive", "torch"),
    "pacl_own": ("ours", "torch"),
    "sparc": ("ours", "torch"),
}
# text tokens, as in the authors' code; other heads: the variant's
LENGTH = {"dcsm": 30}
Step = Callable[[], None] | None  # None: too large to run here


def main() -> None:
    parser = harness.parser(__doc__, rounds=5, has_workers=True)
    parser.add_argument("--heads", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument("--models", nargs="+", default=["B/32", "B/16", "L/14-336"])
    parser.add_argument("--batches", nargs="+", type=int, default=[16, 256, 1024])
    parser.add_argument("--limit-gb", type=float, default=4.0, help="GiB of temporaries to run")
    parser.add_argument("--limit-tflop", type=float, default=1.0, help="FLOPs of a step to run")
    parser.add_argument("--no-torch", action="store_true")
    args = parser.parse_args()
    if args.worker:
        harness.serve(serve, args)
        return
    harness.print_machine()
    print(f"{'head':9}{'model':10}{'batch':>6} {'side':8}{'s':>8}{'CPU s':>8}{'GiB':>7}", end="")
    print(f"{'planned':>9}   ratio to ours (range)")
    for head in args.heads:
        for model in args.models:
            for batch in args.batches:
                compare(args, head, model, batch)


def compare(args: argparse.Namespace, head: str, model: str, batch: int) -> None:
    """Measures all sides of one case, interleaved, and prints a line per side."""
    workers: dict[str, harness.Worker] = {}
    sizes: list[int] = []
    limits = ("--limit-gb", args.limit_gb, "--limit-tflop", args.limit_tflop)
    for name in SIDES[head]:
        if name == "torch" and args.no_torch:
            continue
        python = args.torch_python if name == "torch" else sys.executable
        case = ("--worker", name, head, model, batch, *sizes)
        # without JAX_PLATFORMS our sides would take a GPU, and torch the CPU
        workers[name] = harness.Worker(
            name, python, "heads.py", *case, *limits, JAX_PLATFORMS="cpu"
        )
        sizes = sizes or workers[name].facts["sizes"]
    steps = {
        name: partial(worker.ask, "step")
        for name, worker in workers.items()
        if worker.facts["can_run"]
    }
    # workers take their first step before the first round
    answers = harness.interleave(steps, args.rounds, warm_up=0)
    columns = {
        name: {key: [each[key] for each in rows] for key in ("s", "cpu", "peak")}
        for name, rows in answers.items()
    }
    for name, worker in workers.items():
        line = f"{head:9}{model:10}{batch:6d} {name:8}"
        line += describe(columns.get(name), worker.facts["planned"])
        if name in columns and name != "ours" and "ours" in columns:
            wall, cpu = (harness.ratio(columns[name][k], columns["ours"][k]) for k in ("s", "cpu"))
            line += f"   {wall.median:.1f} x ({wall.low:.1f} to {wall.high:.1f})"
            line += f", CPU {cpu.median:.1f} x"
        print(line, flush=True)
        worker.close()


def describe(measured: dict[str, list[float]] | None, planned: int | None) -> str:
    """Columns of a side: seconds, CPU seconds and memory of a step, and planned memory."""
    line = f"{'-':>8}{'-':>8}{'-':>7}"
    if measured:
        seconds, cpu = (statistics.median(measured[key]) for key in ("s", "cpu"))
        line = f"{seconds:8.3f}{cpu:8.3f}{max(measured['peak']) / GIB:7.2f}"
    return line + (f"{'-':>9}" if planned is None else f"{planned / GIB:9.2f}")


def serve(args: argparse.Namespace) -> tuple[dict, harness.Ask]:
    """Facts of one side of a case, and a function that takes a step."""
    side, head, model, batch, *sizes = args.worker
    if side == "torch":
        facts, step = build_torch(args, head, Sizes(*map(int, sizes)))
    else:
        facts, step = build_jax(args, side, head, model, int(batch))
    if step:
        # the first step allocates memory, and would count as the peak of the first round
        step()

    def ask(_: str) -> dict:
        before = memory("VmRSS")
        # resets VmHWM, the peak, to VmRSS: else the peak of the compiler hides that of the step
        Path("/proc/self/clear_refs").write_text("5")
        _, seconds = harness.timed(step)
        return {**seconds, "peak": memory("VmHWM") - before}

    return {**facts, "can_run": bool(step)}, ask


def memory(name: str) -> int:
    """Bytes of the field `name` in Linux's /proc/self/status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def build_jax(
    args: argparse.Namespace, side: str, head: str, variant: str, batch: int
) -> tuple[dict, Step]:
    """Facts and step of one side in JAX; step is None above the limits."""
    import jax

    from speed.train_step import random_arrays
    from vlc_jax import losses, models
    from vlc_jax.models.parameters import Parameters, merge_trees
    from vlc_jax.train import compiled_step

    name, _, is_own_caption = head.partition("_")
    options = {"pooling": "own_caption"} if is_own_caption else {}
    length = {"context_length": LENGTH[name]} if name in LENGTH else {}
    model = models.build(name, variant, head=options, **length)
    if side != "ours":
        fields = {key: getattr(model.head, key) for key in models._fields(type(model.head))}
        model = model.clone(head=naive_head(name, side)(**fields | {"chunk": batch}))
    shapes = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    parameters = Parameters(model, 0, shapes, ("image", "text", "head/functional_words"))
    params, frozen = parameters.split(shapes)
    frozen = {"head": frozen.get("head", {})}
    names = ("infonce", "sparc_local") if name == "sparc" else ("infonce",)

    def loss(params, frozen, batch, key):
        variables = {"params": merge_trees(frozen, params)}
        outputs = model.apply(variables, batch, rngs={"dropout": key})
        return losses.total({name: {"weight": 1.0} for name in names}, outputs, batch)[0]

    features = stored(model, shapes, batch)
    key = jax.random.key(0)
    gradient = jax.jit(jax.value_and_grad(loss))
    compiled = compiled_step.compile_and_count(gradient, params, frozen, features, key)
    image, text = model.image, model.text
    embed = image.projection or image.width
    operations = round(compiled.flops.model)
    facts = {
        "planned": compiled.program.memory_analysis().temp_size_in_bytes,
        "sizes": Sizes(
            batch, image.grid**2, image.width, embed, text.width, text.context_length, operations
        ),
    }
    if facts["planned"] > args.limit_gb * GIB or operations > args.limit_tflop * 1e12:
        return facts, None
    arrays = (random_arrays(each, text) for each in (params, frozen, features))
    # on the device before the first step: else every step would copy them there
    params, frozen, features = jax.device_put(tuple(arrays))

    def step() -> None:
        jax.block_until_ready(compiled(params, frozen, features, key))

    return facts, step


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


def build_torch(args: argparse.Namespace, head: str, sizes: Sizes) -> tuple[dict, Step]:
    """Facts and step of the torch side; "planned" counts tensors with values for every pair."""
    # here, since only the interpreter of --torch-python has torch
    from speed import torch_heads

    planned = 4 * sizes.batch**2 * torch_heads.floats_per_pair(head, sizes)
    facts = {"planned": planned or None}
    if planned > args.limit_gb * GIB or sizes.operations > args.limit_tflop * 1e12:
        return facts, None
    return facts, torch_heads.make_step(head, sizes)


if __name__ == "__main__":
    main()
