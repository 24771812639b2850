"""NegCLIP's loss with negatives of the CREPE kind "negate": the caption with something of it denied.

  python -m vlc_jax.main --workdir runs/crepe_negate \\
    --config configs/coco/crepe_negate.py:weights=ViT-B-32.pt,tokenizer=FILE,path=captions.json

Kamath et al. (2024) judge CREPE-Swap and CREPE-Replace, not this one: there is no number of a
finetuned ViT-B/32 to reproduce. Of a ResNet-50 from scratch it is said (Hsieh et al. 2023, code,
issue 3) that it hardly differs from none. Not yet run at full size here; an estimate: 570,000
images with two texts each take 6 minutes of one A100 at 30 % of its bfloat16 peak.

The models crepe_ft_negate of Hsieh et al. (2023): neither the training code nor the generator is
public. The negatives are made in the style of CREPE (Ma et al. 2023), from word lists; the rest is
NegCLIP's without hard images, of which nothing is said.
Arguments: those of configs/coco/clip_ft.py.
"""

from ml_collections import ConfigDict

from configs import arguments, default
from configs.coco import clip_ft


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, **clip_ft.ARGUMENTS)
    config = clip_ft.make(args)
    with config.unlocked():
        config.losses = ConfigDict({"negclip": default.loss(weight=1.0)})
        config.input.negatives = ConfigDict(default.texts(1, "skip", crepe_negate=1.0))
    return config
