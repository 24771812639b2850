"""SVLC (Doveh et al. 2023): CLIP's loss and each caption against a copy with one word replaced.

  python -m vlc_jax.main --config configs/scenes/svlc.py --workdir runs/svlc
  python -m vlc_jax.main --config configs/scenes/svlc.py:lora --workdir runs/svlc_lora

Arguments: those of configs/common/finetuning.py; in_batch (the negatives are further texts for
every image of the batch as well: what the authors' code does on one GPU, but not on several); lora
(only adapters of rank 4 are trained, as the authors do, for whom 250 steps at this rate are few).
"""

from types import SimpleNamespace

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.coco import svlc
from vlc_jax.configs.common import finetuning


def get_config(argument: str | None = None) -> ConfigDict:
    return make(finetuning.parse(argument, in_batch=False, lora=False))


def make(args: SimpleNamespace) -> ConfigDict:
    config = finetuning.make(args)
    with config.unlocked():
        contrastive = "negclip" if args.in_batch else "infonce"
        config.losses = ConfigDict(
            {
                contrastive: default.loss(weight=1.0),
                "svlc_negative": default.loss(weight=1.0),
            }
        )
        finetuning.use_negatives(config, scenes_replace=1.0)
        if args.lora:
            svlc.use_lora(config)
    return config
