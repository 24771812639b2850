"""Speed and memory of the losses: value and gradient from embeddings, by implementation.

  python speed/loss.py
  python speed/loss.py --devices 8 --batches 1024 4096 32768
  python speed/loss.py --precisions highest TF32_TF32_F32_X3   # of tiles, on a GPU that has it

Each loss is compiled dense, chunked (--chunk images at a time) and as a ring (with several
simulated CPU devices), and timed in interleaved rounds. Prints milliseconds, their ratio to dense
by round, XLA's planned temporaries per device, and of `infonce` up to 4,096 pairs the norm of the
gradient's error against float64, relative to the gradient's. Cases above --gib of planned memory on
all devices together, or above --tflop, are compiled but not timed. One hard negative and one hard
positive per example; embeddings are sharded over all devices.
"""

import itertools
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, from any folder

from speed import harness
from vlc_jax import types
from vlc_jax.devices import sharding
from vlc_jax.losses import LOSSES, tiles, total

SCALE = 100.0  # of scores: CLIP's largest
TEXTS = ("negative", "positive")
# losses that read no embeddings, or a head's further outputs; speed/heads.py has the first
OF_HEADS = ("caption", "itm", "self_distill", "masked_patches")
NAMES = tuple(name for name in LOSSES if not name.endswith("_local") and name not in OF_HEADS)


def main(
    losses: tuple = NAMES,
    batches: tuple = (1024, 4096, 32768),
    devices: int = 1,
    chunk: int = 256,
    rounds: int = 5,
    gib: float = 8.0,
    tflop: float = 0.5,
    width: int = 512,
    precisions: tuple = ("highest",),
) -> None:
    # before the first use of a device, which fixes their number
    jax.config.update("jax_num_cpu_devices", devices)
    print(f"{jax.device_count()} x {jax.devices()[0].device_kind}, width {width}")
    mesh = sharding.make_mesh()
    for batch in batches:
        arrays = embeddings(mesh, batch, width)
        for name in losses:
            loss, steps, facts = LOSSES[name], {}, {}
            for precision, each in itertools.product(precisions, loss.implementations):
                # of one precision alone: the dense one has no tiles
                if (each == "ring" and mesh.size == 1) or (each == "dense" and "dense" in steps):
                    continue
                side = each if precision == precisions[0] else f"{each}, {precision}"
                tiles.PRECISION = getattr(jax.lax.DotAlgorithmPreset, precision, precision)
                steps[side], facts[side] = make_step(mesh, name, each, chunk, arrays)
            # scores of all pairs, forward and two gradients of them
            flop = 6 * width * batch**2 * (1 + len(loss.contrasts_all))
            sides = {
                side: step
                for side, step in steps.items()
                if flop <= tflop * 1e12 and facts[side]["planned GiB"] * mesh.size <= gib
            }
            harness.compare(f"{name}, {batch:,}", sides, rounds, "dense", facts=facts)


def error(gradient: jax.Array, arrays: dict[str, Any]) -> float:
    """Error of infonce's gradient of the images against float64, relative in norm."""
    image, text = (np.asarray(arrays[name], np.float64) for name in ("image", "text"))
    scores = SCALE * image @ text.T
    mean = (special.softmax(scores, axis=0) + special.softmax(scores, axis=1)) / 2
    exact = SCALE / len(image) * (mean - np.eye(len(image))) @ text
    return float(np.linalg.norm(np.asarray(gradient) - exact) / np.linalg.norm(exact))


def embeddings(mesh: Any, batch: int, width: int) -> dict[str, Any]:
    """A sharded batch: unit vectors of images and texts, and their masks."""
    rng = np.random.default_rng(0)

    def unit(*shape: int) -> np.ndarray:
        x = rng.standard_normal((*shape, width), np.float32)
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    arrays = {"image": unit(batch), "text": unit(batch), "mask": np.ones(batch, bool)}
    for kind in TEXTS:
        arrays[kind] = unit(batch, 1)
        arrays[f"{kind}_mask"] = np.ones((batch, 1), bool)
    return sharding.put_batch(mesh, arrays)


def make_step(
    mesh: Any, name: str, implementation: str, chunk: int, arrays: dict[str, Any]
) -> tuple[harness.Side, dict[str, float]]:
    """A function that times value and gradient of a loss; its temporaries, and its error.

    XLA removes scores that the loss does not read."""
    options: dict[str, Any] = {"weight": 1.0, "implementation": implementation}
    options |= {"chunk": chunk} if implementation == "chunked" else {}
    needs = LOSSES[name].needs

    def value(trained: dict[str, Any], batch: dict[str, Any]) -> jax.Array:
        image, text = trained["image"], trained["text"]
        hard = {kind: trained[kind] for kind in needs}
        more: dict[str, Any] = {}
        for kind, vectors in hard.items():
            more[f"{kind}_text"] = types.TextFeatures(vectors)
            more[f"{kind}_scores"] = jnp.einsum("ie,tke->itk", image, vectors, precision="highest")
            more[f"own_{kind}_scores"] = jnp.einsum("ie,ike->ik", image, vectors)
        outputs = types.Outputs(
            image=types.ImageFeatures(image),
            text=types.TextFeatures(text),
            scores=jnp.dot(image, text.T, precision="highest"),  # as the heads
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
        return total({name: options}, outputs, {"mask": batch["mask"], **masks, **tokens})[0]

    trained = {key: arrays[key] for key in ("image", "text", *needs)}
    trained |= {"logit_scale": jnp.float32(SCALE), "logit_bias": jnp.float32(-10.0)}
    with jax.set_mesh(mesh):
        compiled = jax.jit(jax.value_and_grad(value)).lower(trained, arrays).compile()

    def step() -> dict[str, float]:
        # dispatch is asynchronous: the time ends when the arrays are there
        _, seconds = harness.timed(lambda: jax.block_until_ready(compiled(trained, arrays)))
        return {"ms": 1e3 * seconds["s"]}

    facts = {"planned GiB": compiled.memory_analysis().temp_size_in_bytes / harness.GIB}
    if name == "infonce" and len(arrays["mask"]) <= 4096:
        facts["error"] = error(compiled(trained, arrays)[1]["image"], arrays)
    return step, facts


if __name__ == "__main__":
    harness.command(main, losses=NAMES)
