"""CREPE-swap (Hsieh et al. 2023): NegCLIP's loss on captions with two words swapped.

  python -m vlc_jax.main --workdir runs/crepe_swap \\
    --config configs/coco/crepe_swap.py:weights=ViT-B-32.pt,tokenizer=FILE,path=captions.json

Must reproduce (Kamath et al. 2024, table 1: original, augmented, brittleness) REPLACE 63.5 / 50.4 /
19.8, SWAP 70.6 / 56.7 / 26.0. Not yet run at full size here; an estimate: 570,000 images with two
texts each take 6 minutes of one A100 at 30 % of its bfloat16 peak.

The models crepe_ft_swap of Hsieh et al. (2023): neither the training code nor the generator is
public. The negatives are made in the style of CREPE (Ma et al. 2023), from word lists; the rest is
NegCLIP's without hard images, of which nothing is said.

Arguments: those of configs/coco/clip_ft.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.coco import clip_ft, negclip
from vlc_jax.configs.common import arguments


def get_config(argument: str | None = None) -> ConfigDict:
    return negclip.without_hard_images(arguments.parse(argument, **clip_ft.ARGUMENTS), "crepe_swap")
