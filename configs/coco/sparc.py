"""SPARC on COCO captions and a smaller frozen CLIP, beside configs/coco/pacl.py.

  python -m vlc_jax.main --workdir runs/sparc_coco \\
    --config configs/coco/sparc.py:weights=open_clip_model.safetensors,path=captions_train2017.json

configs/llava/sparc.py with the tower and the data of configs/coco/pacl.py; ours: no number of it is
published. Not yet run at full size here; an estimate: as configs/coco/pacl.py, 25 minutes of one
A100.

Arguments: those of configs/llava/sparc.py, path being COCO captions JSON, a table or shards.
"""

from ml_collections import ConfigDict

from vlc_jax.configs.coco import pacl
from vlc_jax.configs.common import arguments, heads
from vlc_jax.configs.llava import sparc


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = heads.check(arguments.parse(argument, **sparc.ARGUMENTS | pacl.SMALLER))
    config = heads.on_captions(args, table="records")
    with config.unlocked():
        config.model.activation = "gelu"
        heads.sparc(config, args)
    return config
