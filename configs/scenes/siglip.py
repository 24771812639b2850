"""SigLIP's sigmoid loss on the embedded scenes, on the same towers and data as clip.py.

  python -m vlc_jax.main --config configs/scenes/siglip.py --workdir runs/siglip

Arguments: steps=N; world as in clip.py. Scale and bias start as in Zhai et al. (2023), section 3:
10 and -10.
"""

from ml_collections import ConfigDict

from configs import default
from configs.common import arguments
from configs.scenes import clip


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, steps=1000, world="scenes-mini")
    config = clip.get_config(f"steps={args.steps},world={args.world}")
    with config.unlocked():
        config.losses = ConfigDict({"sigmoid": default.loss(weight=1.0)})
        config.model.logit_scale_init = 10.0
        config.model.logit_bias_init = -10.0
        config.logit_scale_max = None  # published SigLIP checkpoints lie above CLIP's 100
    return config
