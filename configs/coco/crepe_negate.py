"""CREPE-negate (Hsieh et al. 2023): NegCLIP's loss on captions with a negation inserted.

  python -m vlc_jax.main --workdir runs/crepe_negate \\
    --config configs/coco/crepe_negate.py:weights=ViT-B-32.pt,tokenizer=FILE,path=captions.json

No number of a finetuned ViT-B/32 is published (Kamath et al. 2024 evaluate the other two kinds); of
a ResNet-50 from scratch there is SugarCrepe's replace object / attribute / relation, swap object /
attribute, add object / attribute (its code, issue 3): 78.9 / 72.0 / 65.9, 60.7 / 61.0, 71.8 / 66.6,
without negatives 78.6 / 70.6 / 67.0, 58.1 / 61.8, 72.1 / 67.2. Not yet run at full size here; an
estimate: 570,000 images with two texts each take 6 minutes of one A100 at 30 % of its bfloat16
peak.

The models crepe_ft_negate of Hsieh et al. (2023): neither the training code nor the generator is
public. The negatives are made in the style of CREPE (Ma et al. 2023), from word lists; the rest is
NegCLIP's without hard images, of which nothing is said.

Arguments: those of configs/coco/clip_ft.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.coco import clip_ft, negclip
from vlc_jax.configs.common import arguments


def get_config(argument: str | None = None) -> ConfigDict:
    return negclip.without_hard_images(
        arguments.parse(argument, **clip_ft.ARGUMENTS), "crepe_negate"
    )
