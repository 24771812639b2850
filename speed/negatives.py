"""Speed of hard texts: training steps with several texts per image, and generators.

  python speed/negatives.py --model mini --batch 128

Steps with 1, 2 and 3 texts per image are compiled in one process and timed in interleaved rounds.
Prints the ratio of time and of FLOPs to plain CLIP. The generators run on captions of the embedded
scenes, on one core.
"""

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, from any folder

import jax  # noqa: E402
import numpy as np  # noqa: E402
from ml_collections import ConfigDict  # noqa: E402

from vlc_jax import models, setup  # noqa: E402
from vlc_jax.configs import default  # noqa: E402
from vlc_jax.devices import (  # noqa: E402
    runtime,
    sharding,
)
from vlc_jax.input_pipeline.hard_texts import sampling  # noqa: E402
from vlc_jax.input_pipeline.sources.scenes import ScenesSource  # noqa: E402
from vlc_jax.setup.state import init_state  # noqa: E402
from vlc_jax.train import step as train_step  # noqa: E402

STEPS = {  # step -> hard negatives, hard positives, losses
    "CLIP": (0, 0, ("infonce",)),
    "NegCLIP, 1 negative": (1, 0, ("negclip",)),
    "SVLC, 1 negative": (1, 0, ("infonce", "svlc_negative")),
    "NegCLIP, 2 negatives": (2, 0, ("negclip",)),
    "HP+HN, 1 negative, 1 positive": (1, 1, ("infonce", "svlc_negative", "analogy")),
}
TAGGED = ("negclip", "shuffle_nouns_and_adjectives", "shuffle_all_but_nouns_and_adjectives")


def make_step(args: argparse.Namespace, name: str) -> tuple[Callable[[], float], float]:
    """A function that runs one step and returns its seconds, and the FLOPs of a step."""
    negatives, positives, losses = STEPS[name]
    config = default.get_config()
    with config.unlocked():
        config.batch_size = args.batch
        config.input.negatives.count, config.input.positives.count = negatives, positives
        config.losses = ConfigDict({loss: default.loss(weight=1.0) for loss in losses})
    model = models.build(variant=args.model)
    size, length = model.image.image_size, model.text.context_length
    run = setup.of_model(config, model, config.steps)
    state = jax.jit(partial(init_state, run))({})
    rng = np.random.default_rng(0)

    def texts(*shape: int) -> np.ndarray:
        tokens = rng.integers(3, model.text.vocab_size - 2, (*shape, length), dtype=np.int32)
        tokens[..., -1] = model.text.eos_id
        return tokens

    batch = {
        "image": rng.integers(0, 256, (args.batch, size, size, 3), dtype=np.uint8),
        "text": texts(args.batch),
        "id": rng.integers(0, 2**32, (args.batch, 2), dtype=np.uint32),
        "mask": np.ones(args.batch, bool),
        "stop": np.zeros(args.batch, bool),
    }
    for kind, count in (("negative", negatives), ("positive", positives)):
        if count:
            batch[f"{kind}_text"] = texts(args.batch, count)
            batch[f"{kind}_mask"] = np.ones((args.batch, count), bool)
    batch = sharding.put_batch(run.mesh, batch)
    compiled = train_step.compile_step(run, state, {}, batch)

    def step() -> float:
        nonlocal state
        start = time.perf_counter()
        state, metrics = compiled(state, {}, batch)
        jax.block_until_ready((state, metrics))
        return time.perf_counter() - start

    return step, compiled.flops.model


def time_steps(args: argparse.Namespace) -> None:
    steps = {name: make_step(args, name) for name in STEPS if name in ("CLIP", *args.cases)}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for round_ in range(args.rounds + 1):
        for name, (step, _) in steps.items():
            step()  # warms the caches after another side's step
            best = min(step() for _ in range(args.steps))
            if round_:  # the first round allocates memory
                seconds[name].append(best)
    plain, plain_flops = seconds["CLIP"], steps["CLIP"][1]
    print(
        f"{args.model}, batch {args.batch}, jax {jax.__version__}, {jax.devices()[0].device_kind}"
    )
    print(f"{'step':32}{'ms':>8}{'x CLIP':>9}{'range':>14}{'x FLOPs':>9}{'measured / FLOPs':>18}")
    for name, (_, flops) in steps.items():
        ratios = [mine / other for mine, other in zip(seconds[name], plain, strict=True)]
        ratio, of_flops = statistics.median(ratios), flops / plain_flops
        span = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(
            f"{name:32}{1e3 * statistics.median(seconds[name]):8.0f}{ratio:9.2f}{span:>14}"
            f"{of_flops:9.2f}{ratio / of_flops:18.2f}"
        )


def time_generators(args: argparse.Namespace) -> None:
    source = ScenesSource(count=args.captions, captions=1, caption_options={"relation": 0.5})
    records = [source[i] for i in range(args.captions)]
    captions = [(record.captions[0], record.meta["scene"]) for record in records]
    print(f"\n{'generator':40}{'captions/s':>12}{'with a text':>13}")
    for side in ("negatives", "positives"):
        for name, make in sampling.generator_table(side).items():
            if name == "svlc_fill_mask":
                continue  # its speed is that of its language model
            generator = make(tagger="scenes:scenes-mini") if name in TAGGED else make()
            rates = list(_rates(generator, captions, args.rounds))
            fraction = sum(rate[1] for rate in rates) / len(rates)
            print(f"{name:40}{statistics.median(rate[0] for rate in rates):12,.0f}{fraction:13.0%}")


def _rates(
    generator: Callable, captions: Sequence[tuple[str, dict]], rounds: int
) -> Iterator[tuple[float, float]]:
    """Yields (captions per second, fraction of captions with a text) per round."""
    for seed in range(rounds):
        rng = np.random.default_rng(seed)
        start = time.perf_counter()
        made = sum(bool(generator(caption, rng, 1, scene)) for caption, scene in captions)
        yield len(captions) / (time.perf_counter() - start), made / len(captions)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="mini", help="a variant of vlc_jax/models/variants.py")
    parser.add_argument("--batch", type=int, default=128, help="images per step")
    parser.add_argument(
        "--cases",
        nargs="*",
        default=list(STEPS),
        choices=STEPS,
        help="steps to time; CLIP, the reference, is always timed",
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=2, help="steps per round; the fastest counts")
    parser.add_argument("--captions", type=int, default=2000, help="for the generators")
    args = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    runtime.connect(None, None, None)  # as vlc_jax.main does
    time_steps(args)
    time_generators(args)


if __name__ == "__main__":
    main()
