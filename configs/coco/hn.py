"""HN (Kamath et al. 2024): CLIP's loss and hard negatives without hard positives.

  python -m vlc_jax.main --workdir runs/hn \\
    --config configs/coco/hn.py:weights=ViT-B-32.pt,tokenizer=FILE,path=captions_train2017.json

Must reproduce (table 1: original, augmented, brittleness) REPLACE 73.9 / 55.7 / 21.0, SWAP 74.3 /
60.5 / 25.1; (table 10) ImageNet 50.4, COCO R@1 image / text 49.6 / 64.0, Flickr30k 67.8 / 80.1. The
authors took about 3 hours on 4 A100. Not yet run at full size here; an estimate: 3 million images
and 6 million texts take 31 minutes of one A100 at 30 % of its bfloat16 peak.

CLIP's loss and, per image, its caption against one hard negative. Paper and negatives: see
configs/coco/hp_hn.py. Arguments: those of configs/coco/clip_coco.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.coco import clip_coco, hp_hn
from vlc_jax.configs.common import arguments


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, **clip_coco.ARGUMENTS)
    return hp_hn.make(args, hn_weight=1.0, fallback="skip")
