"""CLIP or SigLIP with left/right hard negatives: "on the left" replaced by "on the right".

  python -m vlc_jax.main --config configs/scenes/leftright.py --workdir runs/leftright
  python -m vlc_jax.main --config configs/scenes/leftright.py:family=siglip --workdir runs/lr_siglip

Half of the captions say where an object is, so that they have a negative. Arguments: those of
configs/common/finetuning.py; family=clip|siglip; image_tower=locked (the paper's choice) or
unlocked; negatives=leftright, or none, the control, on scenes_whatsup and
scenes_relation_swap; the papers found no effect on What'sUp (configs/coco/leftright.py has their
numbers).
"""

from ml_collections import ConfigDict

from vlc_jax.configs import default
from vlc_jax.configs.coco import leftright
from vlc_jax.configs.common import finetuning
from vlc_jax.configs.scenes import siglip


def get_config(argument: str | None = None) -> ConfigDict:
    args = leftright.check(
        finetuning.parse(argument, family="clip", image_tower="locked", negatives="leftright")
    )
    config = finetuning.make(args)
    with config.unlocked():
        if args.family == "siglip":
            config.pretrain = siglip.make(world=args.world)
            config.model.logit_scale_max = config.pretrain.model.logit_scale_max
            config.model.logit_scale_init = config.pretrain.model.logit_scale_init
            config.model.logit_bias_init = config.pretrain.model.logit_bias_init
        config.losses = ConfigDict({leftright.loss(args): default.loss(weight=1.0)})
        config.input.scenes.caption_options.update({**finetuning.CAPTIONS, "place": 0.5})
        if args.negatives == "leftright":
            finetuning.use_negatives(config, left_right=1.0)
        if args.image_tower == "locked":
            config.frozen = ("image",)
    return config
