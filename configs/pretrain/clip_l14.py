"""CLIP ViT-L/14 (Radford et al. 2021) from scratch, on shards of image-text pairs.

  python -m vlc_jax.main --workdir runs/clip_l14 \\
    --config configs/pretrain/clip_l14.py:path=SHARDS,tokenizer=FILE

open_clip trained it on LAION-400M: batch 38,400 on 400 A100 of 40 GB with activation checkpointing,
about 127 hours, 50,800 GPU-hours.

Hyper-parameters, what is not as in the paper, and arguments: see configs/pretrain/clip_b32.py. The
authors' L/14 at 336 pixels, one more epoch, is not here.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import arguments, pretraining


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, **pretraining.ARGUMENTS, epochs=32.0)
    return pretraining.clip(args, "L/14", rate=4e-4, remat="block")
