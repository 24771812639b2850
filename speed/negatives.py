"""Speed of hard texts: training steps with several texts per image, and generators.

  python speed/negatives.py --model mini --batch 128

Steps with 1, 2 and 3 texts per image are compiled in one process and timed in interleaved rounds.
Prints the ratio of time and of FLOPs to plain CLIP. The generators run on captions of the embedded
scenes, on one core.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import jax
import numpy as np
from ml_collections import ConfigDict

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # run as a file, from any folder

from speed import harness, train_step
from vlc_jax import models
from vlc_jax.configs import default
from vlc_jax.devices import runtime
from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.sources.scenes import ScenesSource

STEPS = {  # step -> hard negatives, hard positives, losses
    "CLIP": (0, 0, ("infonce",)),
    "NegCLIP, 1 negative": (1, 0, ("negclip",)),
    "SVLC, 1 negative": (1, 0, ("infonce", "svlc_negative")),
    "NegCLIP, 2 negatives": (2, 0, ("negclip",)),
    "HP+HN, 1 negative, 1 positive": (1, 1, ("infonce", "svlc_negative", "analogy")),
}
TAGGED = (
    "negclip", "noun_phrases", "shuffle_nouns_and_adjectives",
    "shuffle_all_but_nouns_and_adjectives",
)  # fmt: skip


def make_step(args: argparse.Namespace, name: str) -> tuple[Callable[[], None], float]:
    """A function that runs one step, and its FLOPs."""
    negatives, positives, losses = STEPS[name]
    config = default.get_config()
    with config.unlocked():
        config.batch_size = args.batch
        config.input.negatives.count, config.input.positives.count = negatives, positives
        config.losses = ConfigDict({loss: default.loss(weight=1.0) for loss in losses})
    step = train_step.build(config, models.build(variant=args.model))
    return step.run, step.compiled.flops.model


def fastest(step: Callable[[], None], steps: int) -> float:
    """Seconds of the fastest of several steps."""
    # another side's step has emptied the caches, which training never does
    step()
    return min(harness.timed(step)[1]["s"] for _ in range(steps))


def time_steps(args: argparse.Namespace) -> None:
    steps = {name: make_step(args, name) for name in STEPS if name in ("CLIP", *args.cases)}
    seconds = harness.interleave(
        {name: partial(fastest, step, args.steps) for name, (step, _) in steps.items()}, args.rounds
    )
    print(f"{args.model}, batch {args.batch}")
    print(f"{'step':32}{'ms':>8}{'x CLIP':>9}{'range':>14}{'x FLOPs':>9}{'measured / FLOPs':>18}")
    for name, (_, flops) in steps.items():
        ratio = harness.ratio(seconds[name], seconds["CLIP"])
        of_flops = flops / steps["CLIP"][1]
        print(
            f"{name:32}{1e3 * statistics.median(seconds[name]):8.0f}{ratio.median:9.2f}"
            f"{ratio.span:>14}{of_flops:9.2f}{ratio.median / of_flops:18.2f}"
        )


def time_generators(args: argparse.Namespace) -> None:
    source = ScenesSource(count=args.captions, captions=1, caption_options={"relation": 0.5})
    records = [source[i] for i in range(args.captions)]
    captions = [(record.captions[0], record.meta["scene"]) for record in records]
    print(f"\n{'generator':40}{'captions/s':>12}{'with a text':>13}")
    for side in ("negatives", "positives"):
        for name, make in sampling.generator_table(side).items():
            if name in ("svlc_fill_mask", "from_table"):
                # the speed is that of a language model, or of a look-up
                continue
            generator = make(tagger="scenes:scenes-mini") if name in TAGGED else make()
            rates, fractions = zip(*_rates(generator, captions, args.rounds), strict=True)
            fraction = sum(fractions) / len(fractions)
            print(f"{name:40}{statistics.median(rates):12,.0f}{fraction:13.0%}")


def _rates(
    generator: Callable, captions: Sequence[tuple[str, dict]], rounds: int
) -> Iterator[tuple[float, float]]:
    """Yields (captions per second, fraction of captions with a text) per round."""

    def texts(rng: np.random.Generator) -> int:
        return sum(bool(generator(caption, rng, 1, scene)) for caption, scene in captions)

    for seed in range(rounds):
        made, seconds = harness.timed(partial(texts, np.random.default_rng(seed)))
        yield len(captions) / seconds["s"], made / len(captions)


def main() -> None:
    parser = harness.parser(__doc__, rounds=10)
    parser.add_argument("--model", default="mini", help="a variant of vlc_jax/models/variants.py")
    parser.add_argument("--batch", type=int, default=128, help="images per step")
    parser.add_argument(
        "--cases",
        nargs="*",
        default=list(STEPS),
        choices=STEPS,
        help="steps to time; CLIP, the reference, is always timed",
    )
    parser.add_argument("--steps", type=int, default=2, help="steps per round; the fastest counts")
    parser.add_argument("--captions", type=int, default=2000, help="for the generators")
    args = parser.parse_args()
    # before the first use of a device, as vlc_jax.main does
    runtime.connect(None, None, None)
    harness.print_machine(f"jax {jax.__version__}", jax.devices()[0].device_kind)
    time_steps(args)
    time_generators(args)


if __name__ == "__main__":
    main()
