"""HP+HN, Swap-only (Kamath et al. 2024, table 1): hard positives say the same in another
order, hard negatives exchange two words or two objects (section 5.2).

  python -m vlc_jax.main --config configs/scenes/hp_hn_swap_only.py --workdir runs/swap_only

Where a caption offers no positive, it has no part in their loss
(config.input.positives.fallback is skip). Arguments: those of configs/common/finetuning.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import finetuning
from vlc_jax.configs.scenes import hp_hn

NEGATIVES = {"scenes_swap": 0.5, "scenes_reverse": 0.5}


def get_config(argument: str | None = None) -> ConfigDict:
    config = hp_hn.make(finetuning.parse(argument), 1.0, {"scenes_reorder": 1.0}, NEGATIVES)
    with config.unlocked():
        config.input.positives.fallback = "skip"
    return config
