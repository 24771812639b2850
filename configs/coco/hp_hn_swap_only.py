"""HP+HN, Swap-only (Kamath et al. 2024): hard positives with the sides of an "and" swapped,
hard negatives with two words swapped (section 5.2: both of this kind alone).

  python -m vlc_jax.main --workdir runs/swap_only \\
    --config configs/coco/hp_hn_swap_only.py:weights=ViT-B-32.pt,path=captions_train2017.json

Must reproduce (table 1: original, augmented, brittleness) REPLACE 63.9 / 51.6 / 18.6, SWAP
73.0 / 61.9 / 21.2. Hardware and time are those of configs/coco/hp_hn.py.

A caption without an "and" has no such positive and no part in their loss, nor one without such a
negative in that of negatives; the paper does not say what it does with those
(--config.input.positives.fallback=self takes the caption itself, as SVLC's code).

Arguments: those of configs/coco/hp_hn.py, but for hn_weight and replace_hp.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.coco import clip_coco, hp_hn
from vlc_jax.configs.common import arguments


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, **clip_coco.ARGUMENTS, swap_hp="")
    return hp_hn.make(args, hn_weight=1.0, fallback="skip", negatives={"crepe_swap": 1.0}, swap=1.0)
