"""CLIP on the embedded scenes: the default run, and the bag of words made visible.

  python -m vlc_jax.main --config configs/scenes/clip.py --workdir runs/clip
  python -m vlc_jax.main --config configs/scenes/clip.py:quickstart --workdir runs/demo/clip

Arguments: steps=N; quickstart (600 steps, which `make demo` runs first); world=scenes-hues (colours
that are hard to tell apart); split=validation, or test, to be judged on; pooling=cls, or mean: then
the patch tokens of the last block are trained, too, which the heads of other configs read.
"""

from ml_collections import ConfigDict

from configs import default
from configs.common import arguments

QUICKSTART_STEPS = 600


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(
        argument,
        steps=1000,
        quickstart=False,
        world="scenes-mini",
        split="validation",
        pooling="cls",
    )
    config = default.get_config()
    with config.unlocked():
        config.steps = QUICKSTART_STEPS if args.quickstart else args.steps
        config.eval.every = config.steps // 2
        config.model.image.pooling = args.pooling
        config.input.scenes.world = config.text.scenes.world = args.world
        config.evals = ConfigDict(evaluations(args.split, world=args.world))
    return config


def evaluations(
    split: str = "validation",
    count: int = 2000,
    candidates: int = 1000,
    world: str = "scenes-mini",
) -> dict:
    """Every evaluation set of the scenes: `count` cases each, retrieval among `candidates`."""
    retrieval = ("scenes_retrieval", "scenes_held_retrieval")
    cases = (
        "scenes_zero_shot_objects",
        "scenes_zero_shot_colours",
        "scenes_objects",
        "scenes_attributes",
        "scenes_attribute_swap",
        "scenes_relation_swap",
        "scenes_replace",
        "scenes_replace_unseen",
        "scenes_swap",
        "scenes_swap_relation",
        "scenes_order",
        "scenes_whatsup",
        "scenes_negation",
        "scenes_held_attribute_swap",
        "scenes_held_relation_swap",
    )
    counts = dict.fromkeys(retrieval, candidates) | dict.fromkeys(cases, count)
    return {name: {"split": split, "count": n, "world": world} for name, n in counts.items()}
