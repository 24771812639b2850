"""NegCLIP's loss with negatives of the CREPE kind "swap": two words of one kind exchanged.

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

from configs import arguments, default, families
from configs.coco import clip_ft


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, **clip_ft.ARGUMENTS)
    config = clip_ft.make(args)
    with config.unlocked():
        config.losses = ConfigDict({"negclip": default.loss(weight=1.0)})
        families.use_texts(config.input.negatives, 1, "skip", {"crepe_swap": 1.0})
    return config
