"""HN (Kamath et al. 2024): CLIP's loss and hard negatives without hard positives.

  python -m vlc_jax.main --config configs/scenes/hn.py --workdir runs/hn

CLIP's loss and, per image, its caption against one hard negative (SVLC's loss): a word replaced or
two words exchanged, half and half. Arguments: those of configs/common/finetuning.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import finetuning
from vlc_jax.configs.scenes import hp_hn


def get_config(argument: str | None = None) -> ConfigDict:
    return hp_hn.make(finetuning.parse(argument), hn_weight=1.0, positives={})
