"""CLIP ViT-B/16 (Radford et al. 2021) from scratch, on shards of image-text pairs.

  python -m vlc_jax.main --workdir runs/clip_b16 \\
    --config configs/pretrain/clip_b16.py:path=SHARDS,tokenizer=FILE

Must reproduce zero-shot ImageNet 67.07 with LAION-400M (open_clip, docs/PRETRAINED.md: batch 33,792
on 176 A100 of 40 GB, about 61 hours, 10,700 GPU-hours); the authors' own pairs gave 68.6. Not yet
run here; an estimate: 32 times 400 million pairs at 115 GFLOPs take 4,360 hours of an A100 at 30 %
of its bfloat16 peak. A bound, of the FLOPs that --mode plan counts: 75 ms a step on v5e:16x16, 8.1
hours of these 256 chips (not compiled: whether it fits is not known).

Hyper-parameters, what is not as in the paper, and arguments: see configs/pretrain/clip_b32.py.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import arguments, pretraining


def get_config(argument: str | None = None) -> ConfigDict:
    args = arguments.parse(argument, **pretraining.ARGUMENTS, epochs=32.0)
    return pretraining.clip(args, "B/16", rate=5e-4)
