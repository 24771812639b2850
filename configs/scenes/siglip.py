"""SigLIP (Zhai et al. 2023) on the embedded scenes: CLIP's towers and data, a sigmoid loss.

  python -m vlc_jax.main --config configs/scenes/siglip.py --workdir runs/siglip

Arguments: steps=N; world and split as in clip.py. Scale and bias start as in section 3 of the
paper: 10 and -10.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import arguments, scenes


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, steps=1000, world="scenes-mini", split="validation")
    return scenes.siglip(args.steps, args.world, args.split)
