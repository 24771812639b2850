"""HN (Kamath et al. 2024): CLIP's loss and hard negatives without hard positives.

  python -m vlc_jax.main --config configs/hn.py --workdir runs/hn
  python -m vlc_jax.main --workdir runs/hn_coco --config \\
    configs/hn.py:data=coco,weights=ViT-B-32.pt,tokenizer=FILE,path=captions_train2017.json

CLIP's loss and, per image, its caption against one hard negative (SVLC's loss): a word replaced or
two words exchanged, half and half. Paper and negatives: see configs/hp_hn.py.

Arguments: data=scenes|coco; with data=scenes the arguments of configs/clip_ft.py, with data=coco
the arguments of configs/clip_coco.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs import clip_coco, clip_ft, hp_hn
from vlc_jax.configs.common import arguments


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(argument, scenes=clip_ft.SCENES, coco=clip_coco.ARGUMENTS)
    return hp_hn.with_negatives(args, hp_hn.NEGATIVES[args.data]["both"], weight=1.0)
