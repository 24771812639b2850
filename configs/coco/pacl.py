"""PACL on COCO captions and a smaller frozen CLIP, as the demonstration of a public PACL code.

  python -m vlc_jax.main --workdir runs/pacl_coco \\
    --config configs/coco/pacl.py:weights=open_clip_model.safetensors,path=captions_train2017.json

NMS05/Patch-Aligned-Contrastive-Learning: ViT-B/16 trained on LAION-2B (whose activation is gelu) at
400 pixels, 625 patches, batch 1024; all else as configs/llava/pacl.py, but that an image has five
captions, of which one is drawn, where the code takes the first. No number of it is published. Not
yet run at full size here; an estimate: ten times over 118,000 images take 25 minutes of one A100
at 30 % of its bfloat16 peak.

Arguments: those of configs/llava/pacl.py, path being COCO captions JSON, a table or shards.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.common import arguments, heads
from vlc_jax.configs.llava import pacl

SMALLER = {"variant": "B/16", "size": 400, "batch": 1024}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = heads.check(arguments.parse(argument, **pacl.ARGUMENTS | SMALLER))
    config = heads.on_captions(args, table="records")
    with config.unlocked():
        config.model.activation = "gelu"
        heads.pacl(config, args)
    return config
