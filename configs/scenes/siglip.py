"""SigLIP (Zhai et al. 2023) on the embedded scenes: CLIP's towers and data, a sigmoid loss.

  python -m vlc_jax.main --config configs/scenes/siglip.py --workdir runs/siglip

Arguments: steps=N; world and split as in clip.py. Scale and bias start as in section 3 of the
paper: 10 and -10.
"""

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.common import arguments, scenes


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, steps=1000, world="scenes-mini", split="validation")
    return make(args.steps, args.world, args.split)


def make(steps: int = 1000, world: str = "scenes-mini", split: str = "validation") -> ConfigDict:
    config = scenes.make(steps, world, split)
    with config.unlocked():
        config.losses = ConfigDict({"sigmoid": default.loss(weight=1.0)})
        config.model.logit_scale_init = 10.0
        config.model.logit_bias_init = -10.0
        config.model.logit_scale_max = None  # published SigLIP checkpoints lie above CLIP's 100
    return config
