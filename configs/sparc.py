"""SPARC (Bica et al. 2024) on a frozen CLIP: each token is compared with its own patches.

  python -m vlc_jax.main --config configs/sparc.py --workdir runs/sparc
  python -m vlc_jax.main --workdir runs/sparc_llava --config \\
    configs/sparc.py:data=llava,rope=feature_1d,weights=ViT-L-14-336px.pt,path=prepared/llava
  python -m vlc_jax.main --workdir runs/sparc_coco --config \\
    configs/sparc.py:data=coco,weights=open_clip_model.safetensors,path=captions_train2017.json

The row "multiple text tokens" of the table in configs/pacl.py is data=llava with rope=feature_1d.

After Bica et al. 2024 (arXiv:2401.09865), who train everything from scratch with a learned
temperature; the weights .5 and 1 of the global and the local loss are those of both. The mean of
tokens includes padding (text_tokens=all), as in the code of the ACL 2025 paper. data=coco has tower
and data of configs/pacl.py:data=coco.

Arguments: data=scenes|coco|llava; the arguments of configs/pacl.py but pooling, eval_pooling,
text_encoder and connector; scoring=local|global; text_tokens=real (the default on the scenes), or
all (the mean of tokens includes padding).
"""

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.common import arguments, heads
from vlc_jax.configs.common.arguments import OneOf

OPTIONS = heads.PATCHES | {"text_tokens": OneOf("all", "real"), "scoring": OneOf("local", "global")}
SCENES = heads.SCENES | OPTIONS | {"text_tokens": OneOf("real", "all"), "hard_images": 1}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    coco, llava = heads.COCO | OPTIONS, heads.LLAVA | OPTIONS
    args = arguments.parse_data(argument, scenes=SCENES, coco=coco, llava=llava)
    if args.data == "scenes":
        config = heads.on_scenes(args, bool(args.hard_images), args.negatives)
    else:
        config = heads.on_captions(args)
    with config.unlocked():
        head = {"scoring": args.scoring, "mask_global_text": args.text_tokens == "real"}
        heads.use_patches(config, args, "sparc", weight=0.5, **head)
        config.losses.sparc_local = ConfigDict(default.loss(weight=1.0))
    return config
