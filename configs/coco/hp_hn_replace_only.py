"""HP+HN, Replace-only (Kamath et al. 2024): hard positives with a word replaced by a synonym,
hard negatives with a word replaced by another one (section 5.2: both of this kind alone).

  python -m vlc_jax.main --workdir runs/replace_only \\
    --config configs/coco/hp_hn_replace_only.py:weights=ViT-B-32.pt,path=captions_train2017.json

Must reproduce (table 1: original, augmented, brittleness) REPLACE 70.9 / 59.0 / 17.8, SWAP
69.7 / 55.6 / 26.5. Hardware and time are those of configs/coco/hp_hn.py.

A caption without such a word has no part in the loss of positives, nor in that of negatives
(--config.input.positives.fallback=self takes the caption itself, as SVLC's code does).

Arguments: those of configs/coco/hp_hn.py, but for hn_weight and swap_hp.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.coco import clip_coco, hp_hn
from vlc_jax.configs.common import arguments


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, **clip_coco.ARGUMENTS, replace_hp="")
    negatives = {"crepe_replace": 1.0}
    return hp_hn.make(args, hn_weight=1.0, fallback="skip", negatives=negatives, replace=1.0)
