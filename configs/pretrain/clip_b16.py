"""CLIP ViT-B/16 (Radford et al. 2021) from scratch, on shards of image-text pairs.

  python -m vlc_jax.main --workdir runs/clip_b16 \\
    --config configs/pretrain/clip_b16.py:path=SHARDS,tokenizer=FILE

open_clip trained it on LAION-400M: batch 33,792 on 176 A100 of 40 GB, about 61 hours, 10,700
GPU-hours.

Hyper-parameters, what is not as in the paper, and arguments: see configs/pretrain/clip_b32.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import arguments, pretraining


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, **pretraining.ARGUMENTS, epochs=32.0)
    return pretraining.clip(args, "B/16", rate=5e-4)
