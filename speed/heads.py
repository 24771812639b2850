"""What the heads cost: forward and gradient of their training loss, from stored features.

  python speed/heads.py --torch-python .venv-parity/bin/python
  python speed/heads.py --heads dcsm --models B/16 --batches 16

Beside ours stand the formula as one would write it in JAX (`naive`), for PACL also with the sum
over patches as a matrix product (`pooled`), and the authors' formulation in torch (`torch`): for
PACL what `naive` computes, for `pacl_own`, which pools every image by its own caption only, what
they train. Towers are frozen: the gradient is that of the head.

Each side lives in a process of its own and waits while the others work; each round takes one step
of each. Printed: seconds of a step (median over rounds), CPU seconds of all cores, the most memory
that a step added, temporaries as XLA plans them (of torch the tensors that hold something of every
pair), and the ratio to ours round by round. What plans more than --limit-gb, or whose step has more
operations than --limit-tflop, is not run. Where other programs run, torch loses more than its share
to threads that wait for each other: `taskset -c 0` gives all sides one core.
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SIDES = {
    "dcsm": ("ours", "naive", "torch"),
    "pacl": ("ours", "pooled", "naive", "torch"),
    "pacl_own": ("ours", "torch"),
    "sparc": ("ours", "torch"),
}
LENGTH = {"dcsm": 30}  # text tokens; the variant's otherwise
GIB = 2**30
Step = Callable[[], None] | None  # None: too large to run here


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heads", nargs="+", default=list(SIDES), choices=SIDES)
    parser.add_argument("--models", nargs="+", default=["B/32", "B/16", "L/14-336"])
    parser.add_argument("--batches", nargs="+", type=int, default=[16, 256, 1024])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit-gb", type=float, default=4.0, help="GiB of temporaries to run")
    parser.add_argument("--limit-tflop", type=float, default=1.0, help="FLOPs of a step to run")
    parser.add_argument("--no-torch", action="store_true")
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args)
        return
    cores = len(os.sched_getaffinity(0))
    print(f"{platform.machine()}, {cores} cores, Python {platform.python_version()}")
    print(f"{'head':9}{'model':10}{'batch':>6} {'side':8}{'s':>8}{'CPU s':>8}{'GiB':>7}", end="")
    print(f"{'planned':>9}   ratio to ours (range)")
    for head in args.heads:
        for model in args.models:
            for batch in args.batches:
                compare(args, head, model, batch)


def compare(args: argparse.Namespace, head: str, model: str, batch: int) -> None:
    names = [name for name in SIDES[head] if name != "torch" or not args.no_torch]
    workers, sizes = {}, []
    for name in names:
        workers[name] = Worker(args, name, [head, model, str(batch), *sizes])
        sizes = sizes or [str(size) for size in workers[name].facts["sizes"]]
    running = {name: worker for name, worker in workers.items() if worker.facts["can_run"]}
    answers = {name: [] for name in running}
    for _ in range(args.rounds):
        for name, worker in running.items():
            answers[name].append(worker.ask())
    for name, worker in workers.items():
        planned = worker.facts["planned"]
        line = f"{head:9}{model:10}{batch:6d} {name:8}"
        if name in running:
            rounds = answers[name]
            seconds, cpu = (statistics.median(a[key] for a in rounds) for key in ("s", "cpu"))
            peak = max(a["peak"] for a in rounds) / GIB
            line += f"{seconds:8.3f}{cpu:8.3f}{peak:7.2f}"
        else:
            line += f"{'-':>8}{'-':>8}{'-':>7}"
        line += f"{'-':>9}" if planned is None else f"{planned / GIB:9.2f}"
        if name in running and name != "ours" and "ours" in running:
            pairs = list(zip(answers[name], answers["ours"], strict=True))
            wall = [a["s"] / b["s"] for a, b in pairs]
            of_cpu = statistics.median(a["cpu"] / b["cpu"] for a, b in pairs)
            line += f"   {statistics.median(wall):.1f} x ({min(wall):.1f} to {max(wall):.1f})"
            line += f", CPU {of_cpu:.1f} x"
        print(line, flush=True)
        worker.close()


class Worker:
    """A process that builds its step, then takes one each time it is asked."""

    def __init__(self, args: argparse.Namespace, side: str, case: list[str]):
        python = args.torch_python if side == "torch" else sys.executable
        command = [python, __file__, "--worker", side, *case]
        command += ["--limit-gb", str(args.limit_gb), "--limit-tflop", str(args.limit_tflop)]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
            text=True,
        )
        self.facts = self._read()

    def ask(self) -> dict:
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the {self.process.args[3]} side ended; its error is above")
        return json.loads(line)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def work(args: argparse.Namespace) -> None:
    """Answers each line of stdin with a line of JSON; whatever libraries print goes to stderr."""
    answers, sys.stdout = sys.stdout, sys.stderr
    side, head, model, batch, *sizes = args.worker
    if side == "torch":
        facts, step = build_torch(args, head, int(batch), *map(int, sizes))
    else:
        facts, step = build_jax(args, side, head, model, int(batch))
    if step:
        step()  # the first touches memory
    print(json.dumps({**facts, "can_run": bool(step)}), file=answers, flush=True)
    for _ in sys.stdin:
        before = memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew
        start, cpu = time.perf_counter(), time.process_time()
        step()
        answer = {"s": time.perf_counter() - start, "cpu": time.process_time() - cpu}
        print(json.dumps({**answer, "peak": memory("VmHWM") - before}), file=answers, flush=True)


def memory(name: str) -> int:
    """Bytes of this process, from Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def build_jax(
    args: argparse.Namespace, side: str, head: str, variant: str, batch: int
) -> tuple[dict, Step]:
    import jax
    import jax.numpy as jnp
    from jaxtyping import Array

    from vlc_jax import losses, models
    from vlc_jax.models import dcsm, flops, pacl

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

    naive = {"dcsm": NaiveDCSM, "pacl": NaivePACL}
    name, _, is_own = head.partition("_")
    options = {"pooling": "own_caption"} if is_own else {}
    length = {"context_length": LENGTH[name]} if name in LENGTH else {}
    model = models.build(name, variant, head=options, **length)
    if side != "ours":
        own = {key: getattr(model.head, key) for key in models._fields(type(model.head))}
        model = model.clone(head=naive[name](**own | {"chunk": batch}))
    shapes = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    params = {part: shapes[part] for part in ("head", "logit_scale")}
    names = ("infonce", "sparc_local") if name == "sparc" else ("infonce",)

    def loss(params, batch, key):
        outputs = model.apply({"params": params}, batch, rngs={"dropout": key})
        return losses.total({name: {"weight": 1.0} for name in names}, outputs, batch)[0]

    features = stored(model, batch)
    key = jax.random.key(0)
    compiled = jax.jit(jax.value_and_grad(loss)).lower(params, features, key).compile()
    image, text = model.image, model.text
    embed = image.projection or image.width
    operations = batch * flops.head(model, pairs=batch, frozen=("image", "text"))
    facts = {
        "planned": compiled.memory_analysis().temp_size_in_bytes,
        "sizes": (image.grid**2, image.width, embed, text.width, text.context_length, operations),
    }
    if facts["planned"] > args.limit_gb * GIB or operations > args.limit_tflop * 1e12:
        return facts, None
    params, features = random(params), random(features)
    features["text"] = features["text"].at[:, -1].set(text.eos_id)

    def step() -> None:
        jax.block_until_ready(compiled(params, features, key))

    return facts, step


def stored(model, batch: int) -> dict:
    """Shapes of stored features, as `model.head` requests them."""
    import jax

    sizes = model.image.grid**2 + (model.image.pooling == "cls"), model.text.context_length
    rows = {"text": jax.ShapeDtypeStruct((batch, sizes[1]), "int32")}
    rows["mask"] = jax.ShapeDtypeStruct((batch,), bool)
    if getattr(model.head, "num_functional_words", 0):
        rows["text_marks"] = jax.ShapeDtypeStruct((batch, sizes[1]), "int8")
    towers = {"image": model.image, "text": model.text}
    for (part, tower), request, count in zip(
        towers.items(), model.head.requests, sizes, strict=True
    ):
        embed = tower.projection or tower.width
        rows[f"{part}_pooled"] = jax.ShapeDtypeStruct((batch, embed), "float32")
        if request.tokens != "none":
            width = embed if request.tokens == "projected" else tower.width
            rows[f"{part}_tokens"] = jax.ShapeDtypeStruct((batch, count, width), "float32")
    return rows


def random(shapes):
    import jax
    import jax.numpy as jnp
    import numpy as np

    rng = np.random.default_rng(0)

    def draw(leaf):
        if leaf.dtype == bool:
            return jnp.ones(leaf.shape, bool)
        if leaf.dtype == jnp.int8:  # no functional word
            return jnp.zeros(leaf.shape, jnp.int8)
        if leaf.dtype == jnp.int32:
            return jnp.asarray(rng.integers(3, 60, leaf.shape), jnp.int32)
        x = rng.standard_normal(leaf.shape, np.float32)
        return jnp.asarray(x / math.sqrt(leaf.shape[-1] if leaf.shape else 1))

    return jax.tree.map(draw, shapes)


def build_torch(
    args: argparse.Namespace,
    head: str,
    batch: int,
    patches: int,
    width: int,
    embed: int,
    text_width: int,
    length: int,
    operations: int,
) -> tuple[dict, Step]:
    """What is planned is here the size of the tensors that hold something of every pair."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    pairs = {"dcsm": (patches + 1) * length * (3 + 4 * 4), "pacl": patches * embed}.get(head, 0)
    facts = {"planned": 4 * batch**2 * pairs or None}
    if 4 * batch**2 * pairs > args.limit_gb * GIB or operations > args.limit_tflop * 1e12:
        return facts, None
    torch.manual_seed(0)
    targets = torch.arange(batch)

    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(0.1)
            self.linear = nn.Linear(width, embed)
            self.mlp = nn.Sequential(nn.Linear(width, embed), nn.GELU(), nn.Linear(embed, embed))

        def forward(self, x):
            x = self.drop(self.norm(x))
            return self.linear(x) + self.mlp(x)

    def symmetric(logits):
        return F.cross_entropy(logits, targets) + F.cross_entropy(logits.T, targets)

    def words(inputs):
        return nn.Sequential(nn.LayerNorm(inputs), nn.Dropout(0.1), nn.Linear(inputs, embed))

    def dcsm():
        rows, columns = patches + 1, length
        image = F.normalize(torch.randn(batch, rows, embed), dim=-1)
        text = F.normalize(torch.randn(batch, columns, embed), dim=-1)
        table = (F.normalize(torch.randn(11, rows), dim=-1) + 1) / 3
        convolutions = nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1)
        dense = nn.Linear(4 * rows * columns, 128), nn.ReLU(), nn.Linear(128, 1)
        net = nn.Sequential(*convolutions, nn.ReLU(), nn.Flatten(), *dense)

        def loss():
            maps = torch.einsum("npd,mtd->nmpt", image, text)
            found = []
            for j in range(batch):  # a functional word in every caption
                k, column = 3 + j % 5, table[j % 11][None, :, None].expand(batch, rows, 1)
                found.append(torch.cat([maps[:, j, :, :k], column, maps[:, j, :, k + 1 :]], -1))
            maps = torch.stack(found, 1)
            maps = (maps - maps.mean()) / maps.std()
            return symmetric(net(maps.reshape(-1, 1, rows, columns)).reshape(batch, batch))

        return net, loss

    def pacl():
        image, text = torch.randn(batch, patches, width), torch.randn(batch, embed)
        net = nn.ModuleDict({"image": Patches(), "text": words(embed)})

        def loss():
            e, t = net["image"](image), F.normalize(net["text"](text), dim=-1)
            if head == "pacl_own":
                weights = torch.sigmoid(10 * torch.einsum("ipd,id->ip", F.normalize(e, dim=-1), t))
                v = F.normalize((weights[..., None] * e).sum(1), dim=-1)
                return symmetric(10 * v @ t.T) / 2
            weights = torch.sigmoid(10 * torch.einsum("ipd,jd->ijp", F.normalize(e, dim=-1), t))
            v = F.normalize((weights[..., None] * e[:, None]).sum(2), dim=-1)
            return symmetric(10 * (v * t[None]).sum(-1)) / 2

        return net, loss

    def sparc():
        image, text = torch.randn(batch, patches, width), torch.randn(batch, length, text_width)
        net = nn.ModuleDict({"image": Patches(), "text": words(text_width)})

        def loss():
            v, t = net["image"](image), net["text"](text)
            s = torch.einsum("bld,bpd->blp", t, v)
            low, high = s.amin(-1, keepdim=True), s.amax(-1, keepdim=True)
            s = (s - low) / (high - low + 1e-8)
            s = torch.where(s < 1 / patches, torch.zeros_like(s), s)
            s = s / (s.sum(-1, keepdim=True) + 1e-8)
            groups = F.normalize(torch.einsum("blp,bpd->bld", s, v), dim=-1)
            t = F.normalize(t, dim=-1)
            logits = 10 * torch.einsum("bld,bkd->blk", groups, t)
            own = torch.arange(length).expand(batch, length)
            local = F.cross_entropy(logits, own) + F.cross_entropy(logits.mT, own)
            pooled = [F.normalize(x.mean(1), dim=-1) for x in (v, t)]
            return local + symmetric(10 * pooled[0] @ pooled[1].T) / 2

        return net, loss

    net, loss = {"dcsm": dcsm, "pacl": pacl, "pacl_own": pacl, "sparc": sparc}[head]()

    def step() -> None:
        net.zero_grad()
        loss().backward()

    return facts, step


if __name__ == "__main__":
    main()
