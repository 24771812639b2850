"""Speed and memory of the losses: value and gradient from embeddings, by implementation.

  python speed/loss.py
  python speed/loss.py --devices 8 --batches 1024 4096 32768

Each loss is compiled dense, chunked and as a ring (with several devices), and timed in interleaved
rounds. Prints milliseconds (median over rounds), their ratio to dense by round, and XLA's planned
temporaries per device. Cases above --limit-gb of planned memory on all devices together, or above
--limit-tflop, are compiled but not run. One hard negative and one hard positive per example;
embeddings have width 512 and are sharded over all devices.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, from any folder

from speed import harness
from speed.harness import GIB
from vlc_jax import losses, types
from vlc_jax.devices import sharding

EMBED = 512
TEXTS = ("negative", "positive")
# losses that read no embeddings, or a head's further outputs; speed/heads.py has the first
OF_HEADS = ("caption", "itm", "self_distill", "masked_patches")


def main() -> None:
    parser = harness.parser(__doc__, rounds=5)
    names = [name for name in losses.LOSSES if not name.endswith("_local") and name not in OF_HEADS]
    parser.add_argument("--losses", nargs="+", choices=names, default=names, metavar="LOSS")
    parser.add_argument("--batches", nargs="+", type=int, default=[1024, 4096, 32768])
    parser.add_argument("--devices", type=int, default=1, help="simulated CPU devices")
    parser.add_argument("--chunk", type=int, default=256, help="images at a time")
    parser.add_argument("--limit-gb", type=float, default=8.0)
    parser.add_argument("--limit-tflop", type=float, default=0.5)
    args = parser.parse_args()
    # before the first use of a device, which fixes their number
    jax.config.update("jax_num_cpu_devices", args.devices)
    devices = f"{jax.device_count()} x {jax.devices()[0].device_kind}"
    harness.print_machine(f"jax {jax.__version__}", devices)
    columns = f"{'ms':>9}{'x dense':>9}{'range':>15}{'GiB':>9}"
    print(f"{'loss':22}{'batch':>8} {'implementation':16}{columns}")
    mesh = sharding.make_mesh()
    for batch in args.batches:
        arrays = embeddings(mesh, batch)
        for name in args.losses:
            measure(args, mesh, name, batch, arrays)


def embeddings(mesh: Any, batch: int) -> dict[str, Any]:
    """A sharded batch: unit vectors of images and texts, and their masks."""
    rng = np.random.default_rng(0)

    def unit(*shape: int) -> np.ndarray:
        x = rng.standard_normal((*shape, EMBED), np.float32)
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    arrays = {"image": unit(batch), "text": unit(batch), "mask": np.ones(batch, bool)}
    for kind in TEXTS:
        arrays[kind] = unit(batch, 1)
        arrays[f"{kind}_mask"] = np.ones((batch, 1), bool)
    return sharding.put_batch(mesh, arrays)


def make_step(
    mesh: Any, name: str, implementation: str, chunk: int, arrays: dict[str, Any]
) -> tuple[Callable[[], Any], int]:
    """A function that computes value and gradient of a loss, and the bytes of its temporaries.

    XLA removes scores that the loss does not read."""
    options: dict[str, Any] = {"weight": 1.0, "implementation": implementation}
    if implementation == "chunked":
        options["chunk"] = chunk
    needs = losses.LOSSES[name].needs

    def value(trained: dict[str, Any], batch: dict[str, Any]) -> jax.Array:
        image, text = trained["image"], trained["text"]
        hard = {kind: trained[kind] for kind in needs}
        more: dict[str, Any] = {}
        for kind, vectors in hard.items():
            more[f"{kind}_text"] = types.TextFeatures(vectors)
            more[f"{kind}_scores"] = jnp.einsum("ie,tke->itk", image, vectors)
            more[f"own_{kind}_scores"] = jnp.einsum("ie,ike->ik", image, vectors)
        outputs = types.Outputs(
            image=types.ImageFeatures(image),
            text=types.TextFeatures(text),
            scores=image @ text.T,
            logit_scale=trained["logit_scale"],
            logit_bias=trained["logit_bias"],
            own_scores=(image * text).sum(-1),
            thresholds=jnp.zeros(1),
            **more,
        )
        outputs = outputs._replace(teacher=outputs)
        masks = {f"{kind}_mask": batch[f"{kind}_mask"] for kind in needs}
        # the mask stands for the tokens: the loss only needs to know that they exist
        tokens = {f"{kind}_text": batch[f"{kind}_mask"] for kind in needs}
        return losses.total({name: options}, outputs, {"mask": batch["mask"], **masks, **tokens})[0]

    trained = {key: arrays[key] for key in ("image", "text", *needs)}
    trained |= {"logit_scale": jnp.float32(14.3), "logit_bias": jnp.float32(-10.0)}
    with jax.set_mesh(mesh):
        compiled = jax.jit(jax.value_and_grad(value)).lower(trained, arrays).compile()
    return lambda: compiled(trained, arrays), compiled.memory_analysis().temp_size_in_bytes


def measure(
    args: argparse.Namespace, mesh: Any, name: str, batch: int, arrays: dict[str, Any]
) -> None:
    """Prints a row per implementation of a loss."""
    loss = losses.LOSSES[name]
    names = [each for each in loss.implementations if each != "ring" or mesh.size > 1]
    sides: dict[str, tuple[Callable[[], Any], int]] = {
        each: make_step(mesh, name, each, args.chunk, arrays) for each in names
    }
    # scores of all pairs, forward and two gradients of them
    pairs = batch * batch * (1 + len(loss.contrasts_all))
    is_small = 6 * EMBED * pairs <= args.limit_tflop * 1e12
    run = {
        # dispatch is asynchronous: the time ends when the arrays are there
        each: lambda step=step: harness.timed(lambda: jax.block_until_ready(step()))[1]["s"]
        for each, (step, planned) in sides.items()
        if is_small and planned * mesh.size <= args.limit_gb * GIB
    }
    seconds = harness.interleave(run, args.rounds)
    for each, (_, planned) in sides.items():
        time, span = "not run", f"{'':24}"
        if each in run:
            time = f"{1e3 * statistics.median(seconds[each]):.1f}"
        if each in run and "dense" in run:
            ratio = harness.ratio(seconds[each], seconds["dense"])
            span = f"{ratio.median:9.2f}{ratio.span:>15}"
        print(f"{name:22}{batch:8,} {each:16}{time:>9}{span}{planned / GIB:9.3f}", flush=True)


if __name__ == "__main__":
    main()
