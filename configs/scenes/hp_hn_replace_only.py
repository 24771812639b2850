"""HP+HN, Replace-only (Kamath et al. 2024, table 1): hard positives have a word replaced by
a synonym, hard negatives by another word (section 5.2).

  python -m vlc_jax.main --config configs/scenes/hp_hn_replace_only.py --workdir runs/replace_only

Where a caption offers no positive, it has no part in their loss
(config.input.positives.fallback is skip). Arguments: those of configs/common/finetuning.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import finetuning
from vlc_jax.configs.scenes import hp_hn

NEGATIVES = {"scenes_replace": 1.0}


def get_config(argument: str | None = None) -> ConfigDict:
    config = hp_hn.make(finetuning.parse(argument), 1.0, {"scenes_synonym": 1.0}, NEGATIVES)
    with config.unlocked():
        config.input.positives.fallback = "skip"
    return config
