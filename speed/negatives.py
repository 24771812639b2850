"""Speed of hard texts: training steps with several texts per image, and generators.

  python speed/negatives.py --model mini --batch 128

Steps with 1, 2 and 3 texts per image are compiled in one process and timed in interleaved rounds:
the fastest of --steps each. Prints the ratio of time and of FLOPs to plain CLIP, which is always
among --cases. The generators run on --captions of the embedded scenes, on one core.
"""

import itertools
import sys
from collections.abc import Callable, Sequence
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
from vlc_jax.input_pipeline.sources.scene_records import ScenesSource

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


def make_step(model: str, batch: int, name: str) -> tuple[Callable[[], None], float]:
    """A function that runs one step, and its FLOPs."""
    negatives, positives, losses = STEPS[name]
    config = default.get_config()
    with config.unlocked():
        config.batch_size = batch
        config.input.negatives.count, config.input.positives.count = negatives, positives
        config.losses = ConfigDict({loss: default.loss(weight=1.0) for loss in losses})
    step = train_step.build(config, models.build(variant=model))
    return step.run, step.compiled.flops.model


def fastest(step: Callable[[], None], steps: int) -> dict[str, float]:
    """Milliseconds of the fastest of several steps."""
    # another side's step has emptied the caches, which training never does
    step()
    return {"ms": 1e3 * min(harness.timed(step)[1]["s"] for _ in range(steps))}


def main(
    model: str = "mini",
    batch: int = 128,
    cases: tuple = tuple(STEPS),
    steps: int = 2,
    captions: int = 2000,
    rounds: int = 10,
) -> None:
    # before the first use of a device, as vlc_jax.main does
    runtime.connect(None, None, None)
    made = {name: make_step(model, batch, name) for name in STEPS if name in ("CLIP", *cases)}
    sides = {name: partial(fastest, step, steps) for name, (step, _) in made.items()}
    facts = {name: {"FLOPs / CLIP": flops / made["CLIP"][1]} for name, (_, flops) in made.items()}
    title = f"{model}, batch {batch}, {jax.devices()[0].device_kind}"
    harness.compare(title, sides, rounds, "CLIP", facts=facts)
    time_generators(captions, rounds)


def time_generators(count: int, rounds: int) -> None:
    source = ScenesSource(count=count, captions=1, caption_options={"relation": 0.5})
    records = [source[index] for index in range(count)]
    captions = [(record.captions[0], record.meta["scene"]) for record in records]
    sides = {}
    for side in ("negatives", "positives"):
        for name, make in sampling.generator_table(side).items():
            # the speed of these is that of a language model, or of a look-up
            if name not in ("svlc_fill_mask", "from_table"):
                generator = make(tagger="scenes:scenes-mini") if name in TAGGED else make()
                sides[name] = generating(generator, captions)
    harness.compare("generator", sides, rounds, "", warm_up=0)


def generating(generator: Callable, captions: Sequence[tuple[str, dict]]) -> harness.Side:
    """A function that measures a generator with another seed each time."""
    seeds = itertools.count()

    def texts() -> dict[str, float]:
        rng = np.random.default_rng(next(seeds))
        made, seconds = harness.timed(
            lambda: sum(bool(generator(caption, rng, 1, scene)) for caption, scene in captions)
        )
        count = len(captions)
        return {"captions/s": count / seconds["s"], "with a text": made / count}

    return texts


if __name__ == "__main__":
    harness.command(main, cases=STEPS)
