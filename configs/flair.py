"""FLAIR (Xiao et al. 2025): patches pooled for each text by a learned attention, and several
captions per image.

  python -m vlc_jax.main --config configs/flair.py --workdir runs/flair
  python -m vlc_jax.main --workdir runs/flair_coco --config \\
    configs/flair.py:data=coco,tokenizer=FILE,path=captions.jsonl

Half the sigmoid loss of the attention's scores, over the captions of the batch and the image's own
positives, and half that of pooled features over all captions and positives. The path of data=coco
is a table with a column positives, further captions of the image (CC3M with DreamLIP's). Without
weights, batch, rates, warmup, decay and scales are those of the authors' script for CC3M (8 GPUs).

Arguments: data=scenes|coco; bag (positives per image: 7, or 3 on the scenes, where they are other
true captions); image_tower, text_tower=locked|unlocked. With data=scenes the arguments of
configs/common/heads.py; hard_images=1. With data=coco those of configs/clip_ft.py, and size.
"""

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.common import arguments, finetuning, heads, pretrained

UNLOCKED = arguments.OneOf("unlocked", "locked")
SCENES = heads.SCENES | heads.TOWERS | {"bag": 3, "hard_images": 0}
COCO = {
    **pretrained.FINETUNING,
    "sets": pretrained.RETRIEVAL,
    "batch": 1024,
    "variant": "B/16",
    "size": 224,
    "bag": 7,
    "image_tower": UNLOCKED,
    "text_tower": UNLOCKED,
}


def get_config(argument: arguments.Argument = None) -> ConfigDict:
    args = arguments.parse_data(argument, scenes=SCENES, coco=COCO)
    if args.data == "scenes":
        config = heads.on_scenes(args, bool(args.hard_images))
    else:
        config = default.get_config()
    with config.unlocked():
        if args.data == "scenes":
            finetuning.use_positives(config, args.bag, "skip", scenes_describe=1.0)
        else:
            pretrained.use_clip(config, args, args.size)
            pretrained.five_epochs(config, args)
            pretrained.use_random_crops(config)
            pretrained.use_columns(config, positives_column="positives")
            pretrained.use_texts(config.input.positives, args.bag, "skip", {"from_record": 1.0})
            config.epochs = 32.0
            config.optimizer.warmup_steps = 2000
            config.optimizer.learning_rate = 5e-4
            config.optimizer.weight_decay = 0.5
            config.optimizer.eps = 1e-8
        config.model.name, config.frozen = "flair", heads.towers(args)
        config.model.logit_scale_init, config.model.logit_bias_init = 1 / 0.07, -10.0
        names = ("sigmoid_own_positives_local", "sigmoid_positives")
        duplicates = pretrained.DUPLICATES[args.data]
        config.losses = ConfigDict(
            {name: default.loss(0.5, duplicates=duplicates) for name in names}
        )
    return config
