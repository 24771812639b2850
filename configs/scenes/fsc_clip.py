"""FSC-CLIP's hard-negative loss (Oh et al. 2024): focal weights and label smoothing, meant to keep
more of CLIP's other abilities.

  python -m vlc_jax.main --config configs/scenes/fsc_clip.py --workdir runs/fsc_clip

CLIP's loss and, with weight 0.5, the caption against three hard negatives of its own. The authors'
local term is not here (docs/methods.md). Arguments: those of configs/common/finetuning.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.common import finetuning


def get_config(argument: str | None = None) -> ConfigDict:
    config = finetuning.make(finetuning.parse(argument))
    with config.unlocked():
        config.losses.hn_focal = default.loss(weight=0.5, gamma=2.0, label_smoothing=0.02)
        finetuning.use_negatives(
            config, 3, scenes_replace=0.5, scenes_swap=0.25, scenes_reverse=0.25
        )
    return config
