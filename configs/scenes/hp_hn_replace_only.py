"""HP+HN, Replace-only (Kamath et al. 2024, table 1): hard positives by synonyms.

  python -m vlc_jax.main --config configs/scenes/hp_hn_replace_only.py --workdir runs/replace_only

Where a caption offers none, it has no part in the loss of positives
(config.input.positives.fallback is skip). Arguments: those of configs/common/finetuning.py.
"""

from ml_collections import ConfigDict

from configs.common import finetuning
from configs.scenes import hp_hn


def get_config(argument: str | None = None) -> ConfigDict:
    config = hp_hn.make(finetuning.parse(argument), 1.0, {"scenes_synonym": 1.0})
    with config.unlocked():
        config.input.positives.fallback = "skip"
    return config
