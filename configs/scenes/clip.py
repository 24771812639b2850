"""CLIP (Radford et al. 2021) on the embedded scenes: the default run, a bag of words in the making.

  python -m vlc_jax.main --config configs/scenes/clip.py --workdir runs/clip
  python -m vlc_jax.main --config configs/scenes/clip.py:quickstart --workdir runs/demo/clip

Arguments: steps=N; quickstart (600 steps, which `make demo` runs first); world=scenes-hues (colours
that are hard to tell apart); split=validation, or test, to evaluate on; pooling=cls, or mean: then
the patch tokens of the last block are trained, too, which the heads of other configs read.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import arguments, scenes

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
    steps = QUICKSTART_STEPS if args.quickstart else args.steps
    return scenes.make(steps, args.world, args.split, args.pooling)
